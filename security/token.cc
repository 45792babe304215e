#include "security/token.h"

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/secure_random.h"
#include "security/files.h"
#include "security/secret.h"

namespace temper {
namespace {

constexpr char kPrefix[] = "tmpr_";
constexpr size_t kIdBytes = 8, kSecretBytes = 32, kSecretChars = 43;
constexpr Scope kScopes[] = {Scope::kRead, Scope::kSubmit, Scope::kMeasure, Scope::kAdmin};

int64_t UnixMs(absl::Time time) { return time == absl::InfiniteFuture() ? 0 : absl::ToUnixMillis(time); }

}  // namespace

const char* Name(Scope scope) {
  switch (scope) {
    case Scope::kRead:
      return "read";
    case Scope::kSubmit:
      return "submit";
    case Scope::kMeasure:
      return "measure";
    case Scope::kAdmin:
      return "admin";
  }
  return "";
}

absl::StatusOr<Scopes> Scopes::Parse(const std::string& text) {
  Scopes scopes;
  for (std::string name : std::vector<std::string>(absl::StrSplit(text, ',', absl::SkipWhitespace()))) {
    absl::StripAsciiWhitespace(&name);
    const Scopes before = scopes;
    for (const Scope scope : kScopes) {
      if (name == Name(scope)) scopes.bits_ |= Bit(scope);
    }
    if (scopes == before) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", name, "' is no scope, or there twice; there are read, submit, measure and admin"));
    }
  }
  if (scopes == Scopes()) return absl::InvalidArgumentError("a token needs a scope: read, submit, measure or admin");
  return scopes;
}

std::string Scopes::Text() const {
  std::vector<const char*> names;
  for (const Scope scope : kScopes) {
    if ((bits_ & Bit(scope)) != 0) names.push_back(Name(scope));
  }
  return absl::StrJoin(names, ",");
}

std::string JoinKeys(const std::vector<std::string>& keys) { return absl::StrJoin(keys, ","); }
std::vector<std::string> SplitKeys(const std::string& text) { return absl::StrSplit(text, ',', absl::SkipEmpty()); }

MintedToken MintSecret(const std::string& prefix, absl::Time now, absl::Time expires) {
  const std::string secret = absl::WebSafeBase64Escape(SecureBytes(kSecretBytes));
  MintedToken minted;
  minted.row.id = absl::BytesToHexString(SecureBytes(kIdBytes));
  minted.row.hash = Sha256Hex(secret);
  minted.row.created_unix_ms = absl::ToUnixMillis(now);
  minted.row.expires_unix_ms = UnixMs(expires);
  minted.text = absl::StrCat(prefix, minted.row.id, "_", secret);
  return minted;
}

absl::StatusOr<PresentedToken> ParseSecret(const std::string& prefix, std::string_view text) {
  const size_t id_chars = 2 * kIdBytes;
  if (!text.starts_with(prefix) || text.size() != prefix.size() + id_chars + 1 + kSecretChars ||
      text[prefix.size() + id_chars] != '_') {
    return absl::UnauthenticatedError(absl::StrCat("this is not a token: one begins with ", prefix));
  }
  text.remove_prefix(prefix.size());
  return PresentedToken{std::string(text.substr(0, id_chars)), std::string(text.substr(id_chars + 1))};
}

MintedToken MintToken(const TokenGrant& grant, absl::Time now) {
  MintedToken minted = MintSecret(kPrefix, now, grant.expires);
  minted.row.owner = grant.owner;
  minted.row.scopes = grant.scopes.Text();
  minted.row.keys = JoinKeys(grant.device_keys);
  return minted;
}

absl::StatusOr<PresentedToken> ParseToken(std::string_view text) { return ParseSecret(kPrefix, text); }

absl::Status CheckToken(const TokenRow& row, const PresentedToken& presented, absl::Time now) {
  if (row.id != presented.id || !SameSecret(row.hash, Sha256Hex(presented.secret))) {
    return absl::UnauthenticatedError("the token is not known here");
  }
  if (row.revoked) return absl::UnauthenticatedError("the token was revoked");
  if (row.expires_unix_ms != 0 && absl::ToUnixMillis(now) >= row.expires_unix_ms) {
    return absl::UnauthenticatedError("the token has expired");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadTokenFile(const std::string& path) {
  TEMPER_ASSIGN_OR_RETURN(const std::string content, ReadSmallFile(path, Secrecy::kPrivate));
  const std::string token(absl::StripAsciiWhitespace(content));
  if (!ParseToken(token).ok()) return absl::InvalidArgumentError(absl::StrCat(path, " holds no token"));
  return token;
}

}  // namespace temper
