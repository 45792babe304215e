// Every candidate in the order of the space, one template after the other.
#include "tuner_server/search/point_tuner.h"

namespace temper {
namespace {

class GridTuner : public PointTuner {
 public:
  using PointTuner::PointTuner;

 private:
  absl::StatusOr<std::optional<Point>> Next() override {
    for (; next_.space < task().count(); next_ = {next_.space + 1, 0}) {
      while (next_.index < task().size(next_.space)) {
        const Point point = next_;
        ++next_.index;
        if (Open(point) && task().Legal(point)) return point;
      }
    }
    return std::nullopt;
  }

  Point next_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Tuner>> MakeGridTuner(const TunerContext& context) {
  TEMPER_ASSIGN_OR_RETURN(std::shared_ptr<const TaskSpace> task, TaskSpace::Make(context));
  return std::make_unique<GridTuner>(std::move(task), context.seed);
}

}  // namespace temper
