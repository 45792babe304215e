// What tests of credentials share.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "security/certificate.h"

namespace temper {

inline const absl::Time kNow = absl::FromUnixSeconds(1'800'000'000);
inline const Validity kYear = {kNow, kNow + absl::Hours(24 * 365)};

constexpr absl::Duration kPatience = absl::Seconds(60);  // for what should take a second at most

inline std::string Message(const absl::Status& status) { return std::string(status.message()); }
template <typename T>
std::string Message(const absl::StatusOr<T>& result) {
  return Message(result.status());
}

}  // namespace temper
