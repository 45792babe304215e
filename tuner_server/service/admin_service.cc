#include "tuner_server/service/admin_service.h"

#include <algorithm>

#include "base/log.h"
#include "proto/convert.h"
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
  out.set_owner(NameForWire(row.owner));
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
  return AnswerAs(context, *request, Call::kAddDevice, request->key(),
                  [=, this] { return Fill(gate_.Invite(request->key()), reply); });
}

void AdminServiceImpl::AdmitApproved(const std::string& key) {
  for (const std::string& fingerprint : core_.HeldBack(key)) {
    if (gate_.IsApproved(key, fingerprint)) core_.AdmitDevice(key, fingerprint);
  }
}

grpc::ServerUnaryReactor* AdminServiceImpl::ApproveDevice(grpc::CallbackServerContext* context,
                                                          const v1::ApproveDeviceRequest* request,
                                                          v1::ApproveDeviceReply* reply) {
  return AnswerAs(context, *request, Call::kApproveDevice, absl::StrCat(request->key(), " ", request->fingerprint()),
                  [=, this]() -> absl::Status {
                    TEMPER_ASSIGN_OR_RETURN(const int approved, gate_.Approve(request->key(), request->fingerprint()));
                    AdmitApproved(request->key());
                    reply->set_devices(approved);
                    return absl::OkStatus();
                  });
}

grpc::ServerUnaryReactor* AdminServiceImpl::RevokeDevice(grpc::CallbackServerContext* context,
                                                         const v1::RevokeDeviceRequest* request,
                                                         v1::RevokeDeviceReply* reply) {
  return AnswerAs(context, *request, Call::kRevokeDevice, request->key(), [=, this]() -> absl::Status {
    const absl::StatusOr<int> revoked = gate_.Revoke(request->key());
    // Those that came with a token, which stands, get nothing more. Like the revocation, that holds where the store
    // fails.
    core_.HoldBackKey(request->key(), Gate::WhyRevoked(request->key()));
    if (revoked.ok()) reply->set_certificates(*revoked);
    return revoked.status();
  });
}

grpc::ServerUnaryReactor* AdminServiceImpl::Drain(grpc::CallbackServerContext* context, const v1::DrainRequest* request,
                                                  v1::DrainReply* reply) {
  return AnswerAs(context, *request, Call::kDrain,
                  absl::StrCat(request->undo() ? "undo " : "", request->key(), request->name()), [=, this] {
                    if (request->key().empty() == request->name().empty())
                      return absl::InvalidArgumentError("give a device key, or a worker's name");
                    reply->set_workers(request->undo()
                                           ? core_.Undrain(request->key(), request->name())
                                           : core_.Drain(request->key(), request->name(), request->reason()));
                    return absl::OkStatus();
                  });
}

grpc::ServerUnaryReactor* AdminServiceImpl::AddToken(grpc::CallbackServerContext* context,
                                                     const v1::AddTokenRequest* request, v1::AddTokenReply* reply) {
  return AnswerAs(context, *request, Call::kAddToken, absl::StrCat(request->owner(), " ", request->scopes()),
                  [=, this] { return Fill(Make(gate_, *request, core_.clock().Wall()), reply); });
}

grpc::ServerUnaryReactor* AdminServiceImpl::RevokeToken(grpc::CallbackServerContext* context,
                                                        const v1::RevokeTokenRequest* request,
                                                        v1::RevokeTokenReply* reply) {
  return AnswerAs(context, *request, Call::kRevokeToken, request->id(), [=, this] {
    const std::string owner = gate_.OwnerOf(request->id());
    const absl::Status revoked = gate_.RevokeToken(request->id());
    if (!owner.empty()) CancelNobodysJobs(owner);  // like the revocation, also where the store fails
    return revoked;
  });
}

void AdminServiceImpl::CancelNobodysJobs(const std::string& owner) {
  const auto nobodys = [&](const std::string& key) { return !gate_.MaySubmit(owner, key); };
  if (const int jobs = core_.CancelJobsOf(owner, nobodys, kNobodysJob); jobs > 0)
    spdlog::warn("{} jobs of {} are cancelled: {}", jobs, owner, kNobodysJob);
}

grpc::ServerUnaryReactor* AdminServiceImpl::ListTokens(grpc::CallbackServerContext* context,
                                                       const v1::ListTokensRequest* request,
                                                       v1::ListTokensReply* reply) {
  return AnswerAs(context, *request, Call::kListTokens, "", [=, this] {
    FillTokens(gate_, *request, reply);
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* AdminServiceImpl::ListAudit(grpc::CallbackServerContext* context,
                                                      const v1::ListAuditRequest* request, v1::ListAuditReply* reply) {
  return AnswerAs(context, *request, Call::kListAudit, "", [=, this] { return FillAudit(gate_, *request, reply); });
}

}  // namespace temper
