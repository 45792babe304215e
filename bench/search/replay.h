// Tuners on recorded spaces: every config of a task was measured in three passes over the whole space, so a search can
// be repeated with many seeds without measuring. Two passes are what the tuner is told, the third scores what it chose.
#pragma once

#include <istream>
#include <map>
#include <string>
#include <vector>

#include "tuner_server/search/tuner.h"

namespace temper {

inline constexpr int kPasses = 3;

struct RecordedSpace {
  struct Costs {
    double told_s = 0;    // mean of the first two passes; infinite where one failed
    double scored_s = 0;  // of the third
  };
  Workload workload;
  Target target;
  std::map<std::pair<std::string, std::string>, Costs> costs;  // by template and config
  double best_s = 0, best_told_s = 0;                          // scored, told
  double all_s = 0;  // scored, of what who tries everything chooses: the fastest told that works in all passes
};
// Lines of JSON: {"workload", "target"}, then for each config and pass {"pass", "template", "config", "cost_s"}, null
// for a failure. kInvalidArgument: no such text; or a config that was not measured in all three passes.
absl::StatusOr<RecordedSpace> ParseSpace(std::istream& in);

struct ReplayOptions {
  int trials = 128;
  int batch = 16;
  int seeds = 20;
  // Off: no tuner knows closed forms of seconds, and the first batch is random instead of the best by draft.
  bool draft = true;
  // Regret of what is told instead, against the fastest told: without the noise between passes.
  bool told = false;
  // What other tasks taught; null: nothing.
  std::shared_ptr<const Experience> experience;
};
// For each seed, how much slower the choice is in the third pass than what who tries everything chooses: 0.1 is 10 %.
// Less than nothing where noise chose better; the fastest of the third pass would be a reference that owes its place to
// luck. All tuners see the same first batch. kNotFound: a tuner proposes what was not recorded, so the template's space
// is no longer that of the recording.
absl::StatusOr<std::vector<double>> Regrets(const RecordedSpace& space, const TunerDef& tuner,
                                            const ReplayOptions& options);

// How much slower what who tries everything chooses is than the fastest of the third pass: what luck is worth there.
double RegretOfAll(const RecordedSpace& space);

double Quantile(std::vector<double> values, double q);
// Mean of a[i] - b[i] and half the width of its 95 % interval.
struct PairedResult {
  double mean = 0, half_width = 0;
};
PairedResult PairedDifference(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace temper
