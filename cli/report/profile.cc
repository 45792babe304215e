#include "cli/report/profile.h"

#include <algorithm>
#include <cstdio>
#include <map>

#include "absl/strings/str_cat.h"
#include "base/statistics.h"
#include "cli/command.h"
#include "compiler/runtime/thread_pool.h"
#include "compiler/timing/timing.h"

namespace temper {
namespace {

// What the manifest says about each step; times are filled in later.
absl::StatusOr<std::vector<StepProfile>> ReadSteps(const nlohmann::json& manifest) try {
  std::map<std::string, StepProfile> kernels;  // by symbol
  for (const nlohmann::json& kernel : manifest.at("kernels")) {
    StepProfile& p = kernels[kernel.at("symbol").get<std::string>()];
    p.what = kernel.at("workload").get<std::string>();
    p.kernel = absl::StrCat(kernel.at("template").get<std::string>(), " ", kernel.at("config").get<std::string>());
    // Operators that this program does not know are timed all the same.
    absl::StatusOr<Workload> w = ParseWorkload(p.what);
    if (!w.ok()) continue;
    p.what = Describe(*w);
    p.flops = Flops(*w);
    p.bytes = CompulsoryBytes(*w);
  }
  std::vector<StepProfile> steps;
  for (const nlohmann::json& step : manifest.at("steps")) {
    StepProfile p = kernels[step.at("symbol").get<std::string>()];
    p.name = step.at("name").get<std::string>();
    if (p.kernel.empty()) {
      p.what = "copy";
      p.bytes = 2 * step.value("copy_bytes", 0.0);
    }
    steps.push_back(std::move(p));
  }
  return steps;
} catch (const nlohmann::json::exception& e) {
  return absl::InvalidArgumentError(absl::StrCat("the package's manifest.json is damaged: ", e.what()));
}

// Samples of each step's seconds, by step.
absl::StatusOr<std::vector<std::vector<double>>> TimeSteps(LoadedPackage& package, double seconds) {
  const PackageBuffers buffers(package);
  constexpr int kWarmUps = 3;
  constexpr size_t kLeast = 5;
  std::vector<std::vector<double>> samples;
  std::vector<int64_t> ns;
  for (int i = 0; i < kWarmUps; ++i) TEMPER_RETURN_IF_ERROR(package.RunTimed(buffers.in(), buffers.out(), &ns));
  samples.resize(ns.size());
  const int64_t start = MonotonicNs();
  for (size_t runs = 0; runs < kLeast || static_cast<double>(MonotonicNs() - start) < seconds * 1e9; ++runs) {
    TEMPER_RETURN_IF_ERROR(package.RunTimed(buffers.in(), buffers.out(), &ns));
    for (size_t i = 0; i < ns.size(); ++i) samples[i].push_back(static_cast<double>(ns[i]) * 1e-9);
  }
  return samples;
}

double Gflops(const StepProfile& s) { return s.flops / s.seconds * 1e-9; }
double GigabytesPerSecond(const StepProfile& s) { return s.bytes / s.seconds * 1e-9; }

}  // namespace

absl::StatusOr<PackageProfile> ProfilePackage(LoadedPackage& package, const nlohmann::json& manifest, int threads,
                                              double seconds) {
  constexpr double kRooflineSeconds = 0.3;
  TEMPER_ASSIGN_OR_RETURN(const Target target, ParseTarget(manifest.value("target", "")));
  const CpuTarget* const cpu = target.cpu();
  if (cpu == nullptr) return absl::UnimplementedError(absl::StrCat("no roofline is measured for ", target.generator));
  PackageProfile profile;
  TEMPER_ASSIGN_OR_RETURN(profile.steps, ReadSteps(manifest));
  const std::unique_ptr<temper_pool, decltype(&temper_pool_destroy)> pool(temper_pool_create(threads),
                                                                          temper_pool_destroy);
  if (pool == nullptr) return absl::ResourceExhaustedError("cannot start threads to measure the machine with");
  const auto measure_machine = [&] {
    temper_pool_settle_caller(pool.get());
    return MeasureRoofline(temper_pool_launcher(pool.get()), cpu->vector_bits, cpu->l3_bytes, kRooflineSeconds);
  };
  profile.roofline = measure_machine();
  TEMPER_ASSIGN_OR_RETURN(const auto samples, TimeSteps(package, seconds));
  profile.roofline.Raise(measure_machine());
  if (samples.size() != profile.steps.size())
    return absl::InvalidArgumentError("the package's manifest.json is not that of its model.so");
  for (size_t i = 0; i < samples.size(); ++i) {
    StepProfile& step = profile.steps[i];
    step.seconds = std::max(Median(samples[i]), 1e-9);
    step.of_bound = profile.roofline.Seconds(step.flops, step.bytes) / step.seconds;
    profile.repeats = static_cast<int>(samples[i].size());
  }
  std::stable_sort(profile.steps.begin(), profile.steps.end(),
                   [](const StepProfile& a, const StepProfile& b) { return a.seconds > b.seconds; });
  return profile;
}

void PrintProfile(const PackageProfile& profile) {
  double total = 0;
  for (const StepProfile& s : profile.steps) total += s.seconds;
  std::printf("machine: %.1f GFLOP/s, %.1f GB/s; %zu steps, medians of %d runs, %.3f ms in all\n",
              profile.roofline.flops_per_s * 1e-9, profile.roofline.bytes_per_s * 1e-9, profile.steps.size(),
              profile.repeats, total * 1e3);
  std::printf("%9s %6s %8s %7s %9s  %s\n", "ms", "share", "GFLOP/s", "GB/s", "roofline", "step");
  for (const StepProfile& s : profile.steps) {
    std::printf("%9.4f %5.1f%% %8.1f %7.1f %8.1f%%  %s: %s  [%s]\n", s.seconds * 1e3, 100 * s.seconds / total,
                Gflops(s), GigabytesPerSecond(s), 100 * s.of_bound, s.name.c_str(), s.what.c_str(), s.kernel.c_str());
  }
}

nlohmann::ordered_json ToJson(const PackageProfile& profile) {
  nlohmann::ordered_json steps = nlohmann::ordered_json::array();
  for (const StepProfile& s : profile.steps) {
    steps.push_back({{"name", s.name},
                     {"what", s.what},
                     {"kernel", s.kernel},
                     {"ms", s.seconds * 1e3},
                     {"flops", s.flops},
                     {"bytes", s.bytes},
                     {"gflops", Gflops(s)},
                     {"gbytes_per_s", GigabytesPerSecond(s)},
                     {"of_roofline", s.of_bound}});
  }
  return {{"ceiling_gflops", profile.roofline.flops_per_s * 1e-9},
          {"bandwidth_gbytes_per_s", profile.roofline.bytes_per_s * 1e-9},
          {"repeats", profile.repeats},
          {"steps", std::move(steps)}};
}

}  // namespace temper
