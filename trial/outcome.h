// How one execution of a candidate ended. A candidate that fails is data, not an error: records, the wire and the
// search all carry the same value, as its text outside this process.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace temper {

enum class Outcome : uint8_t {
  kOk,             // measured, with as many samples as were planned
  kRacedOut,       // measured, but stopped early: too slow to win. Kept as kOk with its few samples
  kIllegalConfig,  // the template refuses the config
  kBuildFailed,
  kBuildTimeout,
  kWrongAnswer,
  kRunCrashed,
  kRunTimeout,
  kUnfit,           // the workload does not fit this device: not the worker's fault, and no other config helps
  kQuarantined,     // it took its workers along until its attempts were used up: it is not tried again on such a device
  kInfrastructure,  // the worker's own failure, or nobody's: it says nothing about the candidate
};

std::span<const Outcome> AllOutcomes();
std::string_view Text(Outcome outcome);  // "ok", "raced_out", ...
std::optional<Outcome> ParseOutcome(std::string_view text);
std::string Explained(Outcome outcome, const std::string& error);  // "run_crashed: killed by SIGSEGV"

// It has samples.
inline bool IsMeasured(Outcome outcome) { return outcome == Outcome::kOk || outcome == Outcome::kRacedOut; }
// The candidate's own failure: trying the same one again there is of no use.
inline bool IsOwnFailure(Outcome outcome) { return !IsMeasured(outcome) && outcome != Outcome::kInfrastructure; }

}  // namespace temper
