// Search spaces that others measured whole, in Kernel Tuner's cache format, as tasks for our tuners: listed configs of
// knobs, some of which failed, and nothing else is known of them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "compiler/ops/templates/gpu_footprint.h"
#include "tuner_server/search/tuner.h"

namespace temper {

struct MeasuredSpace {
  std::string name;
  // A knob whose values are no integers has their positions instead.
  std::vector<Knob> knobs;
  absl::flat_hash_map<int64_t, double> cost_s;  // of each legal config, by position in the product; infinite: it failed
  double best_s = 0;
  std::string device, kernel;         // as the file names them; empty: it does not
  std::vector<int64_t> problem_size;  // empty: the file does not tell

  ConfigSpace Configs() const;             // just those that were measured
  int64_t IndexOf(const Config& c) const;  // position in the product; of a config of Configs()
};

// The text of a cache file. One that is not closed, as interrupted runs leave it, is fine; a config without a finite
// positive time failed. kInvalidArgument: one line that says what is wrong, also where nothing works.
absl::StatusOr<MeasuredSpace> ParseMeasuredSpace(std::string name, std::string text);
// From a file, compressed by gzip or not. kNotFound: it can not be read.
absl::StatusOr<MeasuredSpace> ReadMeasuredSpace(const std::string& path);

// Registers a template of which this is the space and the context of a search over it. Before any other use of
// templates; not thread-safe.
TunerContext RegisterMeasuredSpace(std::shared_ptr<const MeasuredSpace> space);
// The same for a GPU of which closed forms tell what a config does.
struct MeasuredFootprint {
  Target target;
  std::function<GpuFootprint(const Config& c)> of;
};
TunerContext RegisterMeasuredSpace(std::shared_ptr<const MeasuredSpace> space, MeasuredFootprint footprint);

// The best that the draft knows, first. kInvalidArgument: as a tuner says it.
absl::StatusOr<std::vector<Config>> FirstByDraft(const TunerContext& context, size_t count);

// Found / best after each of `budgets`, which ascend, in one search by batches of `batch`; infinite where all failed.
absl::StatusOr<std::vector<double>> SearchMeasuredSpace(const MeasuredSpace& space, const TunerDef& def,
                                                        const TunerContext& context, const std::vector<int>& budgets,
                                                        int batch);

}  // namespace temper
