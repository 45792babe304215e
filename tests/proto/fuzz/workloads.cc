#include <cmath>

#include "compiler/ops/template.h"
#include "tests/proto/fuzz/targets.h"

namespace temper::fuzz {
namespace {

constexpr int64_t kConfigs = 4;  // of each template

const temper::Target& Machine() {
  static const temper::Target target = *ParseTarget("llvm:znver4");
  return target;
}

}  // namespace

void Workloads(std::string_view bytes) {
  const absl::StatusOr<Workload> w = ParseWorkload(bytes);
  if (!w.ok()) return;
  const std::string text = Text(*w);
  const absl::StatusOr<Workload> back = ParseWorkload(text);
  Expect(back.ok() && Text(*back) == text, "a workload's text gives it back");
  Expect(!AnchorText(*w).empty(), "the anchor has a text");
  Expect(std::isfinite(Flops(*w)) && std::isfinite(CompulsoryBytes(*w)), "work is finite");
  for (const TemplateDef* def : TemplatesFor(*w, Machine())) {
    const ConfigSpace space = def->space(*w, Machine());
    for (const Config& config : space.Enumerate(kConfigs)) {
      Expect(space.Check(config).ok(), "a space knows its configs");
      for (const double value : def->footprint(*w, config, Machine()).values)
        Expect(std::isfinite(value), "footprints are finite");
    }
  }
}

}  // namespace temper::fuzz
