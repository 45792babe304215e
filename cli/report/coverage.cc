#include "cli/report/coverage.h"

#include <algorithm>
#include <map>

#include "base/statistics.h"
#include "cli/command.h"
#include "compiler/graph/extract.h"
#include "compiler/ops/describe.h"
#include "compiler/ops/legal_configs.h"

namespace temper {
namespace {

absl::StatusOr<double> DraftSeconds(const ChosenKernel& kernel, const Target& target) {
  LegalConfigs legal(kernel.workload, target);
  TEMPER_RETURN_IF_ERROR(legal.Check(kernel.choice.template_name, kernel.choice.config));
  const TemplateDef* def = legal.Find(kernel.choice.template_name);
  return def->footprint(kernel.workload, kernel.choice.config, target).draft_s;
}

}  // namespace

std::string SourceOf(const std::string& level, const std::string& device, bool verdict_keeps_defaults) {
  if (level == "exact" || level == "key" || (level == "target" && device.empty())) return "exact";
  if (level == "target") return "other_device";
  if (level == "borrowed") return "transferred";
  if (level == "locked") return "locked";
  return verdict_keeps_defaults ? "verdict" : "default";
}

absl::Status ChooseKernels(const Graph& graph, const Target& target, const ChooseFn& choose, const std::string& device,
                           bool verdict_keeps_defaults, std::vector<ChosenKernel>& kernels) {
  std::map<std::string, size_t> known;
  for (size_t i = 0; i < kernels.size(); ++i) known[Text(kernels[i].workload)] = i;
  TEMPER_ASSIGN_OR_RETURN(const std::vector<Task> tasks, KernelsOf(graph));
  for (const Task& task : tasks) {
    if (const auto found = known.find(Text(task.workload)); found != known.end()) {
      kernels[found->second].uses += task.count;
      continue;
    }
    ChosenKernel& kernel = kernels.emplace_back();
    kernel.workload = task.workload;
    kernel.uses = task.count;
    TEMPER_ASSIGN_OR_RETURN(kernel.choice, choose(task.workload, target));
    kernel.source = SourceOf(kernel.choice.level, device, verdict_keeps_defaults);
    // A borrowed record was measured with another epilogue.
    kernel.measured = kernel.choice.seconds > 0 && kernel.choice.level != "borrowed";
  }
  return absl::OkStatus();
}

absl::Status EstimateTimes(const Target& target, std::vector<ChosenKernel>& kernels) {
  std::vector<double> drafts, ratios;
  for (const ChosenKernel& kernel : kernels) {
    TEMPER_ASSIGN_OR_RETURN(const double draft, DraftSeconds(kernel, target));
    drafts.push_back(draft);
    if (kernel.measured && draft > 0) ratios.push_back(kernel.choice.seconds / draft);
  }
  const double scale = ratios.empty() ? 1 : Median(ratios);
  double total = 0;
  for (size_t i = 0; i < kernels.size(); ++i) {
    kernels[i].seconds = kernels[i].measured ? kernels[i].choice.seconds : scale * drafts[i];
    total += kernels[i].uses * kernels[i].seconds;
  }
  for (ChosenKernel& kernel : kernels) kernel.share = total > 0 ? kernel.uses * kernel.seconds / total : 0;
  return absl::OkStatus();
}

double CoverageOf(const std::vector<ChosenKernel>& kernels) {
  double coverage = kernels.empty() ? 1 : 0;
  for (const ChosenKernel& kernel : kernels) {
    if (kernel.source == "exact" || kernel.source == "other_device" || kernel.source == "verdict")
      coverage += kernel.share;
  }
  return std::min(coverage, 1.0);
}

nlohmann::ordered_json CoverageReport(const std::vector<ChosenKernel>& kernels) {
  std::vector<const ChosenKernel*> sorted;
  for (const ChosenKernel& kernel : kernels) sorted.push_back(&kernel);
  std::ranges::stable_sort(sorted, std::ranges::greater(), &ChosenKernel::share);
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const ChosenKernel* kernel : sorted) {
    const KernelChoice& choice = kernel->choice;
    list.push_back({{"operator", Describe(kernel->workload)},
                    {"workload", Text(kernel->workload)},
                    {"uses", kernel->uses},
                    {"source", kernel->source},
                    {"share", kernel->share},
                    {"ms", kernel->seconds * 1e3},
                    {"measured", kernel->measured},
                    {"template", choice.template_name},
                    {"config", Text(choice.config)},
                    {"device", choice.device},
                    {"record", choice.record},
                    {"stale", choice.stale}});
  }
  return list;
}

}  // namespace temper
