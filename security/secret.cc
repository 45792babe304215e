#include "security/secret.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <sys/random.h>

#include <cerrno>
#include <cstdlib>

#include "absl/strings/escaping.h"
#include "base/log.h"

namespace temper {
namespace {

constexpr size_t kIdBytes = 16;

}  // namespace

std::string RandomBytes(size_t count) {
  std::string bytes(count, '\0');
  for (size_t done = 0; done < count;) {
    const ssize_t got = getrandom(bytes.data() + done, count - done, 0);
    if (got > 0) {
      done += static_cast<size_t>(got);
    } else if (errno != EINTR) {
      spdlog::critical("the kernel gives no random bytes");
      std::abort();
    }
  }
  return bytes;
}

std::string RandomId() { return absl::BytesToHexString(RandomBytes(kIdBytes)); }

std::string Sha256Hex(std::string_view bytes) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), digest);
  return absl::BytesToHexString({reinterpret_cast<const char*>(digest), sizeof digest});
}

bool SameSecret(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace temper
