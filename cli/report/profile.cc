#include "cli/report/profile.h"

#include <algorithm>
#include <cstdio>
#include <map>

#include "absl/strings/str_cat.h"
#include "base/statistics.h"
#include "base/utf8.h"
#include "cli/command.h"
#include "compiler/ops/describe.h"
#include "compiler/runtime/thread_pool.h"
#include "compiler/timing/core_to_core.h"
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
    p.constant_bytes = step.value("constant_bytes", 0.0);
    steps.push_back(std::move(p));
  }
  return steps;
} catch (const nlohmann::json::exception& e) {
  return absl::InvalidArgumentError(absl::StrCat("the package's manifest.json is damaged: ", e.what()));
}

// Seconds, a sample for each run.
struct StepSamples {
  std::vector<double> run, busy, warm;
};
struct Samples {
  std::vector<double> model;
  std::vector<StepSamples> steps;
};

// Runs in turn: nothing timed, each step timed, each step timed on what it has left in the caches.
absl::StatusOr<Samples> TakeSamples(LoadedPackage& package, double seconds) {
  TEMPER_ASSIGN_OR_RETURN(const PackageBuffers buffers, PackageBuffers::Make(package));
  constexpr int kWarmUps = 3, kAgain = 3;
  constexpr size_t kLeast = 5;
  Samples samples;
  std::vector<temper_step_time> times;
  for (int i = 0; i < kWarmUps; ++i) TEMPER_RETURN_IF_ERROR(package.Run(buffers.in(), buffers.out()));
  const int64_t start = MonotonicNs();
  for (size_t runs = 0; runs < kLeast || static_cast<double>(MonotonicNs() - start) < seconds * 1e9; ++runs) {
    TEMPER_RETURN_IF_ERROR(package.RunTimed(buffers.in(), buffers.out(), kAgain, &times));
    samples.steps.resize(times.size());
    for (size_t i = 0; i < times.size(); ++i)
      samples.steps[i].warm.push_back(1e-9 * static_cast<double>(times[i].busy_ns));
    // The caches are those of a plain run again before the next ones are timed.
    TEMPER_RETURN_IF_ERROR(package.Run(buffers.in(), buffers.out()));
    const int64_t run_start = MonotonicNs();
    TEMPER_RETURN_IF_ERROR(package.Run(buffers.in(), buffers.out()));
    samples.model.push_back(1e-9 * static_cast<double>(MonotonicNs() - run_start));
    TEMPER_RETURN_IF_ERROR(package.RunTimed(buffers.in(), buffers.out(), 0, &times));
    for (size_t i = 0; i < times.size(); ++i) {
      samples.steps[i].run.push_back(1e-9 * static_cast<double>(times[i].ns));
      samples.steps[i].busy.push_back(1e-9 * static_cast<double>(times[i].busy_ns));
    }
  }
  return samples;
}

// The parts of `step.seconds`, which they add up to.
void Split(const StepSamples& samples, bool constants_from_memory, const Roofline& roofline, StepProfile& step) {
  step.seconds = std::max(Median(samples.run), 1e-9);
  const double busy = Median(samples.busy),
               fetch = constants_from_memory ? step.constant_bytes / roofline.bytes_per_s : 0;
  step.warm_s = Median(samples.warm);
  step.memory_s = std::clamp(busy - step.warm_s, 0.0, fetch);
  step.threads_s = step.seconds - busy;
  step.rest_s = busy - step.warm_s - step.memory_s;
  step.of_bound = roofline.Seconds(step.flops, step.bytes) / step.seconds;
}

double Gflops(const StepProfile& s) { return s.flops / s.seconds * 1e-9; }
double GigabytesPerSecond(const StepProfile& s) { return s.bytes / s.seconds * 1e-9; }

}  // namespace

absl::StatusOr<PackageProfile> ProfilePackage(LoadedPackage& package, const nlohmann::json& manifest, int threads,
                                              double seconds) {
  constexpr double kRooflineSeconds = 0.3, kCoreToCoreSeconds = 0.01;
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
  TEMPER_ASSIGN_OR_RETURN(const Samples samples, TakeSamples(package, seconds));
  profile.roofline.Raise(measure_machine());
  profile.core_to_core_s = MeasureCoreToCore(temper_pool_launcher(pool.get()), kCoreToCoreSeconds);
  if (samples.steps.size() != profile.steps.size())
    return absl::InvalidArgumentError("the package's manifest.json is not that of its model.so");
  profile.model_s = Median(samples.model);
  profile.repeats = static_cast<int>(samples.model.size());
  for (const StepProfile& step : profile.steps) profile.constant_bytes += step.constant_bytes;
  profile.constant_bytes = std::min(profile.constant_bytes, manifest.value("weight_bytes", 0.0));
  profile.constants_from_memory =
      profile.constant_bytes + manifest.value("arena_bytes", 0.0) > static_cast<double>(cpu->l3_bytes);
  for (size_t i = 0; i < profile.steps.size(); ++i)
    Split(samples.steps[i], profile.constants_from_memory, profile.roofline, profile.steps[i]);
  std::stable_sort(profile.steps.begin(), profile.steps.end(),
                   [](const StepProfile& a, const StepProfile& b) { return a.seconds > b.seconds; });
  return profile;
}

namespace {

void PrintRow(const StepProfile& s, double total) {
  std::printf("%9.4f %5.1f%% %9.4f %9.4f %9.4f %9.4f %8.1f %7.1f %8.1f%%", s.seconds * 1e3, 100 * s.seconds / total,
              s.warm_s * 1e3, s.memory_s * 1e3, s.threads_s * 1e3, s.rest_s * 1e3, Gflops(s), GigabytesPerSecond(s),
              100 * s.of_bound);
}

StepProfile Sum(const PackageProfile& profile) {
  StepProfile sum;
  for (const StepProfile& s : profile.steps) {
    for (double StepProfile::*part :
         {&StepProfile::seconds, &StepProfile::warm_s, &StepProfile::memory_s, &StepProfile::threads_s,
          &StepProfile::rest_s, &StepProfile::flops, &StepProfile::bytes})
      sum.*part += s.*part;
  }
  sum.of_bound = profile.roofline.Seconds(sum.flops, sum.bytes) / sum.seconds;
  return sum;
}

}  // namespace

void PrintProfile(const PackageProfile& profile) {
  const StepProfile sum = Sum(profile);
  std::printf("machine: %.1f GFLOP/s, %.1f GB/s, %.0f ns from core to core\n", profile.roofline.flops_per_s * 1e-9,
              profile.roofline.bytes_per_s * 1e-9, profile.core_to_core_s * 1e9);
  std::printf("the model takes %.3f ms; %zu steps, medians of %d runs\n", profile.model_s * 1e3, profile.steps.size(),
              profile.repeats);
  std::printf("constants: %.1f MiB, %s\n", profile.constant_bytes / (1 << 20),
              profile.constants_from_memory ? "which come from memory in each run" : "which the caches keep");
  std::printf("%9s %6s %9s %9s %9s %9s %8s %7s %9s  %s\n", "ms", "share", "warm", "memory", "threads", "rest",
              "GFLOP/s", "GB/s", "roofline", "step");
  for (const StepProfile& s : profile.steps) {
    PrintRow(s, sum.seconds);
    std::printf("  %s: %s  [%s]\n", Escaped(s.name).c_str(), Escaped(s.what).c_str(), Escaped(s.kernel).c_str());
  }
  PrintRow(sum, sum.seconds);
  std::printf("  all steps; %+.4f ms to the model's time\n", (profile.model_s - sum.seconds) * 1e3);
}

nlohmann::ordered_json ToJson(const PackageProfile& profile) {
  nlohmann::ordered_json steps = nlohmann::ordered_json::array();
  for (const StepProfile& s : profile.steps) {
    steps.push_back({{"name", s.name},
                     {"what", s.what},
                     {"kernel", s.kernel},
                     {"ms", s.seconds * 1e3},
                     {"warm_ms", s.warm_s * 1e3},
                     {"memory_ms", s.memory_s * 1e3},
                     {"threads_ms", s.threads_s * 1e3},
                     {"rest_ms", s.rest_s * 1e3},
                     {"flops", s.flops},
                     {"bytes", s.bytes},
                     {"constant_bytes", s.constant_bytes},
                     {"gflops", Gflops(s)},
                     {"gbytes_per_s", GigabytesPerSecond(s)},
                     {"of_roofline", s.of_bound}});
  }
  return {{"ceiling_gflops", profile.roofline.flops_per_s * 1e-9},
          {"bandwidth_gbytes_per_s", profile.roofline.bytes_per_s * 1e-9},
          {"core_to_core_ns", profile.core_to_core_s * 1e9},
          {"model_ms", profile.model_s * 1e3},
          {"constant_bytes", profile.constant_bytes},
          {"constants_from_memory", profile.constants_from_memory},
          {"repeats", profile.repeats},
          {"steps", std::move(steps)}};
}

}  // namespace temper
