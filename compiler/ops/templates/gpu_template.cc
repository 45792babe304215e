#include "compiler/ops/templates/gpu_template.h"

#include "absl/strings/str_cat.h"
#include "compiler/ir/launch.h"

namespace temper {
namespace {

absl::Status CheckLimits(const ir::Func& f, const GpuTarget& t) {
  TEMPER_ASSIGN_OR_RETURN(const std::vector<ir::Launch> launches, ir::LaunchesOf(f));
  if (launches.empty()) return absl::InternalError(absl::StrCat(f.name, ": nothing is launched"));
  for (const ir::Launch& launch : launches) {
    if (launch.num_threads() > t.group_threads) {
      return absl::InvalidArgumentError(
          absl::StrCat(launch.num_threads(), " threads of a group where the target has ", t.group_threads));
    }
    if (launch.shared_bytes() > t.shared_bytes) {
      return absl::InvalidArgumentError(
          absl::StrCat(launch.shared_bytes(), " bytes of shared memory where the target has ", t.shared_bytes));
    }
  }
  return absl::OkStatus();
}

}  // namespace

TemplateDef ForGpu(GpuTemplate t) {
  return {
      t.name,
      t.version,
      &GpuSchema(),
      [matches = std::move(t.matches), runs_on = std::move(t.runs_on), fits = std::move(t.fits)](const Workload& w,
                                                                                                 const Target& target) {
        return target.gpu() != nullptr && runs_on(*target.gpu()) && matches(w) && fits(w, *target.gpu());
      },
      [space = std::move(t.space)](const Workload& w, const Target& target) { return space(w, *target.gpu()); },
      [build = std::move(t.build)](const Workload& w, const Config& c, const Target& target) -> absl::StatusOr<Kernel> {
        TEMPER_ASSIGN_OR_RETURN(Kernel kernel, build(w, c, *target.gpu()));
        TEMPER_RETURN_IF_ERROR(CheckLimits(kernel.main, *target.gpu()));
        if (target.gpu()->warp_width > 1) kernel.main.warp_width = target.gpu()->warp_width;
        return kernel;
      },
      [footprint = std::move(t.footprint)](const Workload& w, const Config& c, const Target& target) {
        return UnderGpuSchema(footprint(w, c, *target.gpu()), *target.gpu());
      }};
}

std::vector<int64_t> GroupThreads(const GpuTarget& t) {
  std::vector<int64_t> threads;
  for (int64_t n : {1024, 512, 256, 128, 64, 32}) {
    if (n <= t.group_threads) threads.push_back(n);
  }
  if (threads.empty()) threads.push_back(t.group_threads);
  return {threads.rbegin(), threads.rend()};
}

Dealt Deal(Schedule& s, const Loop& loop, int64_t threads, int64_t each) {
  Dealt d;
  auto [rest, thread] = s.Split(loop, threads);
  d.group = rest;
  d.thread = thread;
  if (each > 1) {
    std::tie(d.group, d.step) = s.Split(rest, each);
    s.Reorder({d.group, d.thread, d.step});
  }
  s.Bind(d.group, ir::ForKind::kGroupX);
  s.Bind(d.thread, ir::ForKind::kThreadX);
  return d;
}

}  // namespace temper
