#include "tuner_server/dashboard/logins.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "base/secure_random.h"
#include "security/secret.h"

namespace temper {
namespace {

constexpr size_t kCookieBytes = 32;

}  // namespace

std::string Logins::Begin(Principal principal) {
  DropWhatIsOver();
  const auto same = [&](const Login& login) { return login.principal.id == principal.id; };
  if (std::ranges::count_if(logins_, same) >= std::ptrdiff_t{kMostOfToken})
    logins_.erase(std::ranges::find_if(logins_, same));
  if (logins_.size() >= kMost) logins_.pop_front();
  const std::string bytes = SecureBytes(kCookieBytes);
  const std::string cookie = absl::BytesToHexString(bytes);
  logins_.push_back({Sha256Hex(cookie), clock_.Monotonic() + kLifetime, std::move(principal)});
  return cookie;
}

std::optional<Principal> Logins::Find(std::string_view cookie) {
  DropWhatIsOver();
  const std::string hash = Sha256Hex(cookie);
  for (const Login& login : logins_) {
    if (SameSecret(login.hash, hash)) return login.principal;
  }
  return std::nullopt;
}

void Logins::End(std::string_view cookie) {
  const std::string hash = Sha256Hex(cookie);
  logins_.remove_if([&](const Login& login) { return SameSecret(login.hash, hash); });
}

void Logins::DropWhatIsOver() {
  const absl::Duration now = clock_.Monotonic();
  logins_.remove_if([&](const Login& login) { return now >= login.until || !gate_.StillStands(login.principal); });
}

}  // namespace temper
