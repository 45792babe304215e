// Bearer tokens: 256 random bits that name their bearer and say what it may do. Only a hash of them is kept.
//
// Text: tmpr_ID_SECRET, where ID is public and SECRET is 43 characters of URL-safe Base64.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "base/status.h"
#include "storage/access.h"

namespace temper {

enum class Scope : uint8_t {
  kRead,     // list, watch, query, export
  kSubmit,   // submit jobs, put records, cancel one's own
  kMeasure,  // serve devices as a worker
  kAdmin,    // everything, others' jobs included
};
const char* Name(Scope scope);

class Scopes {
 public:
  constexpr Scopes() = default;
  constexpr Scopes(std::initializer_list<Scope> scopes) {
    for (const Scope scope : scopes) bits_ |= Bit(scope);
  }
  static absl::StatusOr<Scopes> Parse(const std::string& text);  // "read,submit"
  std::string Text() const;
  constexpr bool Has(Scope scope) const { return (bits_ & (Bit(scope) | Bit(Scope::kAdmin))) != 0; }
  friend constexpr bool operator==(Scopes, Scopes) = default;

 private:
  static constexpr uint8_t Bit(Scope scope) { return static_cast<uint8_t>(1u << static_cast<unsigned>(scope)); }
  uint8_t bits_ = 0;
};

struct TokenGrant {
  std::string owner;  // a name for people, and who its jobs belong to
  Scopes scopes;
  std::vector<std::string> device_keys;  // empty: all
  absl::Time expires = absl::InfiniteFuture();
};
struct MintedToken {
  std::string text;  // for its bearer alone
  TokenRow row;      // what is kept
};
MintedToken MintToken(const TokenGrant& grant, absl::Time now);

// What somebody presents.
struct PresentedToken {
  std::string id, secret;
};
absl::StatusOr<PresentedToken> ParseToken(std::string_view text);  // kUnauthenticated: not a token's text
// kUnauthenticated: another secret, revoked, expired. `row` is the one with the presented id.
absl::Status CheckToken(const TokenRow& row, const PresentedToken& presented, absl::Time now);

// The token in a file that its owner alone may read.
absl::StatusOr<std::string> ReadTokenFile(const std::string& path);

// Lists of device keys as rows keep them.
std::string JoinKeys(const std::vector<std::string>& keys);
std::vector<std::string> SplitKeys(const std::string& text);

// The part that tokens and invitations share: an id, a secret, and the row with its hash and its times.
MintedToken MintSecret(const std::string& prefix, absl::Time now, absl::Time expires);
absl::StatusOr<PresentedToken> ParseSecret(const std::string& prefix, std::string_view text);

}  // namespace temper
