#include "tuner_server/tuning/task_search.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/hash.h"
#include "base/statistics.h"
#include "compiler/ops/legal_configs.h"
#include "storage/best.h"

namespace temper {
namespace {

// A tuner that proposes nothing new so many times in a row is taken to be at its end.
constexpr int kMostEmptyProposals = 4;
constexpr size_t kMostKnown = 64;
constexpr size_t kMostTriedFirst = 8;
// Slower than the best by more than this, drift taken off, it is not measured again.
constexpr double kWorthAgain = 1.15;

// Times of the search are not those in the model: who is behind the best, or the default, by no more may be ahead
// there.
constexpr double kMayBeBest = 1.15;

Candidate NewCandidate(std::string_view template_name, int version, std::string config) {
  return {.template_name = std::string(template_name), .template_version = version, .config = std::move(config)};
}

// Knobs in which two configs differ; all, if they are of different templates.
int Differences(const Candidate& a, const Candidate& b) {
  if (a.template_name != b.template_name) return std::numeric_limits<int>::max();
  const std::vector<std::string> left = absl::StrSplit(a.config, ','), right = absl::StrSplit(b.config, ',');
  int differences = 0;
  for (size_t i = 0; i < std::min(left.size(), right.size()); ++i) differences += left[i] != right[i];
  return differences;
}

}  // namespace

double UsualSeconds(const TrialResult& result) {
  if (!IsMeasured(result.outcome) || result.costs_s.empty()) return 0;
  return Median(result.costs_s) / std::max(1.0, result.drift);
}

TaskSearch::TaskSearch(Task task, Target target, uint64_t seed)
    : task_(std::move(task)), target_(std::move(target)), anchor_(AnchorText(task_.workload)) {
  view_.workload = Text(task_.workload);
  view_.weight = task_.count;
  view_.alternative = task_.alternative;
  view_.flops = Flops(task_.workload);
  seed_ = seed ^ StableHash(view_.workload);
}

std::string TaskSearch::KeyOf(const Candidate& item) const {
  return absl::StrCat(item.template_name, "\n", item.config);
}

// Among some thousands of configs two hashes are alike with a chance of one in 10^12; then one goes untried.
bool TaskSearch::MarkTried(const Candidate& item) { return tried_.insert(StableHash(KeyOf(item))).second; }

bool TaskSearch::TakeOver(const Candidate& item) {
  const auto same = [&](const WorkItem& waiting) { return KeyOf(waiting) == KeyOf(item); };
  return std::erase_if(again_, same) > 0 || MarkTried(item);
}

// Jobs may have very many trials, and few of them can matter any more.
void TaskSearch::DropHopeless() {
  std::vector<std::pair<double, std::string>> others;
  const std::string default_key = KeyOf(default_);
  for (const auto& [key, entry] : ok_) {
    if (key != default_key && entry.final_s == 0) others.emplace_back(entry.search_s, key);
  }
  if (others.size() < 2 * kMostKnown) return;
  std::nth_element(others.begin(), others.begin() + kMostKnown, others.end());
  for (size_t i = kMostKnown; i < others.size(); ++i) ok_.erase(others[i].second);
}

absl::Status TaskSearch::FindDefault() {
  TEMPER_ASSIGN_OR_RETURN(const Choice choice, DefaultChoice(task_.workload, target_));
  default_ = NewCandidate(choice.def->name, choice.def->version, Text(choice.config));
  draft_s_ = choice.def->footprint(task_.workload, choice.config, target_).draft_s;
  return absl::OkStatus();
}

absl::Status TaskSearch::Prepare(const TunerFactory& make_tuner, const KnownRecords& known, int64_t job) {
  TEMPER_RETURN_IF_ERROR(FindDefault());
  TEMPER_ASSIGN_OR_RETURN(tuner_, make_tuner(TunerContext{task_.workload, target_, seed_}));
  std::vector<std::pair<double, Candidate>> put;
  known([&](const Record& record) {
    if (!IsOfThisBuild(record.template_name, record.template_version)) return;
    if (record.outcome == Outcome::kInfrastructure) return;
    if (!IsPut(record)) {
      Know(record, job);
    } else if (record.ok()) {
      put.emplace_back(MedianCost(record), NewCandidate(record.template_name, record.template_version, record.config));
    }
  });
  TryFirst(std::move(put));
  // Where what the search measured is gone, finals tell who is worth measuring again.
  for (const auto& [key, entry] : ok_) {
    if (entry.search_s == 0 && !IsDefault(entry.item) && MarkTried(entry.item)) again_.push_back({entry.item});
  }
  since_better_ = 0;
  failures_in_row_ = 0;
  Choose();
  return absl::OkStatus();
}

void TaskSearch::Know(const Record& record, int64_t job) {
  const Candidate item = NewCandidate(record.template_name, record.template_version, record.config);
  const uint64_t key = StableHash(KeyOf(item));
  if (record.purpose == "canary") {
    view_.trials += record.job == job && IsMeasured(record.outcome) && counted_.insert(key).second ? 1 : 0;
    return;
  }
  if (!IsConfirmed(record) || !record.ok()) MarkTried(item);
  ForgetFinalsBefore(record);
  Learn(item, record.outcome, record.costs_s, IsConfirmed(record));
  if (!IsConfirmed(record)) Tell(item, record.outcome, record.ok() ? MedianCost(record) : 0);
  if (record.job == job && record.purpose == "search") {
    if (!IsMeasured(record.outcome))
      ++view_.failures[record.outcome];
    else if (counted_.erase(key) == 0)
      ++view_.trials;
    seen_ = true;
  }
  if (record.purpose != "search" || !IsMeasured(record.outcome) || record.costs_s.empty()) return;
  course_.Add(record.costs_s.size() >= kProvisionalSamples ? Median(record.costs_s) : 0);
}

// Times of two jobs' finals do not compare, and the later ones had the winner of the earlier ones among them.
void TaskSearch::ForgetFinalsBefore(const Record& record) {
  if (!DecidesAnew(record) || record.job == final_job_) return;
  final_job_ = record.job;
  for (auto& [key, entry] : ok_) entry.final_s = 0;
  std::erase_if(ok_, [](const auto& entry) { return entry.second.search_s == 0; });
}

void TaskSearch::TryFirst(std::vector<std::pair<double, Candidate>> put) {
  std::ranges::stable_sort(put, {}, &std::pair<double, Candidate>::first);
  LegalConfigs legal(task_.workload, target_);
  std::vector<WorkItem> first;
  for (auto& [median_s, candidate] : put) {
    if (first.size() == kMostTriedFirst) break;
    WorkItem item{std::move(candidate)};
    const bool fits = legal.Read(item.template_name, item.config).ok();
    if (fits && !IsDefault(item) && MarkTried(item)) first.push_back(std::move(item));
  }
  again_.assign(first.rbegin(), first.rend());
}

absl::Status TaskSearch::PrepareToRevalidate(const KnownRecords& known) {
  TEMPER_RETURN_IF_ERROR(FindDefault());
  LegalConfigs legal(task_.workload, target_);
  known([&](const Record& record) {
    if (!legal.Read(record.template_name, record.config).ok()) return;
    const int version = FindTemplate(record.template_name)->version;
    const Candidate item = NewCandidate(record.template_name, version, record.config);
    ForgetFinalsBefore(record);
    Learn(item, record.outcome, record.costs_s, IsConfirmed(record));
  });
  Choose();
  End("revalidated");
  return absl::OkStatus();
}

absl::StatusOr<std::vector<WorkItem>> TaskSearch::Propose(int n) {
  TEMPER_RETURN_IF_ERROR(tuner_->Observe(untold_));
  untold_.clear();
  std::vector<WorkItem> items;
  if (MarkTried(default_)) items.push_back({default_});
  while (!again_.empty() && static_cast<int>(items.size()) < n) {
    items.push_back(std::move(again_.back()));
    again_.pop_back();
  }
  for (int empty = 0; static_cast<int>(items.size()) < n && empty < kMostEmptyProposals;) {
    TEMPER_ASSIGN_OR_RETURN(const std::vector<Proposal> proposals, tuner_->Propose(n - static_cast<int>(items.size())));
    if (proposals.empty()) break;
    const size_t before = items.size();
    for (const Proposal& proposal : proposals) {
      const TemplateDef* def = FindTemplate(proposal.template_name);
      if (def == nullptr) return absl::InternalError(absl::StrCat("no template '", proposal.template_name, "'"));
      WorkItem item{NewCandidate(proposal.template_name, def->version, Text(proposal.config))};
      if (MarkTried(item)) items.push_back(std::move(item));
    }
    empty = items.size() == before ? empty + 1 : 0;
  }
  std::ranges::stable_partition(items, [&](const WorkItem& item) { return IsDefault(item); });
  return items;
}

void TaskSearch::Tell(const Candidate& item, Outcome outcome, double seconds) {
  if (outcome == Outcome::kInfrastructure) return;
  absl::StatusOr<Config> config = ParseConfig(item.config);
  if (config.ok()) untold_.push_back({Proposal{item.template_name, *std::move(config)}, seconds > 0, seconds});
}

// What a trial or a record says of who is best, wherever it came from.
void TaskSearch::Learn(const Candidate& item, Outcome outcome, const std::vector<double>& costs, bool is_final) {
  const bool measured = IsMeasured(outcome) && !costs.empty();
  const double median = measured ? Median(costs) : 0;
  if (!measured && outcome != Outcome::kInfrastructure) {  // what ran before is not to be relied on
    ok_.erase(KeyOf(item));
    few_.erase(KeyOf(item));
  }
  // A race's loser has no time to be compared by, and too few samples make no contender.
  const bool contender = outcome == Outcome::kOk && measured && (is_final || costs.size() >= kProvisionalSamples);
  if (outcome == Outcome::kOk && measured && !contender && ok_.empty()) few_[KeyOf(item)] = {item, median};
  if (!contender) return;
  Known& entry = ok_[KeyOf(item)];
  entry.item = item;
  double& time = is_final ? entry.final_s : entry.search_s;
  if (time == 0 || median < time || is_final) time = median;
  DropHopeless();
}

bool TaskSearch::Observe(const Candidate& item, const TrialResult& result) {
  const double before = view_.best_s;
  Learn(item, result.outcome, result.costs_s, false);
  Tell(item, result.outcome, UsualSeconds(result));
  if (!IsMeasured(result.outcome)) {
    ++view_.failures[result.outcome];
    ++failures_in_row_;
    return false;
  }
  const bool counts = counted_.erase(StableHash(KeyOf(item))) == 0;
  view_.trials += counts ? 1 : 0;
  ++since_better_;
  failures_in_row_ = 0;
  Choose();
  course_.Add(view_.best_s);
  if (view_.best_s > 0 && (before == 0 || view_.best_s < before)) since_better_ = 0;
  return counts;
}

bool TaskSearch::WorthAgain(const TrialResult& result) const {
  return incumbent_s_ == 0 || result.costs_s.front() < kWorthAgain * result.drift * incumbent_s_;
}

void TaskSearch::MeasureAgain(WorkItem item) {
  item.again = true;
  again_.push_back(std::move(item));
}

// The best by what is known now, by times of one kind: those of this job's finals, else the search's, else those of
// earlier finals.
void TaskSearch::Choose() {
  const auto has = [&](auto time) {
    return std::ranges::any_of(ok_, [&](const auto& e) { return time(e.second) > 0; });
  };
  const auto here = [](const Known& k) { return k.final_here ? k.final_s : 0; };
  const auto searched = [](const Known& k) { return k.search_s; };
  const auto earlier = [](const Known& k) { return k.final_s; };
  const bool decided = has(here), is_searched = has(searched);
  const Known* best = nullptr;
  double best_s = 0;
  const std::string default_key = KeyOf(default_);
  view_.default_s = 0;
  for (const auto& [key, entry] : ok_) {
    const double seconds = decided ? here(entry) : is_searched ? searched(entry) : earlier(entry);
    if (seconds == 0) continue;
    const bool is_default = key == default_key;
    if (is_default) view_.default_s = seconds;
    if (best != nullptr && (seconds > best_s || (seconds == best_s && !is_default))) continue;
    best = &entry;
    best_s = seconds;
  }
  incumbent_s_ = is_searched && !decided ? best_s : 0;
  SetBest(best != nullptr ? *best : Known(), best_s);
}

void TaskSearch::SetBest(const Known& best, double seconds) {
  view_.best_s = seconds;
  view_.template_name = best.item.template_name;
  view_.config = best.item.config;
}

void TaskSearch::Settle() {
  const auto standard = ok_.find(KeyOf(default_));
  const auto best = ok_.find(KeyOf(NewCandidate(view_.template_name, 0, view_.config)));
  if (standard == ok_.end() || best == ok_.end() || best == standard || best->second.final_here) return;
  if (standard->second.final_s == 0) {
    const double seconds = standard->second.search_s;
    if (seconds < kProvisionalMargin * view_.best_s) SetBest(standard->second, seconds);
    return;
  }
  // As the store has it: what won the last final goes before anything else.
  const Known* winner = LastWinner();
  if (winner == nullptr) winner = &standard->second;
  view_.default_s = standard->second.final_s;
  SetBest(*winner, winner->final_s);
}

// Who won the last finals has to win again. Null: the default won, or there were none.
const TaskSearch::Known* TaskSearch::LastWinner() const {
  const Known* winner = nullptr;
  for (const auto& [key, entry] : ok_) {
    if (entry.final_s > 0 && (winner == nullptr || entry.final_s < winner->final_s)) winner = &entry;
  }
  return winner == nullptr || IsDefault(winner->item) ? nullptr : winner;
}

// All but the default: who won the last finals, then by what the search measured, then by finals, whose times are of
// another kind.
std::vector<const TaskSearch::Known*> TaskSearch::RankedBesideTheDefault() const {
  const std::string default_key = KeyOf(default_);
  std::vector<const Known*> ranked;
  for (const auto& [key, entry] : ok_) {
    if (key != default_key) ranked.push_back(&entry);
  }
  std::ranges::sort(ranked, {}, [winner = LastWinner()](const Known* k) {
    return std::tuple(k != winner, k->search_s == 0, k->search_time());
  });
  return ranked;
}

// A machine that is slow throughout leaves time for a sample or two of each: finals have enough.
std::vector<Candidate> TaskSearch::FinalistsOfFew(int contenders) const {
  std::vector<const Known*> ranked;
  for (const auto& [key, entry] : few_) {
    if (key != KeyOf(default_)) ranked.push_back(&entry);
  }
  std::ranges::sort(ranked, {}, &Known::search_s);
  std::vector<Candidate> finalists;
  if (!few_.empty()) finalists.push_back(default_);
  for (const Known* k : ranked) {
    if (std::ssize(finalists) <= contenders) finalists.push_back(k->item);
  }
  return finalists;
}

std::vector<Candidate> TaskSearch::Finalists(int contenders) const {
  if (ok_.empty()) return FinalistsOfFew(contenders);
  const std::vector<const Known*> ranked = RankedBesideTheDefault();
  if (LastWinner() != nullptr) contenders = std::max(contenders, 1);
  double best_s = std::numeric_limits<double>::infinity();
  for (const auto& [key, entry] : ok_) {
    if (entry.search_s > 0) best_s = std::min(best_s, entry.search_s);
  }
  std::vector<Candidate> finalists{default_};
  std::vector<Candidate> alike;
  for (const Known* k : ranked) {
    if (k->search_s > kMayBeBest * best_s && k->final_s == 0) continue;
    // What differs little behaves alike in the model too: another kind of config tells more.
    const bool is_alike = std::any_of(finalists.begin() + 1, finalists.end(),
                                      [&](const Candidate& other) { return Differences(k->item, other) < 2; });
    (is_alike ? alike : finalists).push_back(k->item);
  }
  finalists.insert(finalists.end(), alike.begin(), alike.end());
  finalists.resize(std::min(finalists.size(), 1 + static_cast<size_t>(contenders)));
  return finalists;
}

std::vector<Candidate> TaskSearch::ToRevalidate(int n) const {
  if (ok_.empty()) return {};
  std::vector<Candidate> items{default_};
  for (const Known* k : RankedBesideTheDefault()) {
    if (static_cast<int>(items.size()) <= n) items.push_back(k->item);
  }
  return items;
}

void TaskSearch::ObserveFinal(const Candidate& item, const TrialResult& result) {
  if (result.outcome != Outcome::kOk || result.costs_s.empty()) {
    // A finalist that fails now is none: it ran before, so it is not to be relied on.
    if (result.outcome != Outcome::kInfrastructure) {
      ok_.erase(KeyOf(item));
      ++view_.failures[result.outcome];
      Choose();
    }
    return;
  }
  Learn(item, result.outcome, result.costs_s, true);
  ok_[KeyOf(item)].final_here = true;
  Choose();
}

void TaskSearch::End(std::string why) {
  view_.done = true;
  view_.why_done = std::move(why);
}

std::optional<KernelPick> TaskSearch::Pick() const {
  if (view_.best_s == 0) return std::nullopt;
  return KernelPick{view_.workload, view_.template_name, view_.config, view_.best_s};
}

bool TaskSearch::KeepsDefault() const {
  return view_.best_s == 0 ||
         (!view_.alternative && view_.template_name == default_.template_name && view_.config == default_.config);
}

double TaskSearch::Gain() const {
  if (view_.default_s == 0 || view_.best_s == 0) return 0;
  return view_.weight * (view_.default_s - view_.best_s);
}

double TaskSearch::EstimatedSeconds() const { return view_.weight * (view_.best_s > 0 ? view_.best_s : draft_s_); }

}  // namespace temper
