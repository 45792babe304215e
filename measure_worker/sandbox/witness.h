// What the supervisor saw of an order's execution by its own clock. The child's messages count only as far as they
// agree with it: foreign code has run in there.
//
// What can not be seen from outside: whether the kernel that ran is the one that was asked for, whether its answer was
// compared, and whether a time shorter than the time that passed is the true one. Foreign code shares its address space
// with the code that builds, verifies and times it, so a kernel made to deceive can. Candidates travel as data and are
// compiled here, so such a kernel would have to come from our own templates.
#pragma once

#include <cstdint>
#include <vector>

#include "measure_worker/sandbox/messages.h"

namespace temper::worker {

// What may be answered to an order.
struct Expected {
  MessageKind order = MessageKind::kBatch;  // kBatch, kFinals or kModel
  int candidates = 0;
  int samples = 0;        // at most so many of a kind
  bool real_time = true;  // its times are such as pass; not those of a device that is a formula
};

// All times are of one monotonic clock. An error, always kInvalidArgument, says what the child can not have done; what
// it is about is not taken in.
class Witness {
 public:
  explicit Witness(const Expected& expected)
      : expected_(expected), seen_(static_cast<size_t>(expected.candidates) + 1) {}

  absl::Status OnBegin(const Begin& begin, int64_t now_ns);
  absl::Status OnBuilt(int index, int64_t now_ns);
  // Makes the result fit to be handed on: its clocks are ours, and texts are short and legible.
  absl::Status OnTrial(Trial& trial, int64_t now_ns);
  absl::Status OnModel(ModelResult& result, int64_t now_ns);

 private:
  struct Seen {
    int begun[6] = {};  // times that it began, by phase
    int64_t spent_ns[6] = {};
    int open = -1;  // the phase that it is in
    int64_t since_ns = 0;
    bool told = false;
    int64_t Spent(Phase phase) const { return spent_ns[static_cast<int>(phase)]; }
    bool Begun(Phase phase) const { return begun[static_cast<int>(phase)] > 0; }
  };

  absl::Status CheckIndex(int index, int lowest) const;
  absl::Status CheckTimes(const std::vector<double>& seconds, int64_t passed_ns) const;
  Seen& Of(int index) { return seen_[static_cast<size_t>(index + 1)]; }
  static void Close(Seen& seen, int64_t now_ns);

  const Expected expected_;
  std::vector<Seen> seen_;  // of what concerns all, then by candidate
};

// The beginning of a text from outside, as errors are kept and logged: at most kMaxErrorBytes of UTF-8, and nothing
// that a terminal obeys.
std::string FirstLines(std::string_view text);
inline constexpr size_t kMaxErrorBytes = 1024;

}  // namespace temper::worker
