#include "tuner_server/service/admin_service.h"

#include <algorithm>

#include "tuner_server/service/calls.h"

namespace temper {
namespace {

constexpr int kDefaultPage = 100;

absl::Status Fill(const absl::StatusOr<MintedToken>& minted, v1::AddDeviceReply* reply) {
  if (!minted.ok()) return minted.status();
  reply->set_invitation(minted->text);
  reply->set_expires_unix_ms(minted->row.expires_unix_ms);
  return absl::OkStatus();
}

absl::Status Fill(const absl::StatusOr<MintedToken>& minted, v1::AddTokenReply* reply) {
  if (!minted.ok()) return minted.status();
  reply->set_id(minted->row.id);
  reply->set_token(minted->text);
  return absl::OkStatus();
}

absl::StatusOr<MintedToken> Make(Gate& gate, const v1::AddTokenRequest& request, absl::Time now) {
  TokenGrant grant;
  grant.owner = request.owner();
  grant.device_keys.assign(request.keys().begin(), request.keys().end());
  TEMPER_ASSIGN_OR_RETURN(grant.scopes, Scopes::Parse(request.scopes()));
  if (request.lifetime_ms() > 0) grant.expires = now + absl::Milliseconds(request.lifetime_ms());
  return gate.AddToken(grant);
}

v1::TokenSummary ToWire(const TokenRow& row) {
  v1::TokenSummary out;
  out.set_id(row.id);
  out.set_owner(row.owner);
  out.set_scopes(row.scopes);
  out.set_keys(row.keys);
  out.set_created_unix_ms(row.created_unix_ms);
  out.set_expires_unix_ms(row.expires_unix_ms);
  out.set_revoked(row.revoked);
  return out;
}

v1::AuditEntry ToWire(const AuditRow& row) {
  v1::AuditEntry out;
  out.set_id(row.id);
  out.set_time_unix_ms(row.time_unix_ms);
  out.set_principal(row.principal);
  out.set_call(row.call);
  out.set_subject(row.subject);
  out.set_verdict(row.verdict);
  out.set_detail(row.detail);
  return out;
}

void FillTokens(const Gate& gate, const v1::ListTokensRequest& request, v1::ListTokensReply* reply) {
  const int64_t limit = PageSize(request.limit(), kDefaultPage);
  for (const TokenRow& row : gate.Tokens(request.after(), static_cast<size_t>(limit) + 1)) {
    if (reply->tokens_size() == limit) {
      reply->set_next_after(reply->tokens(reply->tokens_size() - 1).id());
      break;
    }
    *reply->add_tokens() = ToWire(row);
  }
}

absl::Status FillAudit(Gate& gate, const v1::ListAuditRequest& request, v1::ListAuditReply* reply) {
  const int64_t limit = PageSize(request.limit(), kDefaultPage);
  TEMPER_ASSIGN_OR_RETURN(const std::vector<AuditRow> rows, gate.ListAudit(request.before(), limit + 1));
  for (const AuditRow& row : rows) {
    if (reply->entries_size() == limit) {
      reply->set_next_before(reply->entries(reply->entries_size() - 1).id());
      break;
    }
    *reply->add_entries() = ToWire(row);
  }
  return absl::OkStatus();
}

}  // namespace

grpc::ServerUnaryReactor* AdminServiceImpl::AddDevice(grpc::CallbackServerContext* context,
                                                      const v1::AddDeviceRequest* request, v1::AddDeviceReply* reply) {
  absl::Status status =
      Admit(callers_, *context, *request, kLargestQuery, Call::kAddDevice, {.text = request->key()}).status();
  if (status.ok()) status = Fill(gate_.Invite(request->key()), reply);
  return Answer(context, status);
}

void AdminServiceImpl::AdmitApproved(const std::string& key) {
  for (const Dispatcher::SessionView& view : core_.Sessions()) {
    if (view.info.device_key != key || !gate_.MayServe(key, view.info.fingerprint).value_or(false)) continue;
    core_.AdmitDevice(key, view.info.fingerprint);
  }
}

grpc::ServerUnaryReactor* AdminServiceImpl::ApproveDevice(grpc::CallbackServerContext* context,
                                                          const v1::ApproveDeviceRequest* request,
                                                          v1::ApproveDeviceReply* reply) {
  absl::Status status = Admit(callers_, *context, *request, kLargestQuery, Call::kApproveDevice,
                              {.text = absl::StrCat(request->key(), " ", request->fingerprint())})
                            .status();
  if (status.ok()) {
    const absl::StatusOr<int> approved = gate_.Approve(request->key(), request->fingerprint());
    status = approved.status();
    if (status.ok()) {
      AdmitApproved(request->key());
      reply->set_devices(*approved);
    }
  }
  return Answer(context, status);
}

grpc::ServerUnaryReactor* AdminServiceImpl::RevokeDevice(grpc::CallbackServerContext* context,
                                                         const v1::RevokeDeviceRequest* request,
                                                         v1::RevokeDeviceReply* reply) {
  absl::Status status =
      Admit(callers_, *context, *request, kLargestQuery, Call::kRevokeDevice, {.text = request->key()}).status();
  if (status.ok()) {
    const absl::StatusOr<int> revoked = gate_.Revoke(request->key());
    status = revoked.status();
    if (status.ok()) reply->set_certificates(*revoked);
  }
  return Answer(context, status);
}

grpc::ServerUnaryReactor* AdminServiceImpl::Drain(grpc::CallbackServerContext* context, const v1::DrainRequest* request,
                                                  v1::DrainReply* reply) {
  absl::Status status = Admit(callers_, *context, *request, kLargestQuery, Call::kDrain,
                              {.text = absl::StrCat(request->undo() ? "undo " : "", request->key(), request->name())})
                            .status();
  if (status.ok() && request->key().empty() == request->name().empty()) {
    status = absl::InvalidArgumentError("give a device key, or a worker's name");
  }
  if (status.ok()) {
    reply->set_workers(request->undo() ? core_.Undrain(request->key(), request->name())
                                       : core_.Drain(request->key(), request->name(), request->reason()));
  }
  return Answer(context, status);
}

grpc::ServerUnaryReactor* AdminServiceImpl::AddToken(grpc::CallbackServerContext* context,
                                                     const v1::AddTokenRequest* request, v1::AddTokenReply* reply) {
  absl::Status status = Admit(callers_, *context, *request, kLargestQuery, Call::kAddToken,
                              {.text = absl::StrCat(request->owner(), " ", request->scopes())})
                            .status();
  if (status.ok()) status = Fill(Make(gate_, *request, core_.clock().Wall()), reply);
  return Answer(context, status);
}

grpc::ServerUnaryReactor* AdminServiceImpl::RevokeToken(grpc::CallbackServerContext* context,
                                                        const v1::RevokeTokenRequest* request,
                                                        v1::RevokeTokenReply* reply) {
  absl::Status status =
      Admit(callers_, *context, *request, kLargestQuery, Call::kRevokeToken, {.text = request->id()}).status();
  if (status.ok()) status = gate_.RevokeToken(request->id());
  return Answer(context, status);
}

grpc::ServerUnaryReactor* AdminServiceImpl::ListTokens(grpc::CallbackServerContext* context,
                                                       const v1::ListTokensRequest* request,
                                                       v1::ListTokensReply* reply) {
  const absl::Status status = Admit(callers_, *context, *request, kLargestQuery, Call::kListTokens).status();
  if (status.ok()) FillTokens(gate_, *request, reply);
  return Answer(context, status);
}

grpc::ServerUnaryReactor* AdminServiceImpl::ListAudit(grpc::CallbackServerContext* context,
                                                      const v1::ListAuditRequest* request, v1::ListAuditReply* reply) {
  absl::Status status = Admit(callers_, *context, *request, kLargestQuery, Call::kListAudit).status();
  if (status.ok()) status = FillAudit(gate_, *request, reply);
  return Answer(context, status);
}

}  // namespace temper
