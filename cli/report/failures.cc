#include "cli/report/failures.h"

#include <algorithm>

#include "trial/cause.h"

namespace temper {

void FailureGroups::Add(const Record& r) {
  ++attempts_;
  if (r.ok()) return;
  ++failures_;
  const std::string cause = CauseOf(r.error);
  FailureGroup& group = groups_[{r.outcome, cause}];
  group.outcome = r.outcome;
  group.cause = cause;
  ++group.count;
  ++group.templates[r.template_name];
  group.workloads.insert(r.workload);
  if (r.id >= group.example.id) group.example = r;
}

std::vector<FailureGroup> FailureGroups::Largest() const {
  std::vector<FailureGroup> groups;
  for (const auto& [key, group] : groups_) groups.push_back(group);
  std::stable_sort(groups.begin(), groups.end(),
                   [](const FailureGroup& a, const FailureGroup& b) { return a.count > b.count; });
  return groups;
}

}  // namespace temper
