// What an initialised server keeps beside its database: the authority of its fleet, its own certificate, and the first
// token of its admin.
//
//   ca.key, ca.crt           the authority; whoever has ca.key can let anybody in
//   server.key, server.crt   the server's own; watched, so that a renewed certificate is taken up within seconds
//   admin.token              for the admin, who takes it away from here
//   admin.hash               what the server knows it by: "ID HASH"
#pragma once

#include <span>
#include <string>

#include "security/authority.h"
#include "storage/access.h"

namespace temper {

struct ServerDirectory {
  CertificateAuthority authority;
  TokenRow admin_token;
  std::string certificate_path, key_path, authority_path;
};

inline constexpr absl::Duration kAuthorityLifetime = absl::Hours(24 * 3650);
inline constexpr absl::Duration kServerLifetime = absl::Hours(24 * 365);
inline constexpr absl::Duration kWorkerLifetime = absl::Hours(24 * 365);

// Makes `dir`, whole or not at all, for its owner's eyes only. The server is known by `hosts` beside localhost,
// 127.0.0.1, ::1 and this machine's name. kAlreadyExists: something is there, and stays as it is.
absl::Status InitServerDirectory(const std::string& dir, std::span<const std::string> hosts, absl::Time now);

// kNotFound: `dir` was not initialised. kPermissionDenied: others may read its keys.
absl::StatusOr<ServerDirectory> OpenServerDirectory(const std::string& dir);

// Another certificate of the server, with the same key and names, from now on. A running server takes it up by itself.
absl::Status RenewServerCertificate(const std::string& dir, absl::Time now);
// The same once it is due, which is well before it ends.
absl::Status KeepServerCertificate(const std::string& dir, absl::Time now);

}  // namespace temper
