#include "measure_worker/service/membership.h"

#include <grpcpp/grpcpp.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "base/secure_random.h"
#include "proto/convert.h"
#include "security/certificate.h"
#include "security/files.h"
#include "security/join.h"
#include "security/key.h"
#include "temper/v1/admin.grpc.pb.h"

namespace temper::worker {
namespace {

namespace fs = std::filesystem;

constexpr absl::Duration kPatience = absl::Seconds(20);
constexpr absl::Duration kRenewPatience = absl::Seconds(5);  // a worker that ends waits for it
constexpr char kKey[] = "/worker.key", kCertificate[] = "/worker.crt", kAuthority[] = "/ca.crt";

std::string DirectoryOf(const std::string& state_directory, const std::string& device_key) {
  return absl::StrCat(state_directory, "/workers/", device_key);
}

absl::StatusOr<v1::JoinReply> AskToJoin(const std::string& server, const std::string& authority_pem,
                                        const std::string& invitation, const PrivateKey& key) {
  v1::JoinRequest request;
  request.set_invitation(invitation);
  TEMPER_ASSIGN_OR_RETURN(*request.mutable_signing_request(), key.CertificateRequest());
  const auto stub = v1::EnrollService::NewStub(
      grpc::CreateCustomChannel(server, ChannelCredentialsFor(authority_pem), ChannelSettings()));
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + kPatience));
  v1::JoinReply reply;
  if (const grpc::Status status = stub->Join(&context, request, &reply); !status.ok()) return FromGrpc(status);
  return reply;
}

// All of it or nothing: a key and a certificate that do not belong together are worse than none.
absl::Status Keep(const std::string& directory, const PrivateKey& key, const v1::JoinReply& reply,
                  const std::string& authority_pem) {
  const std::string draft = absl::StrCat(directory, ".", SecureHex());
  std::error_code error;
  fs::create_directories(draft, error);
  fs::permissions(draft, fs::perms::owner_all, error);
  absl::Status status = WriteWholeFile(absl::StrCat(draft, kKey), key.Pem(), Secrecy::kPrivate, Existing::kRefuse);
  status.Update(
      WriteWholeFile(absl::StrCat(draft, kCertificate), reply.certificate(), Secrecy::kPublic, Existing::kRefuse));
  status.Update(WriteWholeFile(absl::StrCat(draft, kAuthority), authority_pem, Secrecy::kPublic, Existing::kRefuse));
  if (status.ok()) {
    fs::remove_all(directory, error);
    fs::rename(draft, directory, error);
    if (error) status = absl::UnavailableError(absl::StrCat("cannot make ", directory, ": ", error.message()));
  }
  fs::remove_all(draft, error);
  return status;
}

absl::StatusOr<v1::RenewReply> AskToRenew(const std::string& server, const TlsFiles& files, absl::Time now) {
  TEMPER_ASSIGN_OR_RETURN(const auto credentials, ChannelCredentialsOf(server, files, now));
  const auto stub = v1::EnrollService::NewStub(grpc::CreateCustomChannel(server, credentials, ChannelSettings()));
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + kRenewPatience));
  v1::RenewReply reply;
  if (const grpc::Status status = stub->Renew(&context, {}, &reply); !status.ok()) return FromGrpc(status);
  return reply;
}

}  // namespace

TlsFiles MembershipOf(const std::string& state_directory, const std::string& device_key) {
  const std::string directory = DirectoryOf(state_directory, device_key);
  std::error_code error;
  if (state_directory.empty() || !CheckDeviceKey(device_key).ok() || !fs::exists(directory, error)) return {};
  return {absl::StrCat(directory, kAuthority), absl::StrCat(directory, kCertificate), absl::StrCat(directory, kKey)};
}

absl::StatusOr<std::string> JoinFleet(const std::string& server, const std::string& invitation,
                                      const std::string& state_directory) {
  if (state_directory.empty()) return absl::FailedPreconditionError("give --state-dir, or set XDG_STATE_HOME or HOME");
  TEMPER_ASSIGN_OR_RETURN(const Invitation read, ParseInvitation(invitation));
  TEMPER_ASSIGN_OR_RETURN(const std::string authority_pem,
                          FetchAuthority(server, read.authority_fingerprint, kPatience));
  TEMPER_ASSIGN_OR_RETURN(const PrivateKey key, PrivateKey::Generate());
  TEMPER_ASSIGN_OR_RETURN(const v1::JoinReply reply, AskToJoin(server, authority_pem, invitation, key));
  TEMPER_RETURN_IF_ERROR(CheckDeviceKey(reply.device_key()));
  TEMPER_ASSIGN_OR_RETURN(const CertificateVerifier verifier, CertificateVerifier::Make(authority_pem));
  TEMPER_RETURN_IF_ERROR(verifier.Verify(reply.certificate()).status());
  TEMPER_RETURN_IF_ERROR(Keep(DirectoryOf(state_directory, reply.device_key()), key, reply, authority_pem));
  return reply.device_key();
}

absl::StatusOr<bool> RenewMembership(const std::string& server, const TlsFiles& files, absl::Time now) {
  if (files.certificate.empty() || server.starts_with("unix:")) return false;  // it is not shown there
  TEMPER_ASSIGN_OR_RETURN(const std::string before, ReadSmallFile(files.certificate, Secrecy::kPublic));
  TEMPER_ASSIGN_OR_RETURN(const Certificate certificate, ReadCertificate(before));
  if (now < RenewedFrom(certificate)) return false;
  TEMPER_ASSIGN_OR_RETURN(const v1::RenewReply reply, AskToRenew(server, files, now));
  TEMPER_ASSIGN_OR_RETURN(const std::string authority_pem, ReadSmallFile(files.authority, Secrecy::kPublic));
  TEMPER_ASSIGN_OR_RETURN(const CertificateVerifier verifier, CertificateVerifier::Make(authority_pem));
  TEMPER_ASSIGN_OR_RETURN(const Certificate renewed, verifier.Verify(reply.certificate()));
  if (renewed.public_key != certificate.public_key || renewed.device_keys != certificate.device_keys) {
    return absl::DataLossError("the server's answer is refused: the certificate is another worker's");
  }
  TEMPER_RETURN_IF_ERROR(WriteWholeFile(files.certificate, reply.certificate(), Secrecy::kPublic, Existing::kReplace));
  return true;
}

}  // namespace temper::worker
