#include "security/join.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "security/openssl.h"

namespace temper {
namespace {

constexpr char kPrefix[] = "tmpr-join_";
constexpr size_t kFingerprintChars = 64;

struct HostPort {
  std::string host, port;
};
absl::StatusOr<HostPort> SplitAddress(const std::string& address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon == 0 || colon + 1 == address.size()) {
    return absl::InvalidArgumentError(absl::StrCat("the server's address is HOST:PORT, not '", address, "'"));
  }
  std::string host = address.substr(0, colon);
  if (host.size() > 1 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  return HostPort{host, address.substr(colon + 1)};
}

// A connected socket whose reads and writes end after `timeout`; the caller closes it.
absl::StatusOr<int> Dial(const HostPort& to, absl::Duration timeout) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  if (const int error = getaddrinfo(to.host.c_str(), to.port.c_str(), &hints, &found); error != 0) {
    return absl::UnavailableError(absl::StrCat("cannot find ", to.host, ": ", gai_strerror(error)));
  }
  const absl::Cleanup free_found = [found] { freeaddrinfo(found); };
  const timeval limit = absl::ToTimeval(timeout);
  std::string reason;
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    const int fd = socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, at->ai_protocol);
    if (fd < 0) continue;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    if (connect(fd, at->ai_addr, at->ai_addrlen) == 0) return fd;
    reason = std::strerror(errno);
    close(fd);
  }
  return absl::UnavailableError(absl::StrCat("cannot connect to ", to.host, ":", to.port, ": ", reason));
}

}  // namespace

MintedToken MintInvitation(const std::string& device_key, const std::string& authority_fingerprint, absl::Time now,
                           absl::Duration lifetime) {
  MintedToken minted = MintSecret(kPrefix, now, now + lifetime);
  minted.row.owner = device_key;
  minted.row.scopes = kInvitationScope;
  minted.row.keys = device_key;
  absl::StrAppend(&minted.text, "_", authority_fingerprint);
  return minted;
}

absl::StatusOr<Invitation> ParseInvitation(std::string_view text) {
  const absl::Status no_invitation =
      absl::UnauthenticatedError(absl::StrCat("this is not an invitation: one begins with ", kPrefix));
  if (text.size() < kFingerprintChars + 1) return no_invitation;
  const size_t end = text.size() - kFingerprintChars - 1;
  const auto token = ParseSecret(kPrefix, text.substr(0, end));
  if (!token.ok() || text[end] != '_') return no_invitation;
  return Invitation{*token, std::string(text.substr(end + 1))};
}

absl::Status CheckInvitation(const TokenRow& row, const PresentedToken& presented, absl::Time now) {
  TokenRow unspent = row;
  unspent.revoked = false;
  const absl::Status status = CheckToken(unspent, presented, now);
  if (!status.ok() || row.scopes != kInvitationScope) {
    return absl::UnauthenticatedError("the invitation is not known here, or has expired; ask for a new one");
  }
  if (row.revoked) return absl::UnauthenticatedError("the invitation was used or revoked; ask for a new one");
  return absl::OkStatus();
}

absl::StatusOr<std::string> FetchAuthority(const std::string& address, const std::string& fingerprint,
                                           absl::Duration timeout) {
  TEMPER_ASSIGN_OR_RETURN(const HostPort to, SplitAddress(address));
  TEMPER_ASSIGN_OR_RETURN(const int fd, Dial(to, timeout));
  const absl::Cleanup close_it = [fd] { close(fd); };
  const std::unique_ptr<SSL_CTX, FreeBy<SSL_CTX_free>> context(SSL_CTX_new(TLS_client_method()));
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_NONE, nullptr);
  const std::unique_ptr<SSL, FreeBy<SSL_free>> ssl(SSL_new(context.get()));
  constexpr unsigned char kHttp2[] = {2, 'h', '2'};  // what a gRPC server speaks
  SSL_set_alpn_protos(ssl.get(), kHttp2, sizeof kHttp2);
  SSL_set_tlsext_host_name(ssl.get(), to.host.c_str());
  SSL_set_fd(ssl.get(), fd);
  if (SSL_connect(ssl.get()) != 1) {
    return absl::UnavailableError(absl::StrCat("no TLS at ", address, ": ", OpenSslError("shake hands").message()));
  }
  const STACK_OF(X509)* presented = SSL_get_peer_cert_chain(ssl.get());
  for (int i = 0; i < sk_X509_num(presented); ++i) {
    X509* certificate = sk_X509_value(presented, i);
    if (FingerprintOf(certificate) == fingerprint) return PemOf(certificate);
  }
  return absl::PermissionDeniedError(
      absl::StrCat("the server at ", address, " is not the one that the invitation comes from"));
}

}  // namespace temper
