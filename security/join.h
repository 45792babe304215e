// Invitations: by one, a worker joins the fleet once. The text carries what the worker needs to know the server by
// before it has the authority's certificate.
//
// Text: tmpr-join_ID_SECRET_FINGERPRINT, where FINGERPRINT is the SHA-256 of the authority's certificate, as hex.
#pragma once

#include <string>
#include <string_view>

#include "security/token.h"

namespace temper {

inline constexpr absl::Duration kInvitationLifetime = absl::Hours(1);
inline constexpr char kInvitationScope[] = "join";  // in the row's scopes: not a token for anything else

// For a worker that is to serve `device_key`. The row's `revoked` says that it was used.
MintedToken MintInvitation(const std::string& device_key, const std::string& authority_fingerprint, absl::Time now,
                           absl::Duration lifetime = kInvitationLifetime);

struct Invitation {
  PresentedToken token;
  std::string authority_fingerprint;
};
absl::StatusOr<Invitation> ParseInvitation(std::string_view text);  // kUnauthenticated: not an invitation's text
// kUnauthenticated: another secret, used, expired, or not an invitation.
absl::Status CheckInvitation(const TokenRow& row, const PresentedToken& presented, absl::Time now);

// The certificate (PEM) with that fingerprint among those that the server at `address` (HOST:PORT) presents. Nothing
// else of the server is checked, so nothing may be sent before a connection that trusts this certificate alone stands.
// kUnavailable: nobody speaks TLS there. kPermissionDenied: it presents others.
absl::StatusOr<std::string> FetchAuthority(const std::string& address, const std::string& fingerprint,
                                           absl::Duration timeout);

}  // namespace temper
