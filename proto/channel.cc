#include "proto/channel.h"

#include <google/protobuf/stubs/logging.h>
#include <grpc/support/log.h>
#include <grpcpp/security/tls_credentials_options.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "security/certificate.h"

namespace temper {
namespace {

constexpr int kKeepaliveMs = 20'000, kKeepaliveTimeoutMs = 10'000;

// gRPC takes what the files hold for good, and says nothing.
absl::StatusOr<TlsTexts> TextsOf(const TlsFiles& files, absl::Time now) {
  TEMPER_ASSIGN_OR_RETURN(TlsTexts texts, ReadTlsFiles(files));
  if (files.certificate.empty()) return texts;
  TEMPER_ASSIGN_OR_RETURN(const Certificate certificate, ReadCertificate(texts.certificate));
  const absl::Status fresh = CheckTime(certificate, now);
  if (!fresh.ok()) return absl::Status(fresh.code(), absl::StrCat(files.certificate, ": ", fresh.message()));
  return texts;
}

std::shared_ptr<grpc::ChannelCredentials> CredentialsBy(
    std::shared_ptr<grpc::experimental::CertificateProviderInterface> provider, bool shows_certificate) {
  grpc::experimental::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(std::move(provider));
  options.watch_root_certs();
  if (shows_certificate) options.watch_identity_key_cert_pairs();
  return grpc::experimental::TlsCredentials(options);
}

// gRPC would try port 443 instead.
bool NamesAPort(const std::string& address) {
  const size_t colon = address.rfind(':'), bracket = address.rfind(']');
  return colon != std::string::npos && colon + 1 < address.size() && (bracket == std::string::npos || colon > bracket);
}

absl::Status CheckRequest(const std::string& address, const TlsFiles& files) {
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
  return absl::OkStatus();
}

bool IsPlaintext(const std::string& address, const TlsFiles& files) {
  return files.authority.empty() || address.starts_with("unix:");
}

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> ChannelCredentialsOf(const std::string& address,
                                                                               const TlsFiles& files, absl::Time now) {
  TEMPER_RETURN_IF_ERROR(CheckRequest(address, files));
  if (IsPlaintext(address, files)) return grpc::InsecureChannelCredentials();
  TEMPER_ASSIGN_OR_RETURN(const TlsTexts texts, TextsOf(files, now));
  if (files.certificate.empty()) return ChannelCredentialsFor(texts.authority);
  const std::vector<grpc::experimental::IdentityKeyCertPair> identity{{texts.key, texts.certificate}};
  return CredentialsBy(std::make_shared<grpc::experimental::StaticDataCertificateProvider>(texts.authority, identity),
                       true);
}

absl::StatusOr<WatchedCredentials> WatchedCredentialsOf(const std::string& address, const TlsFiles& files,
                                                        absl::Time now) {
  TEMPER_RETURN_IF_ERROR(CheckRequest(address, files));
  if (IsPlaintext(address, files)) return WatchedCredentials{nullptr, grpc::InsecureChannelCredentials()};
  TEMPER_RETURN_IF_ERROR(TextsOf(files, now).status());
  WatchedCredentials watched;
  TEMPER_ASSIGN_OR_RETURN(watched.watch, TlsWatch::Make(files));
  watched.credentials = CredentialsBy(watched.watch->Provider(), !files.certificate.empty());
  return watched;
}

std::shared_ptr<grpc::ChannelCredentials> ChannelCredentialsFor(const std::string& authority_pem) {
  return CredentialsBy(std::make_shared<grpc::experimental::StaticDataCertificateProvider>(authority_pem), false);
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

void LogLibrariesQuietly() {
  gpr_set_log_function([](gpr_log_func_args* line) { spdlog::debug("grpc: {}", line->message); });
  google::protobuf::SetLogHandler([](google::protobuf::LogLevel, const char*, int, const std::string& message) {
    spdlog::debug("protobuf: {}", message);
  });
}

bool StaysOnThisMachine(const std::string& address) {
  return address.starts_with("unix:") || address.starts_with("localhost:") || address.starts_with("127.") ||
         address.starts_with("[::1]:");
}

}  // namespace temper
