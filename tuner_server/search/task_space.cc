#include "tuner_server/search/task_space.h"

#include <algorithm>
#include <limits>
#include <map>

#include "absl/strings/str_cat.h"

namespace temper {

absl::StatusOr<std::shared_ptr<const TaskSpace>> TaskSpace::Make(const TunerContext& context) {
  auto task = std::make_shared<TaskSpace>();
  task->workload_ = context.workload;
  task->target_ = context.target;
  std::map<std::string, int> columns;  // knobs of one name share a column
  for (const TemplateDef* def : TemplatesFor(context.workload)) {
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
      part.axes.push_back({radix, stride});
      part.columns.push_back(columns.try_emplace(knob.name, static_cast<int>(columns.size())).first->second);
    }
    task->parts_.push_back(std::move(part));
  }
  if (task->parts_.empty()) return absl::NotFoundError(absl::StrCat("no template fits ", Text(context.workload)));
  task->knob_columns_ = columns.size();
  return task;
}

bool TaskSpace::Legal(const Point& p) const {
  const ConfigSpace& space = parts_[p.space].space;
  return space.Check(space.At(p.index)).ok();
}

Candidate TaskSpace::At(const Point& p) const {
  return {std::string(parts_[p.space].def->name), parts_[p.space].space.At(p.index)};
}

std::optional<Point> TaskSpace::Find(const Candidate& candidate) const {
  for (int i = 0; i < count(); ++i) {
    if (parts_[i].def->name != candidate.template_name) continue;
    const absl::StatusOr<int64_t> index = parts_[i].space.IndexOf(candidate.config);
    if (index.ok()) return Point{i, *index};
  }
  return std::nullopt;
}

Sample TaskSpace::Row(const Point& p) const {
  const Part& part = parts_[p.space];
  const Config config = part.space.At(p.index);
  const Footprint footprint = part.def->footprint(workload_, config, target_);
  Sample sample{Features(footprint, target_), DraftSeconds(footprint, target_), 0};
  sample.features.push_back(static_cast<float>(p.space));
  const size_t knobs = sample.features.size();
  sample.features.resize(knobs + knob_columns_, std::numeric_limits<float>::quiet_NaN());
  for (size_t i = 0; i < part.columns.size(); ++i) {
    sample.features[knobs + part.columns[i]] = static_cast<float>(config.values()[i].second);
  }
  return sample;
}

Point TaskSpace::Move(const Point& p, Rng& rng) const {
  const Part& part = parts_[p.space];
  if (part.movable.empty()) return p;
  const Axis& axis = part.axes[part.movable[rng.Below(static_cast<int64_t>(part.movable.size()))]];
  const int64_t value = p.index / axis.stride % axis.radix;
  const int64_t other = (value + 1 + rng.Below(axis.radix - 1)) % axis.radix;
  return {p.space, p.index + (other - value) * axis.stride};
}

int TaskSpace::Distance(const Point& a, const Point& b) const {
  const std::vector<Axis>& axes = parts_[a.space].axes;
  if (a.space != b.space) return static_cast<int>(std::max(axes.size(), parts_[b.space].axes.size()));
  int differing = 0;
  for (const Axis& axis : axes) differing += a.index / axis.stride % axis.radix != b.index / axis.stride % axis.radix;
  return differing;
}

}  // namespace temper
