#include "compiler/graph/alternatives.h"

#include <algorithm>

#include "compiler/graph/alias.h"
#include "compiler/graph/extract.h"

namespace temper {
namespace {

absl::StatusOr<std::vector<Workload>> WorkloadsOf(const Graph& g, const Aliases& aliases,
                                                  const std::vector<Group>& groups) {
  std::vector<Workload> workloads;
  for (const Group& group : groups) {
    if (aliases.Have(group)) continue;
    TEMPER_ASSIGN_OR_RETURN(Extracted extracted, Extract(g, group));
    workloads.push_back(std::move(extracted.workload));
  }
  return workloads;
}

// Of all of them together; nullopt: that of one is not known.
absl::StatusOr<std::optional<double>> SecondsOf(const std::vector<Workload>& workloads, const SecondsFn& seconds) {
  double sum = 0;
  for (const Workload& w : workloads) {
    TEMPER_ASSIGN_OR_RETURN(const std::optional<double> one, seconds(w));
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

absl::StatusOr<std::vector<AlternativeKernels>> KernelsOfAlternatives(const Graph& g) {
  const Aliases aliases(g);
  std::vector<AlternativeKernels> result;
  for (const Alternative& a : g.alternatives) {
    std::vector<Group> replaced;
    for (int i : a.replaces) replaced.push_back(g.groups[static_cast<size_t>(i)]);
    AlternativeKernels& kernels = result.emplace_back();
    TEMPER_ASSIGN_OR_RETURN(kernels.replaced, WorkloadsOf(g, aliases, replaced));
    TEMPER_ASSIGN_OR_RETURN(kernels.instead, WorkloadsOf(g, aliases, a.groups));
  }
  return result;
}

absl::StatusOr<std::vector<bool>> FasterAlternatives(const Graph& g, const SecondsFn& seconds) {
  TEMPER_ASSIGN_OR_RETURN(const std::vector<AlternativeKernels> alternatives, KernelsOfAlternatives(g));
  std::vector<bool> faster;
  for (const AlternativeKernels& kernels : alternatives) {
    TEMPER_ASSIGN_OR_RETURN(const std::optional<double> now, SecondsOf(kernels.replaced, seconds));
    std::optional<double> instead;
    if (now.has_value()) {
      TEMPER_ASSIGN_OR_RETURN(instead, SecondsOf(kernels.instead, seconds));
    }
    faster.push_back(instead.has_value() && *instead < *now);
  }
  return faster;
}

void TakeAlternatives(Graph& g, const std::vector<bool>& taken) {
  std::vector<Alternative> chosen;
  for (size_t i = 0; i < g.alternatives.size(); ++i) {
    if (taken[i]) chosen.push_back(std::move(g.alternatives[i]));
  }
  g.groups = WithAlternatives(g.groups, chosen);
  g.alternatives.clear();
}

absl::StatusOr<int> ChooseAlternatives(Graph& g, const SecondsFn& seconds) {
  TEMPER_ASSIGN_OR_RETURN(const std::vector<bool> taken, FasterAlternatives(g, seconds));
  TakeAlternatives(g, taken);
  return static_cast<int>(std::count(taken.begin(), taken.end(), true));
}

}  // namespace temper
