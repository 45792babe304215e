// One task's candidates as numbers: the spaces of all templates that fit its workload, side by side. What tuners work
// on. Immutable, so it may be shared between threads.
#pragma once

#include <memory>
#include <optional>
#include <unordered_set>
#include <vector>

#include "base/rng.h"
#include "tuner_server/search/tuner.h"

namespace temper {

struct Point {
  int space = 0;      // position of the template among those that fit
  int64_t index = 0;  // in the product of its knobs, legal or not
  auto operator<=>(const Point&) const = default;
};
struct PointHash {
  size_t operator()(const Point& p) const {
    return static_cast<size_t>(Rng(static_cast<uint64_t>(p.index) * 64 + p.space).Next());
  }
};
using PointSet = std::unordered_set<Point, PointHash>;

class TaskSpace {
 public:
  // kNotFound: no template fits the workload.
  static absl::StatusOr<std::shared_ptr<const TaskSpace>> Make(const TunerContext& context);

  int count() const { return static_cast<int>(parts_.size()); }
  int64_t size(int space) const { return parts_[space].size; }  // of the product
  bool Legal(const Point& p) const;
  Candidate At(const Point& p) const;
  // nullopt: another template, or a config that is no point of its space (made for an older version, say).
  std::optional<Point> Find(const Candidate& candidate) const;
  // Features and draft of a legal point; cost 0. Behind the closed-form features come the template and the knobs'
  // values, so that a model may learn what no footprint tells.
  Sample Row(const Point& p) const;
  // A point with one knob set to another value; the same one where no knob has two. May be illegal.
  Point Move(const Point& p, Rng& rng) const;
  // Knobs that differ; all of them between templates.
  int Distance(const Point& a, const Point& b) const;

 private:
  struct Axis {
    int64_t radix;   // values of the knob
    int64_t stride;  // indices between successive values
  };
  struct Part {
    const TemplateDef* def;
    ConfigSpace space;
    int64_t size;
    std::vector<Axis> axes;
    std::vector<int> movable;  // axes with two values or more
    std::vector<int> columns;  // of each knob among all the templates' knobs
  };

  Workload workload_;
  Target target_;
  std::vector<Part> parts_;
  size_t knob_columns_ = 0;
};

}  // namespace temper
