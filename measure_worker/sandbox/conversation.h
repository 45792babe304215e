// One order to the child and the answers to it, with a clock for each phase.
#pragma once

#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>

#include "measure_worker/sandbox/messages.h"
#include "measure_worker/sandbox/process.h"
#include "measure_worker/sandbox/sandbox.h"
#include "measure_worker/sandbox/witness.h"

namespace temper::worker {

class Conversation {
 public:
  enum class End { kDone, kLeft, kDied, kTimedOut, kCancelled };  // kLeft: as kLeaving has it
  static constexpr int kWhole = -1;                               // index of what concerns no single candidate
  struct Flight {
    Phase phase;
    int64_t deadline_ns;
  };
  struct Handlers {
    std::function<int64_t(Phase)> cap_ms;
    std::function<void(int, TrialResult)> on_trial = [](int, TrialResult) {};
    std::function<void(ModelResult)> on_model = [](ModelResult) {};
  };

  // `idle` is the phase that the time between the others is charged to.
  Conversation(ChildProcess& child, const CancelToken& token, const Expected& expected, Phase idle, Handlers handlers);

  // Returns when the order is carried out or can not be. The child is left as it is.
  End Hold(const Frame& order);

  // Phases begun and not ended, by candidate.
  const std::map<int, Flight>& flights() const { return flights_; }
  int culprit() const { return culprit_; }  // whose time was over
  // Not empty: it did not die, it said what it can not mean, or took more than it may.
  const std::string& nonsense() const { return nonsense_; }
  // What the child wrote on its standard error: ": ...", or nothing.
  std::string Complaint();

 private:
  static constexpr int kNobody = std::numeric_limits<int>::min();

  int TimeoutMs() const;
  bool TakesTooMuch();
  int LateFlight() const;
  bool Send();
  void ReadStderr();
  std::optional<End> Receive();
  End Nonsense(const absl::Status& status);
  absl::Status Take(const Frame& frame);
  void Land(int index);

  ChildProcess& child_;
  const CancelToken& token_;
  const Phase idle_;
  const Handlers handlers_;
  std::string unsent_;
  FrameReader reader_{kMaxAnswer};
  Witness witness_;
  std::map<int, Flight> flights_;
  std::string stderr_text_, nonsense_;
  bool stderr_open_ = true;
  int64_t watched_ns_ = 0;
  int culprit_ = kNobody;
};

}  // namespace temper::worker
