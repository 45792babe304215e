// Why a model takes the time it takes: of each operator, what the database knows beside the default config. Values
// only; explain.cc and explain_html.cc show them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/report/failures.h"
#include "cli/report/footprint_differences.h"
#include "cli/report/search_gap.h"

namespace temper {

struct ConfigReport {
  std::string template_name;
  Config config;
  Footprint footprint;
  double draft_s = 0;     // the footprint's: nominal, only ratios count
  double seconds = 0;     // one run
  bool measured = false;  // else `seconds` is the draft, on the scale of the nearest that was measured
  int64_t record = 0;     // 0: none
};

// A record of the operator, as a point of the plots.
struct PlottedTrial {
  int64_t id = 0, time_unix_ms = 0;
  double at_s = 0;        // of tuning this model, pauses left out
  double measured_s = 0;  // 0: failed
  double draft_s = 0;     // 0: the template has another version now
  bool may_be_best = false;
};

// For an operator without a record of its own: the one that comes nearest.
struct Nearest {
  std::string how;      // "the same on another device", "the same operator, other epilogue", "the nearest shape"
  double distance = 0;  // sum of |log| of the ratios of dimensions
  double scale = 0;     // its measured seconds over its draft's; 0: of another target, or not known
  Record record;
  std::string what;  // Describe of its workload
};

struct OperatorReport {
  int number = 0;  // from 1, by time
  std::string workload, what;
  std::vector<std::string> nodes;  // anchors' names in the model
  int count = 1;
  double share = 0;  // of the model's time, as tuned
  ConfigReport untuned, tuned;
  // "exact", "key" and "target": of its own records; "borrowed": of another epilogue's; "default": untuned.
  std::string level = "default";
  std::string purpose;  // of the best record
  double age_s = 0;     // of the best record
  bool stale = false;
  std::optional<SearchGap> gap;      // of the best record
  std::vector<Difference> knobs;     // that the tuned config changed
  std::vector<Difference> effects;   // of that, in terms of the footprint
  std::vector<PlottedTrial> trials;  // in id order, failures too
  int failures = 0;
  std::optional<Nearest> nearest;

  bool tuned_itself() const { return level != "default" && level != "borrowed"; }
  double gain() const { return untuned.seconds / tuned.seconds; }
  bool gain_measured() const { return untuned.measured && tuned.measured; }
  double predicted_gain() const { return untuned.draft_s / tuned.draft_s; }
};

struct Explanation {
  std::string model, device;  // device: empty if none was asked for
  Target target;
  std::vector<OperatorReport> operators;  // the longest time first
  double untuned_s = 0, tuned_s = 0;      // sums over the operators, each as often as it occurs
  // The same over those whose default and best config were both measured: only there is a gain known.
  int compared = 0;
  double compared_untuned_s = 0, compared_tuned_s = 0;
  FailureGroups failures;  // of the model's operators
  std::string hint;        // set where there are records, but none for this target and device
};

// The graph is optimised for the target.
absl::StatusOr<Explanation> ExplainModel(const Graph& graph, const Target& target, Records& records,
                                         const std::string& device, int64_t now_unix_ms);

}  // namespace temper
