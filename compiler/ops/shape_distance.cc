#include "compiler/ops/shape_distance.h"

#include <cmath>
#include <limits>

namespace temper {

double ShapeDistance(const Workload& a, const Workload& b) {
  constexpr double kFar = std::numeric_limits<double>::infinity();
  const auto shapes = [](const Workload& w) {
    const Workload::Call& anchor = w.calls[w.anchor];
    std::vector<Shape> all = {anchor.type.shape};
    for (int arg : anchor.args) all.push_back(arg < 0 ? Shape{} : w.TypeOf(arg).shape);
    return all;
  };
  const std::vector<Shape> x = shapes(a), y = shapes(b);
  if (a.calls[a.anchor].op != b.calls[b.anchor].op || x.size() != y.size()) return kFar;
  double distance = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    if (x[i].size() != y[i].size()) return kFar;
    for (size_t d = 0; d < x[i].size(); ++d)
      distance += std::abs(std::log(static_cast<double>(x[i][d]) / static_cast<double>(y[i][d])));
  }
  return distance;
}

}  // namespace temper
