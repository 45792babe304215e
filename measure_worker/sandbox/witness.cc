#include "measure_worker/sandbox/witness.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "base/utf8.h"

namespace temper::worker {
namespace {

// The supervisor reads messages a little after they were sent, for the child keeps its cores busy.
constexpr double kReadLateS = 0.1;
constexpr double kMostDrift = 1e6;  // of a machine that slept; more says nothing else
constexpr int kMostRuns = 3;        // what the device was slow around is measured again (session.cc)

absl::Status Nonsense(absl::string_view what) { return absl::InvalidArgumentError(what); }

// Which order a phase belongs to.
bool IsOfModel(Phase phase) { return phase == Phase::kModelBuild || phase == Phase::kModelRun; }
bool IsOfAll(Phase phase) { return phase == Phase::kPrepare || IsOfModel(phase); }

// What it is not the child's to say: it is told of it by none, or by its supervisor, or by the server.
bool IsForOthers(Outcome outcome) {
  return outcome == Outcome::kBuildTimeout || outcome == Outcome::kRunTimeout || outcome == Outcome::kQuarantined;
}

}  // namespace

std::string FirstLines(std::string_view text) {
  constexpr char kDelete = 0x7f;
  std::string lines = ToUtf8(CutUtf8(text, kMaxErrorBytes));
  for (char& c : lines) {
    const bool moves_cursor = static_cast<unsigned char>(c) < ' ' || c == kDelete;
    if (moves_cursor && c != '\n' && c != '\t') c = '?';
  }
  return lines;
}

absl::Status Witness::CheckIndex(int index, int lowest) const {
  if (index >= lowest && index < expected_.candidates) return absl::OkStatus();
  return Nonsense(absl::StrCat("a message about candidate ", index, ", which there is not"));
}

void Witness::Close(Seen& seen, int64_t now_ns) {
  if (seen.open >= 0) seen.spent_ns[seen.open] += now_ns - seen.since_ns;
  seen.open = -1;
}

absl::Status Witness::OnBegin(const Begin& begin, int64_t now_ns) {
  const bool batch = expected_.order == MessageKind::kBatch;
  if (IsOfModel(begin.phase) == batch) return Nonsense("a phase begins that is of another kind of order");
  if (IsOfAll(begin.phase) && begin.index != -1) return Nonsense("a phase of all begins for one");
  if (!IsOfAll(begin.phase)) {
    if (absl::Status status = CheckIndex(begin.index, 0); !status.ok()) return status;
  }
  Seen& seen = Of(begin.index);
  const int phase = static_cast<int>(begin.phase);
  const bool is_run = begin.phase == Phase::kVerify || begin.phase == Phase::kTime;
  if (seen.told) return Nonsense("a phase begins for a candidate whose result is there");
  // Each begin winds its clock up again.
  if (seen.begun[phase] >= (is_run ? kMostRuns : 1)) return Nonsense("a phase begins too often");
  if (begin.phase == Phase::kTime && seen.open != static_cast<int>(Phase::kVerify))
    return Nonsense("what was not verified is timed");
  // Builds go on beside each other; a run is alone, and ends what went before it.
  if (begin.phase == Phase::kBuild) {
    Close(Of(-1), now_ns);
  } else {
    for (Seen& other : seen_) Close(other, now_ns);
  }
  ++seen.begun[phase];
  seen.open = phase;
  seen.since_ns = now_ns;
  return absl::OkStatus();
}

absl::Status Witness::OnBuilt(int index, int64_t now_ns) {
  if (absl::Status status = CheckIndex(index, 0); !status.ok()) return status;
  if (Of(index).open != static_cast<int>(Phase::kBuild)) return Nonsense("a build ended that had not begun");
  Close(Of(index), now_ns);
  return absl::OkStatus();
}

absl::Status Witness::CheckTimes(const std::vector<double>& seconds, int64_t passed_ns) const {
  if (seconds.empty() || std::ssize(seconds) > expected_.samples)
    return Nonsense(absl::StrCat(seconds.size(), " samples where at most ", expected_.samples, " were asked for"));
  if (!std::all_of(seconds.begin(), seconds.end(), [](double s) { return std::isfinite(s) && s > 0; }))
    return Nonsense("a time that is none");
  // A sample is of one call at least.
  const double sum = std::accumulate(seconds.begin(), seconds.end(), 0.0);
  const double passed_s = static_cast<double>(passed_ns) * 1e-9;
  if (expected_.real_time && sum > passed_s + kReadLateS)
    return Nonsense(absl::StrCat("samples of ", sum, " s in ", passed_s, " s"));
  return absl::OkStatus();
}

absl::Status Witness::OnTrial(Trial& trial, int64_t now_ns) {
  if (expected_.order == MessageKind::kModel) return Nonsense("a candidate's result where there are no candidates");
  if (absl::Status status = CheckIndex(trial.index, 0); !status.ok()) return status;
  Seen& seen = Of(trial.index);
  TrialResult& result = trial.result;
  if (seen.told) return Nonsense("a second result of one candidate");
  if (IsForOthers(result.outcome))
    return Nonsense(absl::StrCat("an outcome that it can not know: ", std::string(Text(result.outcome))));
  if (!std::isfinite(result.drift) || result.drift < 1) return Nonsense("a drift that is none");
  if (IsMeasured(result.outcome)) {
    const bool batch = expected_.order == MessageKind::kBatch;
    const Seen& run = batch ? seen : Of(-1);
    const Phase phase = batch ? Phase::kTime : Phase::kModelRun;
    if (!run.Begun(phase)) return Nonsense("a time of what was never run");
    const int64_t open_ns = run.open == static_cast<int>(phase) ? now_ns - run.since_ns : 0;
    if (absl::Status status = CheckTimes(result.costs_s, run.Spent(phase) + open_ns); !status.ok()) return status;
  } else {
    result.costs_s.clear();
  }
  Close(seen, now_ns);
  seen.told = true;
  result.drift = std::min(result.drift, kMostDrift);
  constexpr int64_t kNsInMs = 1'000'000;
  result.build_ms = seen.Spent(Phase::kBuild) / kNsInMs;
  result.run_ms = (seen.Spent(Phase::kVerify) + seen.Spent(Phase::kTime)) / kNsInMs;
  result.error = IsMeasured(result.outcome) ? "" : FirstLines(result.error);
  return absl::OkStatus();
}

absl::Status Witness::OnModel(ModelResult& result, int64_t now_ns) {
  if (expected_.order != MessageKind::kModel) return Nonsense("a model's result where no model was to be checked");
  Seen& seen = Of(-1);
  if (seen.told) return Nonsense("a second result of one model");
  if (IsForOthers(result.outcome))
    return Nonsense(absl::StrCat("an outcome that it can not know: ", std::string(Text(result.outcome))));
  if (IsMeasured(result.outcome)) {
    if (!seen.Begun(Phase::kModelRun)) return Nonsense("a time of what was never run");
    Close(seen, now_ns);
    const int64_t passed_ns = seen.Spent(Phase::kModelRun);
    for (const std::vector<double>& seconds : {result.untuned_s, result.tuned_s}) {
      if (absl::Status status = CheckTimes(seconds, passed_ns); !status.ok()) return status;
    }
    if (!std::isfinite(result.relative_error) || result.relative_error < 0)
      return Nonsense("an error of outputs that is none");
  } else {
    result.untuned_s.clear();
    result.tuned_s.clear();
    result.relative_error = 0;  // what failed may have no number for it
  }
  seen.told = true;
  result.error = IsMeasured(result.outcome) ? "" : FirstLines(result.error);
  return absl::OkStatus();
}

}  // namespace temper::worker
