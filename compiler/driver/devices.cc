#include "compiler/driver/devices.h"

#include <cstdlib>

#include "absl/strings/numbers.h"

namespace temper::driver {

int PackageDeviceChoice::number() const {
  if (const int set = set_; set >= 0) return set;
  int number = 0;
  const char* told = std::getenv(variable_);
  return told != nullptr && absl::SimpleAtoi(told, &number) ? number : 0;
}

}  // namespace temper::driver
