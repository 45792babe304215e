// What the GPUs' draft is worth by what others measured.
//   bench_gpu_draft --library FILE [--every N]
// The draft's best beside a vendor's library, times one factor a device that half of the shapes fitted: mean and median
// error on the others, by operator and device. With the tiles that the library has, and, of every N-th shape alone,
// with all of the template's.
//   bench_gpu_draft [--seeds N] SPACE...
// Of complete spaces of CLBlast's Xgemm in Kernel Tuner's format: what share of the optimum's speed the best of the
// draft's first 16 configs reaches, and xgb with the draft after 16, 32 and 64 measurements, the median over seeds.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/statistics.h"
#include "bench/search/library_times.h"
#include "bench/search/replay.h"
#include "bench/search/text_file.h"
#include "bench/search/xgemm.h"

namespace temper {
namespace {

constexpr int kFirst = 16, kBatch = 8;

struct Study {
  std::string library;
  int every = 20;
  int seeds = 20;
  std::vector<std::string> spaces;
};

// Of one device's times.
struct Drafts {
  std::vector<double> fit_drafts, fit_times, errors[2];  // by operator
  std::vector<std::pair<double, double>> others[2];      // draft and time
};

void PrintErrors(const std::string& name, const std::vector<double> (&errors)[2], double factor) {
  std::printf("  %-24s", name.c_str());
  for (const std::vector<double>& e : errors)
    std::printf("  %5.1f %5.1f (%4zu)", e.empty() ? NAN : 100 * Mean(e), e.empty() ? NAN : 100 * Quantile(e, 0.5),
                e.size());
  if (factor > 0) std::printf("  %.2f", factor);
  std::printf("\n");
}

absl::Status RunLibrary(const std::vector<LibraryTime>& times, LibraryConfigs configs) {
  const std::vector<bool> for_fitting = ForFitting(times);
  std::map<std::string, Drafts> devices;
  for (size_t i = 0; i < times.size(); ++i) {
    TEMPER_ASSIGN_OR_RETURN(const double draft_ms, LibraryDraftMs(times[i], configs));
    Drafts& d = devices[times[i].device];
    if (for_fitting[i]) {
      d.fit_drafts.push_back(draft_ms);
      d.fit_times.push_back(times[i].ms);
    } else {
      d.others[times[i].batched].emplace_back(draft_ms, times[i].ms);
    }
  }
  std::printf("  %-24s  %-18s  %-18s  factor\n", "device", "linear: %, median", "bmm: %, median");
  std::vector<double> all[2];
  for (auto& [name, d] : devices) {
    const double factor = FittedFactor(d.fit_drafts, d.fit_times);
    for (const bool batched : {false, true}) {
      for (const auto& [draft_ms, ms] : d.others[batched]) {
        d.errors[batched].push_back(std::abs(factor * draft_ms / ms - 1));
        all[batched].push_back(d.errors[batched].back());
      }
    }
    PrintErrors(name, d.errors, factor);
  }
  PrintErrors("all", all, 0);
  return absl::OkStatus();
}

absl::Status RunLibrary(const Study& study) {
  TEMPER_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(study.library));
  TEMPER_ASSIGN_OR_RETURN(const std::vector<LibraryTime> times, ParseLibraryTimes(text));
  std::printf("draft's error on the shapes that were not fitted, by the library's tiles\n");
  TEMPER_RETURN_IF_ERROR(RunLibrary(times, LibraryConfigs::kLibraryTiles));
  std::vector<LibraryTime> some;
  for (size_t i = 0; i < times.size(); i += static_cast<size_t>(study.every)) some.push_back(times[i]);
  std::printf("by all configs of gpu.gemm, every %d. line of the file\n", study.every);
  return RunLibrary(some, LibraryConfigs::kAll);
}

absl::Status RunSpace(const std::string& path, const Study& study) {
  TEMPER_ASSIGN_OR_RETURN(MeasuredSpace read, ReadMeasuredSpace(path));
  const auto space = std::make_shared<const MeasuredSpace>(std::move(read));
  TEMPER_ASSIGN_OR_RETURN(MeasuredFootprint footprint, XgemmFootprints(*space));
  TunerContext context = RegisterMeasuredSpace(space, std::move(footprint));
  TEMPER_ASSIGN_OR_RETURN(const std::vector<Config> first, FirstByDraft(context, kFirst));
  double found_s = INFINITY;
  for (const Config& c : first) found_s = std::min(found_s, space->cost_s.at(space->IndexOf(c)));
  std::printf("%s, %zu configs: the draft's first %d reach %.1f %%\n", space->name.c_str(), space->cost_s.size(),
              kFirst, 100 * space->best_s / found_s);
  const std::vector<int> budgets = {16, 32, 64};
  std::vector<std::vector<double>> shares(budgets.size());
  for (int seed = 0; seed < study.seeds; ++seed) {
    context.seed = static_cast<uint64_t>(seed);
    TEMPER_ASSIGN_OR_RETURN(const std::vector<double> ratios,
                            SearchMeasuredSpace(*space, *FindTuner("xgb"), context, budgets, kBatch));
    for (size_t i = 0; i < ratios.size(); ++i) shares[i].push_back(100 / ratios[i]);
  }
  for (size_t i = 0; i < budgets.size(); ++i)
    std::printf("  xgb with the draft after %d: %.1f %% (quartiles %.1f to %.1f)\n", budgets[i],
                Quantile(shares[i], 0.5), Quantile(shares[i], 0.25), Quantile(shares[i], 0.75));
  return absl::OkStatus();
}

absl::StatusOr<Study> StudyOf(const std::vector<std::string>& args) {
  Study study;
  const absl::Status usage = absl::InvalidArgumentError(
      "usage: bench_gpu_draft --library FILE [--every N], or bench_gpu_draft [--seeds N] SPACE...");
  for (size_t i = 0; i < args.size(); ++i) {
    if (!args[i].starts_with("--")) {
      study.spaces.push_back(args[i]);
      continue;
    }
    const std::string& option = args[i];
    if (++i == args.size()) return usage;
    int* number = option == "--every" ? &study.every : option == "--seeds" ? &study.seeds : nullptr;
    if (option == "--library") {
      study.library = args[i];
    } else if (number == nullptr || !absl::SimpleAtoi(args[i], number) || *number < 1) {
      return usage;
    }
  }
  if (study.library.empty() == study.spaces.empty()) return usage;
  return study;
}

absl::Status Main(const std::vector<std::string>& args) {
  TEMPER_ASSIGN_OR_RETURN(const Study study, StudyOf(args));
  if (!study.library.empty()) return RunLibrary(study);
  for (const std::string& path : study.spaces) TEMPER_RETURN_IF_ERROR(RunSpace(path, study));
  return absl::OkStatus();
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  const absl::Status status = temper::Main({argv + 1, argv + argc});
  if (status.ok()) return 0;
  std::fprintf(stderr, "bench_gpu_draft: %s\n", std::string(status.message()).c_str());
  return 1;
}
