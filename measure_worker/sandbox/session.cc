#include "measure_worker/sandbox/session.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/statistics.h"
#include "compiler/timing/timing.h"
#include "measure_worker/sampling.h"
#include "measure_worker/sandbox/witness.h"

namespace temper::worker {
namespace {

constexpr int kChunk = 16;  // candidates built before the first of them is measured
// What the device was slow around is measured again so many times, at once: it is built already. Slower than the best
// by more than this, drift taken off, it is left as it is.
constexpr int kMostRepeats = 2;
constexpr double kWorthRepeating = 1.15;

struct Entry {
  int index = 0;
  std::unique_ptr<Program> program;  // null: failed, or told
  TrialResult result;
  bool measured = false;  // and not told yet
};

int64_t MsSince(int64_t start_ns) { return (MonotonicNs() - start_ns) / 1'000'000; }

class BatchSession {
 public:
  BatchSession(KernelBench& kernels, const BatchOrder& order, Canary& canary, Reporter& reporter)
      : kernels_(kernels), order_(order), canary_(canary), reporter_(reporter), told_(order.work.candidates.size()) {}

  void Run() {
    const auto& candidates = order_.work.candidates;
    reporter_.OnBegin(Phase::kPrepare, -1);
    if (absl::Status status = kernels_.Prepare(order_.work); !status.ok()) {
      GiveUp(absl::IsResourceExhausted(status) ? Outcome::kUnfit : Outcome::kInfrastructure, status);
      return;
    }
    const int count = static_cast<int>(candidates.size());
    for (int first = 0; first < count; first += kChunk) {
      std::vector<Entry> entries(std::min(kChunk, count - first));
      for (size_t i = 0; i < entries.size(); ++i) entries[i].index = first + static_cast<int>(i);
      BuildAll(entries);
      if (absl::Status status = MeasureWatched(entries); !status.ok()) {
        GiveUp(Outcome::kInfrastructure, status);
        return;
      }
    }
  }

 private:
  // Not the fault of the candidates that are left. Once the device is lost, another child goes on with them.
  void GiveUp(Outcome outcome, const absl::Status& why) {
    if (kernels_.lost()) return;
    for (size_t i = 0; i < told_.size(); ++i) {
      if (!told_[i]) Tell(static_cast<int>(i), {outcome, std::string(why.message())});
    }
  }

  void Tell(int index, const TrialResult& result) {
    told_[static_cast<size_t>(index)] = 1;
    reporter_.OnTrial(index, result);
  }

  // One after another, with the canary before, now and then between, and after.
  absl::Status MeasureWatched(std::vector<Entry>& entries) {
    if (canary_.Due(MonotonicNs())) TEMPER_RETURN_IF_ERROR(Look(entries));
    for (Entry& e : entries) {
      if (!e.program) continue;
      MeasureAlone(e);
      if (canary_.Due(MonotonicNs())) TEMPER_RETURN_IF_ERROR(Look(entries));
    }
    return Look(entries);
  }

  absl::StatusOr<double> TimeCanary() {
    TEMPER_ASSIGN_OR_RETURN(const double seconds, kernels_.TimeCanary());
    return canary_.Look(seconds, MonotonicNs());
  }

  // Times the canary and tells what was measured since it was timed last. If the device was slow meanwhile and is not
  // any more, what may be the best is measured again before it is told.
  absl::Status Look(std::vector<Entry>& entries) {
    TEMPER_ASSIGN_OR_RETURN(double drift, TimeCanary());
    for (int repeat = 0; repeat < kMostRepeats && drift > kUsualDrift; ++repeat) {
      TellMeasured(entries, drift, [&](const Entry& e) { return !WorthRepeating(e, drift); });
      const bool any = std::any_of(entries.begin(), entries.end(), [](const Entry& e) { return e.measured; });
      if (!any) return absl::OkStatus();
      TEMPER_RETURN_IF_ERROR(TimeCanary().status());
      if (canary_.drift() > kUsualDrift) break;
      // Nobody races against a time that counts no more, least of all against its own.
      incumbent_s_ = told_best_s_;
      for (Entry& e : entries) {
        if (std::exchange(e.measured, false)) MeasureAlone(e);
      }
      TEMPER_ASSIGN_OR_RETURN(drift, TimeCanary());
    }
    TellMeasured(entries, drift, [](const Entry&) { return true; });
    return absl::OkStatus();
  }

  bool WorthRepeating(const Entry& e, double drift) const {
    return incumbent_s_ == 0 || e.result.costs_s.front() < kWorthRepeating * drift * incumbent_s_;
  }

  void TellMeasured(std::vector<Entry>& entries, double drift, const std::function<bool(const Entry&)>& wanted) {
    for (Entry& e : entries) {
      if (!e.measured || !wanted(e)) continue;
      e.measured = false;
      e.program.reset();
      e.result.drift = drift;
      KeepBest(told_best_s_, e.result);
      Tell(e.index, e.result);
    }
  }

  void BuildAll(std::vector<Entry>& entries) {
    const int threads =
        order_.one_by_one ? 1 : std::min<int>(kernels_.build_threads(), static_cast<int>(entries.size()));
    std::atomic<size_t> next{0};
    const auto work = [&] {
      for (size_t i; (i = next.fetch_add(1)) < entries.size();) BuildOne(entries[i]);
    };
    std::vector<std::thread> helpers;
    for (int i = 1; i < threads; ++i) helpers.emplace_back(work);
    work();
    for (std::thread& t : helpers) t.join();
  }

  void BuildOne(Entry& e) {
    reporter_.OnBegin(Phase::kBuild, e.index);
    const int64_t start = MonotonicNs();
    auto program = kernels_.Build(order_.work.candidates[e.index]);
    e.result.build_ms = MsSince(start);
    if (program.ok()) {
      e.program = *std::move(program);
      reporter_.OnBuilt(e.index);
    } else {
      Finish(e, BuildOutcome(program.status()), program.status());
    }
  }

  static Outcome BuildOutcome(const absl::Status& status) {
    if (absl::IsInvalidArgument(status)) return Outcome::kIllegalConfig;
    // Memory that others have, or files that can not be written.
    const bool no_fault = absl::IsResourceExhausted(status) || absl::IsUnavailable(status);
    return no_fault ? Outcome::kInfrastructure : Outcome::kBuildFailed;
  }

  void MeasureAlone(Entry& e) {
    const int64_t start = MonotonicNs();
    reporter_.OnBegin(Phase::kVerify, e.index);
    absl::StatusOr<double> verified_s = e.program->Verify();
    if (absl::IsResourceExhausted(verified_s.status())) {
      kernels_.MakeRoom();
      verified_s = e.program->Verify();
    }
    if (!verified_s.ok()) {
      Finish(e, absl::IsDataLoss(verified_s.status()) ? Outcome::kWrongAnswer : Outcome::kInfrastructure,
             verified_s.status());
      return;
    }
    reporter_.OnBegin(Phase::kTime, e.index);
    const Samples samples = MeasureRacing(order_.work.plan, incumbent_s_, *verified_s,
                                          [&](int64_t calls) { return e.program->Time(calls); });
    e.result.costs_s = samples.costs_s;
    e.result.run_ms = MsSince(start);
    if (absl::Status status = e.program->CheckAfterwards(); !status.ok()) {
      Finish(e, absl::IsDataLoss(status) ? Outcome::kWrongAnswer : Outcome::kInfrastructure, status);
    } else {
      e.result.outcome = samples.raced_out ? Outcome::kRacedOut : Outcome::kOk;
      KeepBest(incumbent_s_, e.result);
      e.measured = true;
    }
  }

  static void KeepBest(double& best_s, const TrialResult& result) {
    const double median_s = Median(result.costs_s);
    if (result.outcome == Outcome::kOk && (best_s == 0 || median_s < best_s)) best_s = median_s;
  }

  void Finish(Entry& e, Outcome outcome, const absl::Status& status) {
    if (kernels_.lost()) {
      e.program.reset();
      return;  // as in GiveUp
    }
    e.result.outcome = outcome;
    e.result.error = std::string(status.message());
    if (!status.ok()) e.result.costs_s.clear();
    e.program.reset();
    Tell(e.index, e.result);
  }

  KernelBench& kernels_;
  const BatchOrder& order_;
  Canary& canary_;
  Reporter& reporter_;
  double told_best_s_ = order_.work.incumbent_s;
  double incumbent_s_ = told_best_s_;  // the best that was told, or measured since
  std::vector<char> told_;             // by candidate; builds tell from several threads
};

class SocketReporter : public Reporter {
 public:
  explicit SocketReporter(int fd) : fd_(fd) {}
  void OnBegin(Phase phase, int index) override { Send(Encode(Begin{phase, index})); }
  void OnBuilt(int index) override { Send(EncodeBuilt(index)); }
  void OnTrial(int index, const TrialResult& result) override {
    Trial trial{index, result};
    trial.result.error = FirstLines(result.error);
    Send(Encode(trial));
  }

  // A supervisor that is gone is noticed at the next read; until then there is nobody to tell.
  void Send(const Frame& frame) {
    std::lock_guard lock(mutex_);
    WriteFrame(fd_, frame).IgnoreError();
  }

 private:
  const int fd_;
  std::mutex mutex_;
};

}  // namespace

void CarryOut(KernelBench& kernels, const BatchOrder& order, Canary& canary, Reporter& reporter) {
  BatchSession(kernels, order, canary, reporter).Run();
}

int ChildMain(int fd, Backend& backend) {
  SocketReporter reporter(fd);
  Canary canary;
  for (;;) {
    auto frame = ReadFrame(fd);
    if (!frame.ok()) return 1;
    if (!frame->has_value()) return 0;
    if ((*frame)->kind == static_cast<uint8_t>(MessageKind::kModel)) {
      auto work = DecodeModel(**frame);
      if (!work.ok()) return 1;
      backend.kernels->Forget();
      ModelResult result = backend.models->CheckModel(*work, [&](Phase phase) { reporter.OnBegin(phase, -1); });
      result.error = FirstLines(result.error);
      reporter.Send(Encode(result));
    } else if ((*frame)->kind == static_cast<uint8_t>(MessageKind::kFinals)) {
      auto work = DecodeFinals(**frame);
      if (!work.ok()) return 1;
      backend.kernels->Forget();
      const std::vector<TrialResult> results =
          backend.models->MeasureFinals(*work, [&](Phase phase) { reporter.OnBegin(phase, -1); });
      for (size_t i = 0; i < results.size(); ++i) reporter.OnTrial(static_cast<int>(i), results[i]);
    } else {
      auto order = DecodeBatch(**frame);
      if (!order.ok()) return 1;
      backend.models->Forget();
      CarryOut(*backend.kernels, *order, canary, reporter);
    }
    if (backend.kernels->lost()) {
      std::fprintf(stderr, "the device is lost\n");
      reporter.Send(EncodeLeaving());
      return 0;
    }
    reporter.Send(EncodeDone());
  }
}

}  // namespace temper::worker
