#include "compiler/driver/session.h"

#include <chrono>

namespace temper::driver {

absl::StatusOr<double> Session::Time(const std::function<absl::Status()>& submit) {
  TEMPER_RETURN_IF_ERROR(Finish());  // what was asked before takes time, too
  const auto start = std::chrono::steady_clock::now();
  TEMPER_RETURN_IF_ERROR(submit());
  TEMPER_RETURN_IF_ERROR(Finish());
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace temper::driver
