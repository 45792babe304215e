#include "trial/outcome.h"

namespace temper {
namespace {

constexpr Outcome kAll[] = {Outcome::kOk,          Outcome::kRacedOut,      Outcome::kIllegalConfig,
                            Outcome::kBuildFailed, Outcome::kBuildTimeout,  Outcome::kWrongAnswer,
                            Outcome::kRunCrashed,  Outcome::kRunTimeout,    Outcome::kUnfit,
                            Outcome::kQuarantined, Outcome::kInfrastructure};

}  // namespace

std::span<const Outcome> AllOutcomes() { return kAll; }

std::string_view Text(Outcome outcome) {
  switch (outcome) {
    case Outcome::kOk:
      return "ok";
    case Outcome::kRacedOut:
      return "raced_out";
    case Outcome::kIllegalConfig:
      return "illegal_config";
    case Outcome::kBuildFailed:
      return "build_failed";
    case Outcome::kBuildTimeout:
      return "build_timeout";
    case Outcome::kWrongAnswer:
      return "wrong_answer";
    case Outcome::kRunCrashed:
      return "run_crashed";
    case Outcome::kRunTimeout:
      return "run_timeout";
    case Outcome::kUnfit:
      return "unfit";
    case Outcome::kQuarantined:
      return "quarantined";
    case Outcome::kInfrastructure:
      return "infrastructure";
  }
  return "infrastructure";
}

std::optional<Outcome> ParseOutcome(std::string_view text) {
  for (const Outcome outcome : kAll) {
    if (Text(outcome) == text) return outcome;
  }
  return std::nullopt;
}

std::string Explained(Outcome outcome, const std::string& error) { return std::string(Text(outcome)) + ": " + error; }

}  // namespace temper
