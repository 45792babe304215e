#include "client/admin_client.h"

#include <algorithm>

#include "temper/v1/admin.grpc.pb.h"

namespace temper {
namespace {

constexpr int64_t kEntriesAPage = 500;
using Stub = v1::AdminService::Stub;

}  // namespace

struct AdminClient::Impl : ServiceConnection<v1::AdminService> {};

AdminClient::AdminClient(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
AdminClient::~AdminClient() = default;

const std::string& AdminClient::address() const { return impl_->connection->address(); }

absl::StatusOr<std::unique_ptr<AdminClient>> AdminClient::Connect(const std::string& address,
                                                                  const ClientOptions& options) {
  auto impl = std::make_unique<Impl>();
  TEMPER_RETURN_IF_ERROR(impl->Dial(address, options));
  return std::unique_ptr<AdminClient>(new AdminClient(std::move(impl)));
}

absl::StatusOr<v1::AddDeviceReply> AdminClient::AddDevice(const std::string& key) {
  v1::AddDeviceRequest request;
  request.set_key(key);
  v1::AddDeviceReply reply;
  TEMPER_RETURN_IF_ERROR(impl_->Call(&Stub::AddDevice, request, reply));
  return reply;
}

absl::StatusOr<int> AdminClient::ApproveDevice(const std::string& key, const std::string& fingerprint) {
  v1::ApproveDeviceRequest request;
  request.set_key(key);
  request.set_fingerprint(fingerprint);
  v1::ApproveDeviceReply reply;
  TEMPER_RETURN_IF_ERROR(impl_->Call(&Stub::ApproveDevice, request, reply));
  return reply.devices();
}

absl::StatusOr<int> AdminClient::Drain(const v1::DrainRequest& request) {
  v1::DrainReply reply;
  TEMPER_RETURN_IF_ERROR(impl_->Call(&Stub::Drain, request, reply));
  return reply.workers();
}

absl::StatusOr<int> AdminClient::RevokeDevice(const std::string& key) {
  v1::RevokeDeviceRequest request;
  request.set_key(key);
  v1::RevokeDeviceReply reply;
  TEMPER_RETURN_IF_ERROR(impl_->Call(&Stub::RevokeDevice, request, reply));
  return reply.certificates();
}

absl::StatusOr<v1::AddTokenReply> AdminClient::AddToken(const v1::AddTokenRequest& request) {
  v1::AddTokenReply reply;
  TEMPER_RETURN_IF_ERROR(impl_->Call(&Stub::AddToken, request, reply));
  return reply;
}

absl::Status AdminClient::RevokeToken(const std::string& id) {
  v1::RevokeTokenRequest request;
  request.set_id(id);
  v1::RevokeTokenReply reply;
  return impl_->Call(&Stub::RevokeToken, request, reply);
}

absl::StatusOr<std::vector<v1::TokenSummary>> AdminClient::ListTokens() {
  std::vector<v1::TokenSummary> tokens;
  v1::ListTokensRequest request;
  do {
    v1::ListTokensReply reply;
    TEMPER_RETURN_IF_ERROR(impl_->Call(&Stub::ListTokens, request, reply));
    tokens.insert(tokens.end(), reply.tokens().begin(), reply.tokens().end());
    if (!reply.next_after().empty() && reply.next_after() <= request.after()) return RefusedAnswer(kSamePage);
    request.set_after(reply.next_after());
  } while (!request.after().empty());
  return tokens;
}

absl::StatusOr<std::vector<v1::AuditEntry>> AdminClient::ListAudit(int64_t most) {
  std::vector<v1::AuditEntry> entries;
  v1::ListAuditRequest request;
  do {
    request.set_limit(static_cast<int32_t>(std::min(most - static_cast<int64_t>(entries.size()), kEntriesAPage)));
    v1::ListAuditReply reply;
    TEMPER_RETURN_IF_ERROR(impl_->Call(&Stub::ListAudit, request, reply));
    entries.insert(entries.end(), reply.entries().begin(), reply.entries().end());
    if (request.before() != 0 && reply.next_before() >= request.before()) return RefusedAnswer(kSamePage);
    request.set_before(reply.next_before());
  } while (request.before() != 0 && static_cast<int64_t>(entries.size()) < most);
  return entries;
}

}  // namespace temper
