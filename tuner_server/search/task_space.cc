#include "tuner_server/search/task_space.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "absl/strings/str_cat.h"

namespace temper {
namespace {

constexpr int64_t kMovesATemplate = 8;  // one move in so many changes the template

std::vector<double> PlacesOf(const std::vector<int64_t>& values) {
  const int64_t least = *std::min_element(values.begin(), values.end());
  std::vector<double> places;
  for (const int64_t value : values) {
    const double v = static_cast<double>(value);
    places.push_back(least < 0 ? v : std::log2(least == 0 ? v + 1 : v));
  }
  const auto [low, high] = std::minmax_element(places.begin(), places.end());
  const double from = *low, span = *high > *low ? *high - *low : 1;
  for (double& place : places) place = (place - from) / span;
  return places;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const TaskSpace>> TaskSpace::Make(const TunerContext& context) {
  auto task = std::make_shared<TaskSpace>();
  task->workload_ = context.workload;
  task->target_ = context.target;
  task->draft_ = context.draft;
  std::map<std::string, int> columns;  // knobs of one name share a column
  for (const TemplateDef* def : TemplatesFor(context.workload, context.target)) {
    if (!task->parts_.empty() && def->schema != task->parts_[0].def->schema) {
      return absl::InternalError(
          absl::StrCat("template '", std::string(def->name), "' has footprints of another kind"));
    }
    Part part{def, def->space(context.workload, context.target)};
    part.size = part.space.product_size();
    if (part.size == std::numeric_limits<int64_t>::max()) {
      return absl::ResourceExhaustedError(
          absl::StrCat("the config space of template '", std::string(def->name), "' has no 63-bit size"));
    }
    int64_t stride = part.size;
    for (const Knob& knob : part.space.knobs()) {
      const int64_t radix = static_cast<int64_t>(knob.values.size());
      stride /= radix;
      if (radix > 1) part.movable.push_back(static_cast<int>(part.axes.size()));
      const int column = columns.try_emplace(knob.name, static_cast<int>(columns.size())).first->second;
      part.axes.push_back({radix, stride, column, PlacesOf(knob.values)});
    }
    task->parts_.push_back(std::move(part));
  }
  if (task->parts_.empty()) return NoTemplateFits(context.workload, context.target);
  task->knob_names_.resize(columns.size());
  for (const auto& [name, column] : columns) task->knob_names_[static_cast<size_t>(column)] = name;
  return task;
}

bool TaskSpace::Legal(const Point& p) const {
  const ConfigSpace& space = parts_[p.space].space;
  return space.Allows(space.At(p.index));
}

Proposal TaskSpace::At(const Point& p) const {
  return {std::string(parts_[p.space].def->name), parts_[p.space].space.At(p.index)};
}

std::optional<Point> TaskSpace::Find(const Proposal& candidate) const {
  for (int i = 0; i < count(); ++i) {
    if (parts_[i].def->name != candidate.template_name) continue;
    const absl::StatusOr<int64_t> index = parts_[i].space.IndexOf(candidate.config);
    if (index.ok()) return Point{i, *index};
  }
  return std::nullopt;
}

double TaskSpace::DraftSeconds(const Point& p) const {
  if (!draft_) return 1;
  const Part& part = parts_[p.space];
  return part.def->footprint(workload_, part.space.At(p.index), target_).draft_s;
}

void TaskSpace::AppendRow(const Point& p, Rows& rows) const {
  const Part& part = parts_[p.space];
  const Config config = part.space.At(p.index);
  const Footprint footprint = part.def->footprint(workload_, config, target_);
  const double draft_s = draft_ ? footprint.draft_s : 1;
  const std::span<float> row = rows.Append(draft_s);
  Features(footprint, draft_s, row.first(space_column()));
  row[space_column()] = static_cast<float>(p.space);
  const std::span<float> knobs = row.subspan(first_knob_column());
  std::fill(knobs.begin(), knobs.end(), std::numeric_limits<float>::quiet_NaN());
  for (size_t i = 0; i < part.axes.size(); ++i)
    knobs[part.axes[i].column] = static_cast<float>(config.values()[i].second);
}

void TaskSpace::AppendCoordinates(const Point& p, std::vector<double>& coordinates) const {
  const size_t first = coordinates.size();
  coordinates.resize(first + this->coordinates(), 0.5);
  coordinates[first] = p.space;
  for (const Axis& axis : parts_[p.space].axes)
    coordinates[first + 1 + static_cast<size_t>(axis.column)] = axis.places[static_cast<size_t>(axis.Digit(p.index))];
}

Point TaskSpace::Move(const Point& p, Rng& rng) const {
  if (count() > 1 && rng.Below(kMovesATemplate) == 0)
    return Ported(p, static_cast<int>((p.space + 1 + rng.Below(count() - 1)) % count()), rng);
  const Part& part = parts_[p.space];
  if (part.movable.empty()) return p;
  const Axis& axis = part.axes[part.movable[rng.Below(knobs(p.space))]];
  const int64_t value = axis.Digit(p.index);
  const int64_t other = (value + 1 + rng.Below(axis.radix - 1)) % axis.radix;
  return {p.space, p.index + (other - value) * axis.stride};
}

Point TaskSpace::Redrawn(const Point& p, int knob, Rng& rng) const {
  const Axis& axis = parts_[p.space].axes[parts_[p.space].movable[knob]];
  return {p.space, p.index + (rng.Below(axis.radix) - axis.Digit(p.index)) * axis.stride};
}

Point TaskSpace::Crossed(const Point& a, const Point& b, Rng& rng) const {
  if (knobs(a.space) == 0) return a;
  const int64_t other = a.space == b.space ? b.index : Ported(b, a.space, rng).index;
  // Mixed radix: what lies behind a cut is the index modulo the stride of the knob before it.
  const int64_t stride = parts_[a.space].axes[parts_[a.space].movable[rng.Below(knobs(a.space))]].stride;
  return {a.space, a.index / stride * stride + other % stride};
}

std::vector<Point> TaskSpace::Steps(const Point& p, int64_t step) const {
  std::vector<Point> points;
  const Part& part = parts_[p.space];
  for (int movable : part.movable) {
    const Axis& axis = part.axes[movable];
    const int64_t value = axis.Digit(p.index);
    if (value >= step) points.push_back({p.space, p.index - step * axis.stride});
    if (value + step < axis.radix) points.push_back({p.space, p.index + step * axis.stride});
  }
  return points;
}

std::vector<Point> TaskSpace::Neighbours(const Point& p) const {
  std::vector<Point> points;
  for (const Axis& axis : parts_[p.space].axes) {
    const int64_t own = axis.Digit(p.index);
    for (int64_t value = 0; value < axis.radix; ++value) {
      if (value != own) points.push_back({p.space, p.index + (value - own) * axis.stride});
    }
  }
  return points;
}

Point TaskSpace::Ported(const Point& p, int space, Rng& rng) const {
  const Part &from = parts_[p.space], &to = parts_[space];
  Point ported{space, 0};
  for (size_t i = 0; i < to.axes.size(); ++i) {
    const std::vector<int64_t>& values = to.space.knobs()[i].values;
    int64_t digit = rng.Below(to.axes[i].radix);
    for (size_t k = 0; k < from.axes.size(); ++k) {
      if (from.axes[k].column != to.axes[i].column) continue;
      const int64_t value = from.space.knobs()[k].values[from.axes[k].Digit(p.index)];
      const auto found = std::find(values.begin(), values.end(), value);
      if (found != values.end()) digit = found - values.begin();
    }
    ported.index += digit * to.axes[i].stride;
  }
  return ported;
}

int TaskSpace::Distance(const Point& a, const Point& b) const {
  const std::vector<Axis>& axes = parts_[a.space].axes;
  if (a.space != b.space) return static_cast<int>(std::max(axes.size(), parts_[b.space].axes.size()));
  int differing = 0;
  for (const Axis& axis : axes) differing += axis.Digit(a.index) != axis.Digit(b.index);
  return differing;
}

}  // namespace temper
