// Every candidate is as likely as any other, none comes twice, and it ends when there are no more.
#include "tuner_server/search/point_tuner.h"

namespace temper {

absl::StatusOr<std::unique_ptr<Tuner>> MakeRandomTuner(const TunerContext& context) {
  TEMPER_ASSIGN_OR_RETURN(std::shared_ptr<const TaskSpace> task, TaskSpace::Make(context));
  return std::make_unique<PointTuner>(std::move(task), context.seed);
}

}  // namespace temper
