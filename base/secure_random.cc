#include "base/secure_random.h"

#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "absl/strings/escaping.h"

namespace temper {
namespace {

constexpr size_t kHexBytes = 16;

}  // namespace

uint64_t SecureRandom() {
  uint64_t value = 0;
  const std::string bytes = SecureBytes(sizeof value);
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

std::string SecureBytes(size_t count) {
  std::string bytes(count, '\0');
  for (size_t done = 0; done < count;) {
    const ssize_t got = getrandom(bytes.data() + done, count - done, 0);
    if (got < 0 && errno != EINTR) std::abort();  // a kernel without randomness can not keep a secret
    done += static_cast<size_t>(std::max<ssize_t>(got, 0));
  }
  return bytes;
}

std::string SecureHex() { return absl::BytesToHexString(SecureBytes(kHexBytes)); }

}  // namespace temper
