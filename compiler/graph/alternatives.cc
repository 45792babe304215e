#include "compiler/graph/alternatives.h"

#include <algorithm>

#include "compiler/graph/alias.h"
#include "compiler/graph/extract.h"

namespace temper {
namespace {

// Of all these groups together; nullopt: that of one is not known.
absl::StatusOr<std::optional<double>> SecondsOf(const Graph& g, const Aliases& aliases,
                                                const std::vector<Group>& groups, const SecondsFn& seconds) {
  double sum = 0;
  for (const Group& group : groups) {
    if (aliases.Have(group)) continue;
    TEMPER_ASSIGN_OR_RETURN(const Extracted extracted, Extract(g, group));
    TEMPER_ASSIGN_OR_RETURN(const std::optional<double> one, seconds(extracted.workload));
    if (!one.has_value()) return std::nullopt;
    sum += *one;
  }
  return sum;
}

}  // namespace

std::vector<Group> WithAlternatives(const std::vector<Group>& groups, std::span<const Alternative> alternatives) {
  std::vector<const Alternative*> of(groups.size(), nullptr);
  for (const Alternative& a : alternatives) {
    for (int i : a.replaces) of[static_cast<size_t>(i)] = &a;
  }
  std::vector<Group> result;
  for (size_t i = 0; i < groups.size(); ++i) {
    if (of[i] == nullptr) {
      result.push_back(groups[i]);
    } else if (of[i]->replaces.back() == static_cast<int>(i)) {
      result.insert(result.end(), of[i]->groups.begin(), of[i]->groups.end());
    }
  }
  return result;
}

absl::StatusOr<int> ChooseAlternatives(Graph& g, const SecondsFn& seconds) {
  const Aliases aliases(g);
  std::vector<Alternative> chosen;
  for (Alternative& a : g.alternatives) {
    std::vector<Group> replaced;
    for (int i : a.replaces) replaced.push_back(g.groups[static_cast<size_t>(i)]);
    TEMPER_ASSIGN_OR_RETURN(const std::optional<double> now, SecondsOf(g, aliases, replaced, seconds));
    if (!now.has_value()) continue;
    TEMPER_ASSIGN_OR_RETURN(const std::optional<double> instead, SecondsOf(g, aliases, a.groups, seconds));
    if (instead.has_value() && *instead < *now) chosen.push_back(std::move(a));
  }
  g.groups = WithAlternatives(g.groups, chosen);
  g.alternatives.clear();
  return static_cast<int>(chosen.size());
}

}  // namespace temper
