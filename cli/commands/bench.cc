#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/utf8.h"
#include "cli/build.h"
#include "cli/command.h"
#include "cli/json_line.h"
#include "cli/report/profile.h"
#include "cli/report/words.h"
#include "compiler/package/manifest.h"
#include "compiler/runtime/thread_pool.h"
#include "compiler/timing/timing.h"

namespace temper {
namespace {

struct BenchOptions {
  ModelOptions model;
  RecordOptions records;
  double seconds = 0;  // 0: BENCH_SECONDS, else 3
  bool json = false, profile = false;
};

// What is said of the variant that was chosen.
absl::Status BenchVariant(const BenchOptions& o, double seconds, const nlohmann::json& manifest,
                          LoadedPackage& package) {
  TEMPER_ASSIGN_OR_RETURN(const Timing timing, TimePackage(package, seconds));
  const bool tuned = manifest.value("tuned", false);
  const std::string model = manifest.value("model", ""), target = manifest.value("target", "");
  const std::string variant = manifest.value("name", "");
  const std::string shown = variant.empty() ? model : absl::StrCat(model, " ", variant);
  std::printf("%s (%s): median %s, mean %s, std %s, min %s over %d runs\n", Escaped(shown).c_str(),
              tuned ? "tuned" : "untuned", TimeText(timing.median_ms).c_str(), TimeText(timing.mean_ms).c_str(),
              TimeText(timing.std_ms).c_str(), TimeText(timing.min_ms).c_str(), timing.repeats);
  PackageProfile profile;
  if (o.profile) {
    TEMPER_ASSIGN_OR_RETURN(profile, ProfilePackage(package, manifest, o.records.threads, seconds));
    PrintProfile(profile);
  }
  if (!o.json) return absl::OkStatus();
  const int threads = temper_pool_resolve_threads(o.records.threads);
  const std::vector<LoadedPackage::Io>& outputs = package.outputs();
  const std::string dtype(outputs.empty() ? "" : Name(outputs.front().dtype));
  nlohmann::ordered_json line = {{"model", model},
                                 {"target", target},
                                 {"dtype", dtype},
                                 {"threads", threads},
                                 {"tuned", tuned},
                                 {"median_ms", timing.median_ms},
                                 {"mean_ms", timing.mean_ms},
                                 {"min_ms", timing.min_ms},
                                 {"std_ms", timing.std_ms},
                                 {"repeats", timing.repeats}};
  if (!variant.empty()) line["variant"] = variant;
  if (o.profile) line["profile"] = ToJson(profile);
  std::printf("%s\n", JsonText(line).c_str());
  return absl::OkStatus();
}

absl::Status Bench(const BenchOptions& o) {
  double seconds = o.seconds;
  if (const char* text = std::getenv("BENCH_SECONDS"); seconds <= 0 && text != nullptr) {
    if (!absl::SimpleAtod(text, &seconds) || seconds <= 0)
      return absl::InvalidArgumentError(absl::StrCat("BENCH_SECONDS is '", text, "', not a number of seconds"));
  }
  if (seconds <= 0) seconds = 3;
  TEMPER_ASSIGN_OR_RETURN(const PackageAtHand at_hand, FindOrBuildPackage(o.model, o.records));
  TEMPER_ASSIGN_OR_RETURN(std::unique_ptr<LoadedPackage> package, LoadPackage(at_hand.dir, o.records.threads));
  TEMPER_ASSIGN_OR_RETURN(nlohmann::json manifest, ReadManifest(at_hand.dir));
  const nlohmann::json variants = manifest.value("variants", nlohmann::json::array());
  for (int i = 0; i < package->variants(); ++i) {
    TEMPER_RETURN_IF_ERROR(package->Choose(i));
    if (static_cast<size_t>(i) < variants.size()) manifest.update(variants[static_cast<size_t>(i)]);
    TEMPER_RETURN_IF_ERROR(BenchVariant(o, seconds, manifest, *package));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<PackageBuffers> PackageBuffers::Make(const LoadedPackage& package) {
  PackageBuffers made;
  for (const LoadedPackage::Io& io : package.inputs()) {
    TEMPER_ASSIGN_OR_RETURN(const NDArray array, RandomInput(io, made.arrays_.size()));
    made.arrays_.push_back(array);
    made.in_.push_back(array.data());
  }
  for (const LoadedPackage::Io& io : package.outputs()) {
    TEMPER_ASSIGN_OR_RETURN(NDArray array, NDArray::Make(io.dtype, io.shape));
    made.out_.push_back(array.MutableData());
    made.arrays_.push_back(std::move(array));
  }
  return made;
}

absl::StatusOr<Timing> TimePackage(LoadedPackage& package, double seconds) {
  TEMPER_ASSIGN_OR_RETURN(const PackageBuffers buffers, PackageBuffers::Make(package));
  constexpr int kWarmUps = 3, kLeast = 5;
  for (int i = 0; i < kWarmUps; ++i) TEMPER_RETURN_IF_ERROR(package.Run(buffers.in(), buffers.out()));
  std::vector<double> ms;
  const int64_t start = MonotonicNs();
  while (static_cast<int>(ms.size()) < kLeast || static_cast<double>(MonotonicNs() - start) < seconds * 1e9) {
    const int64_t t = MonotonicNs();
    TEMPER_RETURN_IF_ERROR(package.Run(buffers.in(), buffers.out()));
    ms.push_back(static_cast<double>(MonotonicNs() - t) / 1e6);
  }
  Timing timing{};
  std::sort(ms.begin(), ms.end());
  const double n = static_cast<double>(ms.size());
  for (double m : ms) timing.mean_ms += m / n;
  for (double m : ms) timing.std_ms += (m - timing.mean_ms) * (m - timing.mean_ms) / n;
  timing.std_ms = std::sqrt(timing.std_ms);
  timing.min_ms = ms.front();
  timing.median_ms = (ms[(ms.size() - 1) / 2] + ms[ms.size() / 2]) / 2;
  timing.repeats = static_cast<int>(ms.size());
  return timing;
}

void AddBench(CLI::App& app, Action* action) {
  auto o = std::make_shared<BenchOptions>();
  CLI::App* command = app.add_subcommand("bench", "time a model or a package");
  AddModelOptions(command, &o->model, "MODEL.onnx or a package's directory");
  AddRecordOptions(command, &o->records);
  command->add_option("--target", o->records.target, "what to compile for (default: the device's, or this machine)");
  command->add_option("--threads", o->records.threads, "threads (default: TEMPER_NUM_THREADS, else the affinity mask)")
      ->check(AboveZero());
  command->add_option("--seconds", o->seconds, "how long to measure (default: BENCH_SECONDS, else 3)")
      ->check(AboveZero());
  command->add_flag("--untuned", o->records.untuned, "use default configs only");
  command->add_flag("--profile", o->profile,
                    "show where each kernel's time goes, the longest first, and the measured limits of the machine");
  command->add_flag("--json", o->json, "a JSON object as the last line; one behind each variant, if there are several");
  command->footer("Example:\n  temper bench resnet50.onnx --seconds 5 --json");
  command->callback([o, action] { *action = [o] { return Bench(*o); }; });
}

}  // namespace temper
