#include "tests/search/contract.h"

#include <algorithm>
#include <functional>
#include <limits>

#include "tests/search/toy.h"

namespace temper {
namespace {

constexpr int kBatch = 16;
using Costs = std::function<Observation(const TunerContext&, const Proposal&)>;

Observation Measured(const TunerContext& context, const Proposal& c) { return {c, true, ToyCost(context, c)}; }
Observation Failed(const TunerContext&, const Proposal& c) { return {c, false, 0}; }
// Some fail, as in life.
Observation Mixed(const TunerContext& context, const Proposal& c) {
  return Text(c.config).size() % 5 == 0 ? Failed(context, c) : Measured(context, c);
}

std::string Key(const Proposal& c) { return c.template_name + " " + Text(c.config); }

std::vector<Proposal> AllLegal(const TunerContext& context) {
  std::vector<Proposal> all;
  for (const TemplateDef* def : TemplatesFor(context.workload, context.target)) {
    for (const Config& config : def->space(context.workload, context.target).Enumerate(1 << 17))
      all.push_back({std::string(def->name), config});
  }
  return all;
}

bool Legal(const TunerContext& context, const Proposal& c) {
  for (const TemplateDef* def : TemplatesFor(context.workload, context.target)) {
    if (def->name == c.template_name) return def->space(context.workload, context.target).Check(c.config).ok();
  }
  return false;
}

struct Run {
  std::vector<std::string> proposals;
  std::set<Breach> breaches;
  bool ended = false;
};

struct Plan {
  TunerContext context;
  int trials = 200;  // at most
  Costs costs = Measured;
  std::vector<Proposal> known;  // observed before the first proposal
  bool backwards = false;       // results of a batch in the opposite order
};

Run Search(const TunerDef& def, const Plan& plan) {
  Run run;
  auto made = def.make(plan.context);
  if (!made.ok()) {
    run.breaches.insert(Breach::kError);
    return run;
  }
  Tuner& tuner = **made;
  std::set<std::string> observed, proposed;
  std::vector<Observation> results;
  for (const Proposal& c : plan.known) {
    observed.insert(Key(c));
    results.push_back(plan.costs(plan.context, c));
  }
  while (true) {
    if (plan.backwards) std::reverse(results.begin(), results.end());
    if (!results.empty() && !tuner.Observe(results).ok()) run.breaches.insert(Breach::kError);
    results.clear();
    if (static_cast<int>(run.proposals.size()) >= plan.trials) return run;
    const auto batch = tuner.Propose(kBatch);
    if (!batch.ok()) {
      run.breaches.insert(Breach::kError);
      return run;
    }
    if (batch->size() > kBatch) run.breaches.insert(Breach::kTooMany);
    if (batch->empty()) {
      run.ended = true;
      return run;
    }
    for (const Proposal& c : *batch) {
      run.proposals.push_back(Key(c));
      if (!Legal(plan.context, c)) {
        run.breaches.insert(Breach::kIllegal);
        continue;
      }
      if (!proposed.insert(Key(c)).second) run.breaches.insert(Breach::kRepeats);
      if (observed.contains(Key(c))) run.breaches.insert(Breach::kProposesObserved);
      results.push_back(plan.costs(plan.context, c));
    }
  }
}

void CheckExhaustion(const TunerDef& def, const std::string& spaces, std::set<Breach>& found) {
  Plan plan{ToyContext(spaces, 3)};
  std::vector<Proposal> all = AllLegal(plan.context);
  plan.trials = static_cast<int>(2 * all.size() + kBatch);
  const Run whole = Search(def, plan);
  found.insert(whole.breaches.begin(), whole.breaches.end());
  if (whole.proposals.size() < all.size()) found.insert(Breach::kEndsEarly);

  for (size_t i = 0; i < all.size(); i += 2) plan.known.push_back(all[i]);
  const Run rest = Search(def, plan);
  found.insert(rest.breaches.begin(), rest.breaches.end());
  if (rest.proposals.size() < all.size() - plan.known.size()) found.insert(Breach::kEndsEarly);

  plan.known.clear();
  plan.costs = Failed;
  const Run failing = Search(def, plan);
  if (failing.breaches.contains(Breach::kError) || failing.proposals.size() < whole.proposals.size())
    found.insert(Breach::kStopsOnFailures);
}

void CheckLongSearch(const TunerDef& def, const std::string& spaces, std::set<Breach>& found) {
  Plan plan{ToyContext(spaces, 5)};
  plan.costs = Mixed;
  const Run first = Search(def, plan), second = Search(def, plan);
  found.insert(first.breaches.begin(), first.breaches.end());
  if (first.ended) found.insert(Breach::kEndsEarly);
  if (first.proposals != second.proposals) {
    found.insert(Breach::kNotReproducible);
  } else {
    plan.backwards = true;
    if (Search(def, plan).proposals != first.proposals) found.insert(Breach::kOrderMatters);
  }
  plan.backwards = false;
  plan.costs = Failed;
  const Run failing = Search(def, plan);
  if (failing.breaches.contains(Breach::kError) || failing.ended) found.insert(Breach::kStopsOnFailures);
}

void CheckObservations(const TunerDef& def, std::set<Breach>& found) {
  const TunerContext context = ToyContext("small");
  auto tuner = def.make(context);
  if (!tuner.ok()) return;
  const Observation foreign[] = {
      {{"conv2d.unheard_of", Config({{"a", 1}})}, true, 1e-3},
      {{"toy.small", Config({{"a", 999}, {"b", 1}})}, true, 1e-3},
      {{"toy.small", Config({{"z", 1}})}, false, 0},
      {{"toy.small", Config({{"a", 1}, {"b", 2}})}, true, 1e-3}};  // refused by the constraint
  if (!(*tuner)->Observe(foreign).ok()) found.insert(Breach::kError);
  for (double cost : {0.0, -1.0, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    const Observation nonsense{{"toy.small", Config({{"a", 1}, {"b", 1}})}, true, cost};
    if ((*tuner)->Observe({&nonsense, 1}).ok()) found.insert(Breach::kTakesNonsense);
  }
  const auto none = (*tuner)->Propose(0);
  if (!none.ok())
    found.insert(Breach::kError);
  else if (!none->empty())
    found.insert(Breach::kTooMany);
}

}  // namespace

std::string Name(Breach breach) {
  static constexpr const char* kNames[] = {
      "error",      "too many",         "illegal",       "repeats",           "proposes observed",
      "ends early", "not reproducible", "order matters", "stops on failures", "takes nonsense"};
  return kNames[static_cast<int>(breach)];
}

std::set<std::string> Breaches(const TunerDef& def) {
  std::set<Breach> found;
  for (const char* spaces : {"small", "point", "knobless", "needle", "void"}) CheckExhaustion(def, spaces, found);
  for (const char* spaces : {"gemm", "two"}) CheckLongSearch(def, spaces, found);
  CheckObservations(def, found);
  std::set<std::string> names;
  for (Breach breach : found) names.insert(Name(breach));
  return names;
}

}  // namespace temper
