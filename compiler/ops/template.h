// Templates: how a workload may be scheduled. A template is a tensor program for the workload *and* a schedule for
// it, with knobs. Several templates may fit one operator (direct, Winograd): they are alternatives that tuning
// chooses between. A template is for one kind of device, and fits nothing on another: templates for CPUs are written
// over what a CPU is (templates/cpu_template.h). Listed in templates/registry.cc, in order of preference when nothing
// is known.
#pragma once

#include "compiler/ops/footprint.h"
#include "compiler/ops/op.h"
#include "compiler/schedule/config_space.h"
#include "compiler/target/target.h"

namespace temper {

// A workload made ready for codegen.
struct Kernel {
  ir::Func main;       // lowered; parameters: one per workload input (constant ones in packed form), then the output
  ir::Func scheduled;  // what `main` was before; no parameters: it was made as it is
  // For inputs that are packed: how. A lowered function (original physical buffer) -> (packed buffer), run once per
  // constant when the package is made, and outside the clock when a candidate is timed. Empty Func (no params): as it
  // is. Packs run on the CPU of the machine that makes the package, whatever device `main` is for.
  std::vector<ir::Func> packs;
  // What the result may be off by, where that is more than what rounding sums of its type is; 0: it is not. An operator
  // may allow more than its type does (base/dtype.h).
  double tolerance = 0;
};

struct TemplateDef {
  std::string_view name;  // "conv2d.direct", "matmul.packed", "default"
  int version;            // rises when the same config means code of another speed: records of it no longer hold
  const FootprintSchema* schema;  // of its footprints
  std::function<bool(const Workload&, const Target&)> matches;
  // The others are asked only about what matches.
  std::function<ConfigSpace(const Workload&, const Target&)> space;
  std::function<absl::StatusOr<Kernel>(const Workload&, const Config&, const Target&)> build;
  std::function<Footprint(const Workload&, const Config&, const Target&)> footprint;
  bool fallback = false;  // right for everything of its kind of device, and asked where no other template fits
  // Never a default: its draft is held against no measurement yet, so it is chosen where it was measured alone.
  bool only_measured = false;
  std::string_view feature = {};  // of a CPU, without which it matches nothing
};

std::span<const TemplateDef> AllTemplates();
// In order. Where nothing else fits, it is the kind of device's fallback, which fits everything but opaque: "default"
// on CPUs, "gpu.default" on GPUs. All have one schema.
std::vector<const TemplateDef*> TemplatesFor(const Workload& w, const Target& t);
bool HasOwnTemplate(const Workload& w, const Target& t);  // another than the fallback
// kUnimplemented, as who finds none says it.
absl::Status NoTemplateFits(const Workload& w, const Target& t);
const TemplateDef* FindTemplate(std::string_view name);
// For operators written outside the tree (examples/custom_operator.cc). Call before any other use; not thread-safe.
void RegisterOp(OpDef op);
void RegisterTemplate(TemplateDef def);  // goes before the built-in ones

// The best legal config by draft, of templates that may be defaults, or of the fallback where none of them may;
// deterministic. Of a huge space a sample is looked at.
struct Choice {
  const TemplateDef* def;
  Config config;
};
absl::StatusOr<Choice> DefaultChoice(const Workload& w, const Target& t);

// Builds a kernel by template name, checking name, version and config first: the way of every candidate.
absl::StatusOr<Kernel> BuildKernel(const Workload& w, std::string_view template_name, const Config& c, const Target& t);

}  // namespace temper
