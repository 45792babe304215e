// Who logged in with a token and holds a cookie for it. The cookie's value is random and kept as a hash; the token
// itself is not kept. Not thread-safe.
#pragma once

#include <list>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "security/gate.h"

namespace temper {

class Logins {
 public:
  static constexpr absl::Duration kLifetime = absl::Hours(12);
  // At once; then the oldest ends: of one token, so that nobody ends others' logins, and of all, to bound the memory.
  static constexpr size_t kMostOfToken = 8, kMost = 1024;

  // Both outlive it.
  Logins(const Gate& gate, const Clock& clock) : gate_(gate), clock_(clock) {}

  std::string Begin(Principal principal);  // the cookie's value
  // nullopt: unknown, too old, or the token was revoked or is over.
  std::optional<Principal> Find(std::string_view cookie);
  void End(std::string_view cookie);

 private:
  struct Login {
    std::string hash;  // of the cookie
    absl::Duration until;
    Principal principal;
  };
  void DropWhatIsOver();

  const Gate& gate_;
  const Clock& clock_;
  std::list<Login> logins_;  // oldest first
};

}  // namespace temper
