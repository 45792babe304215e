#include "proto/channel.h"

#include <grpc/support/log.h>
#include <grpcpp/security/tls_credentials_options.h>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "security/certificate.h"
#include "security/files.h"
#include "security/key.h"

namespace temper {
namespace {

constexpr unsigned kLookAgainSeconds = 10;
constexpr int kKeepaliveMs = 20'000, kKeepaliveTimeoutMs = 10'000;

absl::Status Checked(const std::string& path, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(path, ": ", status.message()));
}

// gRPC would wait for ever for a file that it can not read, and say nothing.
absl::Status CheckFiles(const TlsFiles& files, absl::Time now) {
  TEMPER_ASSIGN_OR_RETURN(const std::string authority, ReadSmallFile(files.authority, Secrecy::kPublic));
  TEMPER_RETURN_IF_ERROR(Checked(files.authority, ReadCertificate(authority).status()));
  if (files.certificate.empty()) return absl::OkStatus();
  TEMPER_ASSIGN_OR_RETURN(const std::string certificate, ReadSmallFile(files.certificate, Secrecy::kPublic));
  TEMPER_ASSIGN_OR_RETURN(const std::string key, ReadSmallFile(files.key, Secrecy::kPrivate));
  TEMPER_RETURN_IF_ERROR(Checked(files.key, PrivateKey::FromPem(key).status()));
  const absl::StatusOr<Certificate> read = ReadCertificate(certificate);
  TEMPER_RETURN_IF_ERROR(Checked(files.certificate, read.status()));
  return Checked(files.certificate, CheckTime(*read, now));
}

// gRPC would try port 443 instead.
bool NamesAPort(const std::string& address) {
  const size_t colon = address.rfind(':'), bracket = address.rfind(']');
  return colon != std::string::npos && colon + 1 < address.size() && (bracket == std::string::npos || colon > bracket);
}

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> ChannelCredentialsOf(const std::string& address,
                                                                               const TlsFiles& files, absl::Time now) {
  if (!NamesAPort(address)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the server's address '", address, "' has no port: use HOST:PORT or unix:PATH"));
  }
  if (files.certificate.empty() != files.key.empty()) {
    return absl::InvalidArgumentError("a certificate and its key are given together");
  }
  if (files.authority.empty() && !files.certificate.empty()) {
    return absl::InvalidArgumentError("a certificate is shown to servers of an authority: give that one's certificate");
  }
  if (files.authority.empty() || address.starts_with("unix:")) return grpc::InsecureChannelCredentials();
  TEMPER_RETURN_IF_ERROR(CheckFiles(files, now));
  grpc::experimental::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(
      files.key, files.certificate, files.authority, kLookAgainSeconds));
  options.watch_root_certs();
  if (!files.certificate.empty()) options.watch_identity_key_cert_pairs();
  return grpc::experimental::TlsCredentials(options);
}

std::shared_ptr<grpc::ChannelCredentials> ChannelCredentialsFor(const std::string& authority_pem) {
  grpc::experimental::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(std::make_shared<grpc::experimental::StaticDataCertificateProvider>(authority_pem));
  options.watch_root_certs();
  return grpc::experimental::TlsCredentials(options);
}

grpc::ChannelArguments ChannelSettings() {
  grpc::ChannelArguments settings;
  settings.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  settings.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  settings.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  settings.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // Proxies of the environment are for the web, not for a tuning server.
  settings.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  settings.SetInt(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
  return settings;
}

void LogGrpcQuietly() {
  gpr_set_log_function([](gpr_log_func_args* line) { spdlog::debug("grpc: {}", line->message); });
}

bool StaysOnThisMachine(const std::string& address) {
  return address.starts_with("unix:") || address.starts_with("localhost:") || address.starts_with("127.") ||
         address.starts_with("[::1]:");
}

}  // namespace temper
