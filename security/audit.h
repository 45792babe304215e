// What was done and what was refused, kept in the store. Thread-safe.
//
// Refusals are kept at a bounded rate, so that who is refused can not fill the disk: the next one that is kept tells
// how many were not.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "base/allowance.h"
#include "base/clock.h"
#include "security/rights.h"
#include "storage/access.h"

namespace temper {

class Audit {
 public:
  Audit(AccessStore& store, const Clock& clock) : store_(store), clock_(clock) {}  // which outlive it

  // What was done and what was refused, as rows for Keep; nullopt: a refusal that is too many.
  AuditRow Done(const Principal& principal, Call call, std::string_view subject, std::string_view detail) const;
  std::optional<AuditRow> Refused(std::string_view principal, Call call, std::string_view subject,
                                  std::string_view reason);
  bool Keep(const AuditRow& row);  // waits for the store; false: it has it not, and the log says so

  static constexpr int kRefusalsAtOnce = 20;
  static constexpr absl::Duration kRefusalEvery = absl::Seconds(5);

 private:
  bool MayKeepRefusal(int64_t* left_out);

  AccessStore& store_;
  const Clock& clock_;
  std::mutex mutex_;
  Allowance refusals_{kRefusalsAtOnce, 1 / absl::ToDoubleSeconds(kRefusalEvery)};
  int64_t left_out_ = 0;
};

}  // namespace temper
