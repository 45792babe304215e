// The templates, in order of preference when nothing is known, those of each kind of device together. Its fallback
// comes last: it fits every workload that has tensor expressions.
#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/division.h"
#include "compiler/ops/default_choice.h"
#include "compiler/ops/legal_configs.h"
#include "compiler/ops/template.h"
#include "compiler/ops/templates/cpu_footprint.h"
#include "compiler/ops/templates/gpu_template.h"
#include "compiler/ops/templates/templates.h"
#include "compiler/schedule/skip_behind.h"

namespace temper {
namespace {

TemplateDef Fallback(TemplateDef def) {
  def.fallback = true;
  return def;
}

TemplateDef OnlyMeasured(TemplateDef def) {
  def.only_measured = true;
  return def;
}

std::vector<TemplateDef>& Table() {
  static std::vector<TemplateDef> table = {
      // CPUs
      ForCpu(Conv2dDirect()),
      ForCpu(Conv2dRows()),
      ForCpu(Conv2dWinograd()),
      ForCpu(DepthwiseConv2d()),
      ForCpu(SeparableConv2d()),
      ForCpu(ExpandedConv2d()),
      ForCpu(MatmulPacked()),
      ForCpu(Conv2dInteger()),
      ForCpu(MatmulInteger()),
      ForCpu(Conv2dTiles()),
      ForCpu(MatmulTiles()),
      ForCpu(Conv2dBf16()),
      ForCpu(MatmulBf16()),
      ForCpu(Conv2dTilesBf16()),
      ForCpu(MatmulTilesBf16()),
      ForCpu(MatmulNBits()),
      ForCpu(MatmulNBitsCached()),
      ForCpu(MatmulNBitsI8()),
      ForCpu(AttentionRows()),
      ForCpu(ReducePixels()),
      ForCpu(SeparablePool()),
      ForCpu(ScanTemplate()),
      ForCpu(ScatterTemplate()),
      ForCpu(CompactTemplate()),
      ForCpu(TopKTemplate()),
      ForCpu(SuppressTemplate()),
      Fallback(ForCpu(DefaultTemplate())),
      // GPUs
      ForGpu(GpuConv()),
      ForGpu(GpuDepthwise()),
      ForGpu(GpuGemm()),
      ForGpu(GpuMma()),
      ForGpu(GpuReduce()),
      ForGpu(GpuPixels()),
      ForGpu(GpuAttentionMma()),
      OnlyMeasured(ForGpu(GpuWinograd())),
      OnlyMeasured(ForGpu(GpuWgmma())),
      OnlyMeasured(ForGpu(GpuAttention())),
      Fallback(ForGpu(GpuDefault())),
  };
  return table;
}

}  // namespace

std::span<const TemplateDef> AllTemplates() { return Table(); }

void RegisterTemplate(TemplateDef def) { Table().insert(Table().begin(), std::move(def)); }

std::vector<const TemplateDef*> TemplatesFor(const Workload& w, const Target& t) {
  std::vector<const TemplateDef*> result;
  const bool nothing = NumElements(w.output().shape) == 0;  // which the fallback alone knows how to do
  for (const TemplateDef& def : Table()) {
    if ((def.fallback || !nothing) && def.matches(w, t)) result.push_back(&def);
  }
  // The fallback's schedule of a contraction is a naive loop nest: right, but never worth a trial beside a real
  // template.
  if (result.size() > 1) std::erase_if(result, [](const TemplateDef* def) { return def->fallback; });
  return result;
}

bool HasOwnTemplate(const Workload& w, const Target& t) {
  const std::vector<const TemplateDef*> templates = TemplatesFor(w, t);
  return !templates.empty() && !templates.front()->fallback;
}

const TemplateDef* FindTemplate(std::string_view name) {
  for (const TemplateDef& def : Table()) {
    if (def.name == name) return &def;
  }
  return nullptr;
}

absl::Status NoTemplateFits(const Workload& w, const Target& t) {
  return absl::UnimplementedError(absl::StrCat("no template for ", t.generator, " fits ", Text(w)));
}

namespace {

std::vector<const TemplateDef*> DefaultsFor(const Workload& w, const Target& t) {
  std::vector<const TemplateDef*> templates = TemplatesFor(w, t);
  std::erase_if(templates, [](const TemplateDef* def) { return def->only_measured; });
  for (const TemplateDef& def : Table()) {
    if (templates.empty() && def.fallback && def.matches(w, t)) return {&def};
  }
  return templates;
}

// Of a line what is computed in tiles of rows, of which there are short ones (SkipBehind). A tile that goes on in the
// next line has rows of that one's beginning.
double ShareOfLine(const SmallestRun& run, int64_t tile) {
  if (run.line == 0) return 1;
  const int64_t computed = RoundUp(run.of_line, CeilDiv(tile, kShortestTile)) + (run.line % tile == 0 ? 0 : tile - 1);
  return static_cast<double>(std::min(run.line, computed)) / static_cast<double>(run.line);
}

// The legal config of least cost, of templates that may be defaults; of a huge space a sample is looked at.
absl::StatusOr<Choice> LeastBy(const std::function<double(const Footprint&, const Config&)>& cost, const Workload& w,
                               const Target& t) {
  constexpr int64_t kAll = 1 << 19, kSample = 4096;  // the former take some ten milliseconds
  Choice best{nullptr, {}};
  double least = std::numeric_limits<double>::infinity();
  for (const TemplateDef* def : DefaultsFor(w, t)) {
    const ConfigSpace space = def->space(w, t);
    for (Config& config : space.Enumerate(space.product_size() <= kAll ? kAll : kSample)) {
      const double here = cost(def->footprint(w, config, t), config);
      if (here < least) {
        least = here;
        best = {def, std::move(config)};
      }
    }
  }
  if (best.def == nullptr) return NoTemplateFits(w, t);
  return best;
}

}  // namespace

absl::StatusOr<Choice> DefaultChoice(const Workload& w, const Target& t) {
  return LeastBy([](const Footprint& f, const Config&) { return f.draft_s; }, w, t);
}

absl::StatusOr<Choice> DefaultChoiceOfRuns(const Workload& w, const Target& t, const SmallestRun& run) {
  const auto bytes = [](const TensorType& type) {
    return static_cast<double>(BytesOf(type.dtype, NumElements(type.shape)));
  };
  double moved = bytes(w.output());
  for (const Workload::Operand& operand : w.inputs) moved += operand.constant ? 0 : bytes(operand.type);
  constexpr double kLeastSeconds = 2e-6;  // of a kernel, however little it does
  const double threads = t.threads();
  const auto cost = [&](const Footprint& f, const Config& c) {
    const double share = run.share * ShareOfLine(run, static_cast<int64_t>(f["tile_rows"]));
    const double constants = std::max(0.0, f["memory_traffic"] - moved);
    const double smallest_s = kLeastSeconds + f.draft_s * share + SecondsFromMemory(constants, *t.cpu()) * (1 - share);
    // Units of work are fewer, but for those that blocks of columns make, and threads may have none.
    const double blocks = c.Has("blocks") ? static_cast<double>(c["blocks"]) : 1;
    const double chunks = std::max(blocks, f["parallel_chunks"] * share);
    const double waits = std::ceil(chunks / threads) * threads / chunks;
    return f.draft_s * smallest_s * waits;
  };
  return LeastBy(cost, w, t);
}

absl::StatusOr<Kernel> BuildKernel(const Workload& w, std::string_view template_name, const Config& c,
                                   const Target& t) {
  LegalConfigs legal(w, t);
  TEMPER_RETURN_IF_ERROR(legal.Check(template_name, c));
  return legal.Find(template_name)->build(w, c, t);
}

}  // namespace temper
