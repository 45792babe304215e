#include "base/secure_random.h"

#include <sys/random.h>

#include <cerrno>
#include <cstdlib>

#include "absl/strings/str_cat.h"

namespace temper {

uint64_t SecureRandom() {
  uint64_t value = 0;
  ssize_t got;
  // So few bytes come whole or not at all.
  while ((got = getrandom(&value, sizeof value, 0)) < 0 && errno == EINTR) {
  }
  if (got != sizeof value) std::abort();  // a kernel without randomness can not keep a secret
  return value;
}

std::string SecureHex() {
  return absl::StrCat(absl::Hex(SecureRandom(), absl::kZeroPad16), absl::Hex(SecureRandom(), absl::kZeroPad16));
}

}  // namespace temper
