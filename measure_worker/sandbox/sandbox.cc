#include "measure_worker/sandbox/sandbox.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <numeric>

#include <spdlog/spdlog.h>

#include "absl/strings/str_cat.h"
#include "measure_worker/sandbox/conversation.h"
#include "measure_worker/sandbox/messages.h"
#include "measure_worker/sandbox/witness.h"

namespace temper::worker {
namespace {

using End = Conversation::End;

constexpr int kPatienceMs = 2000;  // a child whose socket closed, or that leaves, is about to end

const char* PhaseText(Phase phase) {
  switch (phase) {
    case Phase::kPrepare:
      return "preparing the workload";
    case Phase::kBuild:
      return "building";
    case Phase::kVerify:
      return "verifying";
    case Phase::kTime:
      return "timing";
    case Phase::kModelBuild:
      return "building the model";
    case Phase::kModelRun:
      return "running the model";
  }
  return "working";
}

bool IsRun(Phase phase) { return phase == Phase::kVerify || phase == Phase::kTime || phase == Phase::kModelRun; }

Outcome OutcomeOf(Phase phase, bool late) {
  if (IsRun(phase)) return late ? Outcome::kRunTimeout : Outcome::kRunCrashed;
  return late ? Outcome::kBuildTimeout : Outcome::kBuildFailed;
}

// So many rounds of a whole model where fewer were asked for, and so many times as many where they disagree.
constexpr int kLeastRounds = 3, kMostOfARound = 3;
int MostRounds(const ModelWork& work) { return kMostOfARound * std::max(work.rounds, kLeastRounds); }

// How the conversation with a child ended, and the child with it.
struct Ending {
  End end;
  std::string how;        // "killed by SIGSEGV"; what it said if that was nonsense
  std::string complaint;  // its standard error
  bool out_of_memory = false;

  std::string Text(Phase phase, int64_t cap_ms) const {
    if (end == End::kLeft) return FirstLines("it left" + complaint);
    const std::string what = end == End::kTimedOut ? absl::StrCat("still ", PhaseText(phase), " after ", cap_ms, " ms")
                                                   : absl::StrCat(how, " while ", PhaseText(phase));
    return FirstLines(what + complaint);
  }
};

Ending Bury(std::unique_ptr<ChildProcess>& child, Conversation& talk, End end) {
  const bool dying = end == End::kLeft || (end == End::kDied && talk.nonsense().empty());
  Ending ending{end, child->End(dying ? kPatienceMs : 0), talk.Complaint()};
  if (!talk.nonsense().empty()) ending.how = talk.nonsense();
  ending.out_of_memory = child->ran_out_of_memory();
  if (ending.out_of_memory)
    absl::StrAppend(&ending.how, " for taking more than ", child->limits().memory_bytes >> 20, " MiB of memory");
  child.reset();
  return ending;
}

}  // namespace

CancelToken::CancelToken() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
CancelToken::~CancelToken() { close(fd_); }
void CancelToken::Cancel() {
  const uint64_t one = 1;
  if (write(fd_, &one, sizeof one) != sizeof one) spdlog::error("cannot signal a cancellation");
}
bool CancelToken::cancelled() const {
  pollfd event{fd_, POLLIN, 0};
  return poll(&event, 1, 0) == 1;
}

// Candidates of a batch on their way through one or more children.
class Sandbox::BatchRun {
 public:
  BatchRun(Sandbox& sandbox, const BatchWork& work, const CancelToken& token,
           const std::function<void(int, TrialResult)>& on_trial)
      : sandbox_(sandbox), work_(work), token_(token), on_trial_(on_trial), answered_(work.candidates.size()) {
    std::vector<int> all(work.candidates.size());
    std::iota(all.begin(), all.end(), 0);
    groups_.push_back(std::move(all));
  }

  absl::Status Run() {
    while (!groups_.empty()) {
      const std::vector<int> group = Unanswered(groups_.front());
      groups_.pop_front();
      if (group.empty()) continue;
      if (token_.cancelled()) return absl::CancelledError("cancelled");
      TEMPER_RETURN_IF_ERROR(sandbox_.EnsureChild());
      TEMPER_RETURN_IF_ERROR(RunGroup(group));
    }
    return absl::OkStatus();
  }

 private:
  int64_t CapMs(Phase phase) const {
    if (phase == Phase::kPrepare) return sandbox_.limits_.prepare_ms;
    return phase == Phase::kBuild ? work_.plan.build_timeout_ms : work_.plan.run_timeout_ms;
  }

  absl::Status RunGroup(const std::vector<int>& group) {
    BatchOrder order{work_, group.size() == 1};
    order.work.candidates.clear();
    for (int i : group) order.work.candidates.push_back(work_.candidates[i]);
    const Expected expected{MessageKind::kBatch, static_cast<int>(group.size()), std::max(1, work_.plan.repeats),
                            !sandbox_.limits_.simulated};
    Conversation talk(*sandbox_.child_, token_, expected, Phase::kPrepare,
                      {[this](Phase phase) { return CapMs(phase); },
                       [&](int position, TrialResult result) { Answer(group[position], std::move(result)); }});
    const End end = talk.Hold(Encode(order));
    if (end == End::kDone) {
      for (int i : Unanswered(group)) Answer(i, {Outcome::kInfrastructure, "the child gave no result"});
      return absl::OkStatus();
    }
    const Ending ending = Bury(sandbox_.child_, talk, end);
    if (end == End::kCancelled) return absl::CancelledError("cancelled");
    if (end == End::kLeft) {
      groups_.push_front(group);
      if (!Unanswered(group).empty()) CountFailure(ending);
    } else {
      Blame(group, talk, ending);
    }
    return absl::OkStatus();
  }

  // Who is to blame: whoever ran out of time, or ran, or was alone in being built. The others go on.
  void Blame(const std::vector<int>& group, const Conversation& talk, const Ending& ending) {
    std::vector<int> building;
    int blamed = Conversation::kWhole;
    for (const auto& [position, flight] : talk.flights()) {
      if (position == Conversation::kWhole) continue;
      if (IsRun(flight.phase)) blamed = position;
      if (flight.phase == Phase::kBuild) building.push_back(position);
    }
    if (ending.end == End::kTimedOut)
      blamed = talk.culprit();
    else if (blamed < 0 && building.size() == 1)
      blamed = building[0];

    groups_.push_front(group);
    if (blamed >= 0) {
      const Phase phase = talk.flights().at(blamed).phase;
      Answer(group[blamed], {OutcomeOf(phase, ending.end == End::kTimedOut), ending.Text(phase, CapMs(phase))});
    } else if (building.size() > 1) {
      for (int position : building) groups_.push_front({group[position]});  // each alone, to find the one
    } else {
      CountFailure(ending);
    }
  }

  // Through no candidate's fault.
  void CountFailure(const Ending& ending) {
    const std::string error = ending.Text(Phase::kPrepare, CapMs(Phase::kPrepare));
    spdlog::warn("the measuring child failed: {}", error);
    if (++failures_ < sandbox_.limits_.max_infrastructure_failures) return;
    AnswerAll({ending.out_of_memory ? Outcome::kUnfit : Outcome::kInfrastructure, error});
  }

  void AnswerAll(const TrialResult& result) {
    groups_.clear();
    for (size_t i = 0; i < answered_.size(); ++i) Answer(static_cast<int>(i), result);
  }

  void Answer(int index, TrialResult result) {
    if (answered_[index]) return;
    answered_[index] = true;
    on_trial_(index, std::move(result));
  }

  std::vector<int> Unanswered(const std::vector<int>& group) const {
    std::vector<int> left;
    std::copy_if(group.begin(), group.end(), std::back_inserter(left), [&](int i) { return !answered_[i]; });
    return left;
  }

  Sandbox& sandbox_;
  const BatchWork& work_;
  const CancelToken& token_;
  const std::function<void(int, TrialResult)>& on_trial_;
  std::vector<bool> answered_;
  std::deque<std::vector<int>> groups_;  // sent together, in this order
  int failures_ = 0;
};

Sandbox::Sandbox(std::vector<std::string> command, Confinement confinement, SandboxLimits limits)
    : command_(std::move(command)), confinement_(std::move(confinement)), limits_(limits) {}
Sandbox::~Sandbox() = default;

absl::Status Sandbox::EnsureChild() {
  if (child_ && !child_->HasScratch()) {
    spdlog::warn("somebody removed the measuring child's temporary folder: it is replaced");
    child_.reset();
  }
  if (child_) return absl::OkStatus();
  TEMPER_ASSIGN_OR_RETURN(child_, ChildProcess::Start(command_, confinement_, limits_.child));
  ++children_started_;
  return absl::OkStatus();
}

absl::Status Sandbox::Run(const BatchWork& work, const CancelToken& token,
                          const std::function<void(int, TrialResult)>& on_trial) {
  return BatchRun(*this, work, token, on_trial).Run();
}

// One order about the whole model. Empty: it was carried out; else what became of the child.
absl::StatusOr<std::optional<TrialResult>> Sandbox::RunModel(const Frame& order, const Expected& expected,
                                                             int64_t budget_ms, const CancelToken& token,
                                                             const OnTrial& on_trial, const OnModel& on_model) {
  TEMPER_RETURN_IF_ERROR(EnsureChild());
  const auto cap_ms = [&](Phase phase) {
    return phase == Phase::kModelRun ? limits_.model_run_ms + budget_ms : limits_.model_build_ms;
  };
  Conversation talk(*child_, token, expected, Phase::kModelBuild, {cap_ms, on_trial, on_model});
  const End end = talk.Hold(order);
  if (end == End::kDone) return std::nullopt;
  const Ending ending = Bury(child_, talk, end);
  if (end == End::kCancelled) return absl::CancelledError("cancelled");
  if (end == End::kLeft) return std::nullopt;
  const Phase phase = talk.flights().begin()->second.phase;
  const bool unfit = ending.out_of_memory && phase == Phase::kModelBuild;
  return TrialResult{unfit ? Outcome::kUnfit : OutcomeOf(phase, end == End::kTimedOut),
                     ending.Text(phase, cap_ms(phase))};
}

absl::StatusOr<ModelResult> Sandbox::Run(const ModelWork& work, const CancelToken& token) {
  ModelResult answer{Outcome::kInfrastructure, "the child gave no result"};
  const OnModel keep = [&](ModelResult result) { answer = std::move(result); };
  const Expected expected{MessageKind::kModel, 0, MostRounds(work), !limits_.simulated};
  TEMPER_ASSIGN_OR_RETURN(const auto ending, RunModel(Encode(work), expected, work.budget_ms, token, {}, keep));
  if (ending.has_value()) return ModelResult{ending->outcome, ending->error};
  return answer;
}

absl::Status Sandbox::Run(const FinalsWork& work, const CancelToken& token, const OnTrial& on_trial) {
  const int candidates = static_cast<int>(work.Candidates().size());
  std::vector<bool> answered(static_cast<size_t>(candidates));
  const OnTrial answer = [&](int index, TrialResult result) {
    if (answered[index]) return;
    answered[index] = true;
    on_trial(index, std::move(result));
  };
  const Expected expected{MessageKind::kFinals, candidates, MostRounds(work.model), !limits_.simulated};
  TEMPER_ASSIGN_OR_RETURN(const auto ending, RunModel(Encode(work), expected, work.model.budget_ms, token, answer, {}));
  // Whose fault it was is not known: they ran together.
  TrialResult why{Outcome::kInfrastructure, "the child gave no result"};
  if (ending.has_value()) why.error = ending->error;
  if (ending.has_value() && ending->outcome == Outcome::kUnfit) why.outcome = Outcome::kUnfit;
  for (int i = 0; i < candidates; ++i) answer(i, why);
  return absl::OkStatus();
}

}  // namespace temper::worker
