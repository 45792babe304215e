// A package of a whole model, built and loaded to be timed.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "compiler/package/package.h"
#include "trial/trial.h"

namespace temper::worker {

// The graph that travelled, with weights drawn from the seed. Of a model with far more weights than caches hold, later
// layers have earlier ones' where they are of one type: whose they are changes no time, but to pack, write and read all
// of them for each package takes long.
absl::StatusOr<Graph> ModelGraph(const ModelWork& work, const Target& target);
// That in itself: `g`, whose weights are not there yet, may have `most_bytes` of them before any are shared.
absl::Status ShareConstants(Graph& g, int64_t most_bytes);

// Not thread-safe.
class ModelRunner {
 public:
  // Writes a package, loads it with inputs drawn from the seed, and leaves nothing of it on the disk. `cache` serves
  // all packages of the model.
  static absl::StatusOr<ModelRunner> Make(const Graph& g, const Target& target, const ChooseFn& choose, uint64_t seed,
                                          CompileCache& cache);

  absl::Status RunFirst();
  // Seconds that `calls` runs take. After another package's turn a first run warms the threads and the caches and is
  // not counted; where a run is long, that would cost as much as it measures and change next to nothing.
  double Time(int64_t calls);
  // The same, and adds the nanoseconds of each of steps().
  absl::Status TimeSteps(int64_t calls, std::vector<int64_t>& step_ns);
  int64_t CallsASample();
  bool steady() const;

  const std::vector<PackageStep>& steps() const { return steps_; }
  const std::vector<NDArray>& outputs() const { return outputs_; }
  double tolerance() const { return tolerance_; }  // of outputs, as CheckModelOutput has it
  bool quantises() const { return quantises_; }    // likewise

 private:
  absl::Status Run(std::vector<temper_step_time>* times = nullptr);
  void WarmUp();

  std::unique_ptr<LoadedPackage> package_;
  std::vector<PackageStep> steps_;
  std::vector<NDArray> inputs_, outputs_;
  double tolerance_ = 0;
  bool quantises_ = false;
  double call_s_ = 0;  // of the last sample, or the first call
};

// Repeats what was measured while the device was slower than usual, as long as there is patience left: half of its
// cores gone for a while, a device does not even order kernels as it usually does. What takes long to measure is worth
// a longer wait, of seconds in all.
class UsualPace {
 public:
  explicit UsualPace(std::function<bool()> as_usual) : as_usual_(std::move(as_usual)) {}
  // `measure` may run several times; the last one counts.
  absl::Status Run(const std::function<absl::Status()>& measure);

 private:
  const std::function<bool()> as_usual_;
  int64_t patience_ns_ = 200'000'000, waited_ns_ = 0;
};
inline bool AlwaysAsUsual() { return true; }

// Rounds in which a model's packages take turns, each at the device's usual pace.
struct Rounds {
  int64_t budget_ms = 0;  // none begins once the turns that count took so long, but for the first three; 0: any
  std::function<bool(int held)> another;
  // A turn. That of a round that is held again counts instead of the one before.
  std::function<absl::Status(size_t runner, int64_t calls)> time;
  std::function<void()> keep;  // what the turns of a round told
};
inline constexpr int kLeastRounds = 3;
absl::Status HoldRounds(std::vector<ModelRunner>& runners, UsualPace pace, const Rounds& rounds);

// What finals leave to the check of the same model that follows them.
struct KeptModel {
  std::shared_ptr<const std::string> graph_json;
  std::string target;
  uint64_t seed = 0;
  Graph graph;
  ModelRunner untuned;  // the package of the first finalists, which are the defaults
  std::unique_ptr<CompileCache> cache;
  bool IsOf(const ModelWork& work) const {
    return *graph_json == *work.graph_json && target == work.target && seed == work.seed;
  }
};

// kDataLoss: the outputs of the latest runs differ by more than rounding (CheckModelOutput). `worst` is raised to the
// relative error of those that are floats.
absl::Status CompareOutputs(const ModelRunner& runner, const ModelRunner& reference, double& worst);

}  // namespace temper::worker
