// One task's candidates as numbers: the spaces of all templates that fit its workload, side by side. What tuners work
// on. Immutable, so it may be shared between threads.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_set.h"
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
using PointSet = absl::flat_hash_set<Point, PointHash>;

struct ScoredPoint {
  Point point;
  float score = 0;
};
// The order of everything ranked: higher scores first, and among equals one order on every machine.
inline bool Before(const ScoredPoint& a, const ScoredPoint& b) {
  return a.score != b.score ? a.score > b.score : a.point < b.point;
}

class TaskSpace {
 public:
  // kUnimplemented: no template fits the workload.
  static absl::StatusOr<std::shared_ptr<const TaskSpace>> Make(const TunerContext& context);

  int count() const { return static_cast<int>(parts_.size()); }
  int64_t size(int space) const { return parts_[space].size; }  // of the product
  bool Legal(const Point& p) const;
  Proposal At(const Point& p) const;
  // nullopt: another template, or a config that is no point of its space (made for an older version, say).
  std::optional<Point> Find(const Proposal& candidate) const;
  double DraftSeconds(const Point& p) const;  // of a legal point
  // Appends features and draft of a legal point. Behind the closed-form features come the template and the knobs'
  // values, so that a model may learn what no footprint tells.
  void AppendRow(const Point& p, Rows& rows) const;
  Rows NewRows() const { return Rows{first_knob_column() + knob_names_.size()}; }
  const FootprintSchema& schema() const { return *parts_[0].def->schema; }
  size_t space_column() const { return FeatureCount(schema()); }  // which template it is
  size_t first_knob_column() const { return space_column() + 1; }
  const std::vector<std::string>& knob_names() const { return knob_names_; }  // by column, from the first
  // Where a legal or illegal point lies: the template, then its knobs by column, each from 0 to 1 by the logarithms of
  // its values, or by the values where one is below nought; in the middle where the template lacks the knob.
  size_t coordinates() const { return 1 + knob_names_.size(); }
  void AppendCoordinates(const Point& p, std::vector<double>& coordinates) const;
  std::string_view TemplateName(int space) const { return parts_[space].def->name; }

  int knobs(int space) const { return static_cast<int>(parts_[space].movable.size()); }  // of two values or more
  // What follows may be illegal.
  // One knob set to another value; now and then another template, keeping the values of the knobs that it has too.
  // The same point where there is nothing to change.
  Point Move(const Point& p, Rng& rng) const;
  // A knob set to any value.
  Point Redrawn(const Point& p, int knob, Rng& rng) const;
  // Knobs of `a` up to a random one, of `b` from there on.
  Point Crossed(const Point& a, const Point& b, Rng& rng) const;
  // Each knob set to the value `step` before and after its own, as far as there are such.
  std::vector<Point> Steps(const Point& p, int64_t step) const;
  // Each knob set to each of its other values.
  std::vector<Point> Neighbours(const Point& p) const;
  // Knobs that differ; all of them between templates.
  int Distance(const Point& a, const Point& b) const;

 private:
  struct Axis {
    int64_t radix;               // values of the knob
    int64_t stride;              // indices between successive values
    int column;                  // of the knob among all the templates' knobs
    std::vector<double> places;  // of the values, as coordinates
    int64_t Digit(int64_t index) const { return index / stride % radix; }
  };
  struct Part {
    const TemplateDef* def;
    ConfigSpace space;
    int64_t size;
    std::vector<Axis> axes;
    std::vector<int> movable;  // axes with two values or more
  };

  // The point of `space` with the values that `p` has for the knobs of both, the others at random.
  Point Ported(const Point& p, int space, Rng& rng) const;

  Workload workload_;
  Target target_;
  bool draft_ = true;
  std::vector<Part> parts_;
  std::vector<std::string> knob_names_;
};

}  // namespace temper
