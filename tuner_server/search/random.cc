// Every candidate is as likely as any other, none comes twice, and it ends when there are no more.
#include "tuner_server/search/tuners.h"
#include "tuner_server/search/walk.h"

namespace temper {
namespace {

class RandomTuner : public Tuner {
 public:
  RandomTuner(std::shared_ptr<const TaskSpace> task, uint64_t seed) : task_(task), walk_(std::move(task), seed) {}

  absl::StatusOr<std::vector<Candidate>> Propose(int n) override {
    std::vector<Candidate> batch;
    while (static_cast<int>(batch.size()) < n) {
      const std::optional<Point> point = walk_.Next(seen_);
      if (!point.has_value()) break;
      seen_.insert(*point);
      batch.push_back(task_->At(*point));
    }
    return batch;
  }

  absl::Status Observe(std::span<const Observation> observations) override {
    for (const Observation& o : observations) {
      TEMPER_RETURN_IF_ERROR(CheckObservation(o));
      if (const std::optional<Point> point = task_->Find(o.candidate); point.has_value()) seen_.insert(*point);
    }
    return absl::OkStatus();
  }

 private:
  std::shared_ptr<const TaskSpace> task_;
  Walk walk_;
  PointSet seen_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Tuner>> MakeRandomTuner(const TunerContext& context) {
  TEMPER_ASSIGN_OR_RETURN(std::shared_ptr<const TaskSpace> task, TaskSpace::Make(context));
  return std::make_unique<RandomTuner>(std::move(task), context.seed);
}

}  // namespace temper
