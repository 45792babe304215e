#include "security/server_directory.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/secure_random.h"
#include "security/files.h"
#include "security/token.h"

namespace temper {
namespace {

namespace fs = std::filesystem;

constexpr char kAuthorityKey[] = "/ca.key", kAuthority[] = "/ca.crt", kServerKey[] = "/server.key",
               kServer[] = "/server.crt", kToken[] = "/admin.token", kTokenHash[] = "/admin.hash";
constexpr char kAdmin[] = "admin";

std::vector<std::string> AllHosts(std::span<const std::string> hosts) {
  std::vector<std::string> all(hosts.begin(), hosts.end());
  char own[256] = "";
  gethostname(own, sizeof own - 1);
  for (const char* host : {"localhost", "127.0.0.1", "::1", static_cast<const char*>(own)}) {
    if (*host != '\0' && std::find(all.begin(), all.end(), host) == all.end()) all.emplace_back(host);
  }
  return all;
}

TokenRow AdminRow(TokenRow row) {
  row.owner = kAdmin;
  row.scopes = Name(Scope::kAdmin);
  return row;
}

absl::Status Fill(const std::string& dir, std::span<const std::string> hosts, absl::Time now) {
  TEMPER_ASSIGN_OR_RETURN(const PrivateKey authority_key, PrivateKey::Generate());
  TEMPER_ASSIGN_OR_RETURN(const CertificateAuthority authority,
                          CertificateAuthority::Create(authority_key, {now, now + kAuthorityLifetime}));
  TEMPER_ASSIGN_OR_RETURN(const PrivateKey server_key, PrivateKey::Generate());
  TEMPER_ASSIGN_OR_RETURN(const std::string server,
                          authority.SignServer(server_key, AllHosts(hosts), {now, now + kServerLifetime}));
  const MintedToken token = MintToken({kAdmin, {Scope::kAdmin}, {}, absl::InfiniteFuture()}, now);
  const struct {
    const char* name;
    std::string content;
    Secrecy secrecy;
  } files[] = {
      {kAuthorityKey, authority_key.Pem(), Secrecy::kPrivate},
      {kAuthority, authority.certificate_pem(), Secrecy::kPublic},
      {kServerKey, server_key.Pem(), Secrecy::kPrivate},
      {kServer, server, Secrecy::kPublic},
      {kToken, absl::StrCat(token.text, "\n"), Secrecy::kPrivate},
      {kTokenHash, absl::StrCat(token.row.id, " ", token.row.hash, "\n"), Secrecy::kPrivate},
  };
  for (const auto& file : files) {
    TEMPER_RETURN_IF_ERROR(WriteWholeFile(absl::StrCat(dir, file.name), file.content, file.secrecy, Existing::kRefuse));
  }
  return absl::OkStatus();
}

absl::StatusOr<TokenRow> ReadAdminRow(const std::string& path) {
  TEMPER_ASSIGN_OR_RETURN(const std::string content, ReadSmallFile(path, Secrecy::kPrivate));
  const std::vector<std::string> parts = absl::StrSplit(absl::StripAsciiWhitespace(content), ' ');
  if (parts.size() != 2) return absl::InvalidArgumentError(absl::StrCat(path, " is damaged"));
  TokenRow row;
  row.id = parts[0];
  row.hash = parts[1];
  return AdminRow(std::move(row));
}

}  // namespace

absl::Status InitServerDirectory(const std::string& dir, std::span<const std::string> hosts, absl::Time now) {
  const absl::Status there = absl::AlreadyExistsError(absl::StrCat(dir, " is there already and stays as it is"));
  std::string path = dir;
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  std::error_code error;
  if (fs::exists(fs::symlink_status(path, error))) return there;
  const std::string draft = absl::StrCat(path, ".", SecureHex());
  if (mkdir(draft.c_str(), 0700) != 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot make ", path));
  const absl::Cleanup remove_draft = [&] { fs::remove_all(draft, error); };
  TEMPER_RETURN_IF_ERROR(Fill(draft, hosts, now));
  if (std::rename(draft.c_str(), path.c_str()) != 0) {
    return errno == ENOTEMPTY || errno == EEXIST ? there
                                                 : absl::ErrnoToStatus(errno, absl::StrCat("cannot make ", path));
  }
  return absl::OkStatus();
}

absl::StatusOr<ServerDirectory> OpenServerDirectory(const std::string& dir) {
  const auto key = ReadSmallFile(absl::StrCat(dir, kAuthorityKey), Secrecy::kPrivate);
  if (absl::IsNotFound(key.status())) {
    return absl::NotFoundError(absl::StrCat(dir, " is no server's directory; run: temper-server init ", dir));
  }
  if (!key.ok()) return key.status();
  TEMPER_ASSIGN_OR_RETURN(const std::string certificate,
                          ReadSmallFile(absl::StrCat(dir, kAuthority), Secrecy::kPublic));
  TEMPER_ASSIGN_OR_RETURN(CertificateAuthority authority, CertificateAuthority::Load(certificate, *key));
  TEMPER_ASSIGN_OR_RETURN(TokenRow admin, ReadAdminRow(absl::StrCat(dir, kTokenHash)));
  TEMPER_RETURN_IF_ERROR(ReadSmallFile(absl::StrCat(dir, kServerKey), Secrecy::kPrivate).status());
  return ServerDirectory{std::move(authority), std::move(admin), absl::StrCat(dir, kServer),
                         absl::StrCat(dir, kServerKey), absl::StrCat(dir, kAuthority)};
}

absl::Status RenewServerCertificate(const std::string& dir, absl::Time now) {
  TEMPER_ASSIGN_OR_RETURN(const ServerDirectory server, OpenServerDirectory(dir));
  TEMPER_ASSIGN_OR_RETURN(const std::string key_pem, ReadSmallFile(server.key_path, Secrecy::kPrivate));
  TEMPER_ASSIGN_OR_RETURN(const PrivateKey key, PrivateKey::FromPem(key_pem));
  TEMPER_ASSIGN_OR_RETURN(const std::string before, ReadSmallFile(server.certificate_path, Secrecy::kPublic));
  TEMPER_ASSIGN_OR_RETURN(const Certificate certificate, ReadCertificate(before));
  TEMPER_ASSIGN_OR_RETURN(const std::string renewed,
                          server.authority.SignServer(key, certificate.hosts, {now, now + kServerLifetime}));
  return WriteWholeFile(server.certificate_path, renewed, Secrecy::kPublic, Existing::kReplace);
}

absl::Status KeepServerCertificate(const std::string& dir, absl::Time now) {
  TEMPER_ASSIGN_OR_RETURN(const std::string pem, ReadSmallFile(absl::StrCat(dir, kServer), Secrecy::kPublic));
  TEMPER_ASSIGN_OR_RETURN(const Certificate certificate, ReadCertificate(pem));
  return now < RenewedFrom(certificate) ? absl::OkStatus() : RenewServerCertificate(dir, now);
}

}  // namespace temper
