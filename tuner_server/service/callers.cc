#include "tuner_server/service/callers.h"

#include <grpc/grpc_security_constants.h>
#include <grpcpp/security/auth_context.h>
#include <grpcpp/server_context.h>

#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "proto/channel.h"

namespace temper {
namespace {

std::string MetadataOf(const grpc::CallbackServerContext& context, const char* key) {
  const auto& metadata = context.client_metadata();
  const auto found = metadata.find(key);
  return found == metadata.end() ? "" : std::string(found->second.data(), found->second.size());
}

std::string PropertyOf(const grpc::AuthContext& auth, const char* name) {
  const std::vector<grpc::string_ref> values = auth.FindPropertyValues(name);
  return values.empty() ? "" : std::string(values[0].data(), values[0].size());
}

// A peer on this machine, as gRPC names it: "unix:...", "ipv4:127.0.0.1:1234", "ipv6:%5B::1%5D:1234".
bool IsLocal(const std::string& peer) {
  return peer.starts_with("unix:") || peer.starts_with("ipv4:127.") || peer.starts_with("ipv6:[::1]") ||
         peer.starts_with("ipv6:%5B::1%5D");
}

bool IsEncrypted(const grpc::AuthContext& auth) {
  return PropertyOf(auth, GRPC_TRANSPORT_SECURITY_TYPE_PROPERTY_NAME) == "tls";
}

Credentials CredentialsOf(const grpc::CallbackServerContext& context) {
  Credentials credentials;
  credentials.private_wire = IsEncrypted(*context.auth_context()) || IsLocal(context.peer());
  credentials.certificate_pem = Callers::CertificateOf(context);
  const std::string authorization = MetadataOf(context, kAuthorizationKey);
  if (authorization.starts_with(kBearerPrefix)) {
    credentials.bearer = authorization.substr(std::string_view(kBearerPrefix).size());
  } else {
    credentials.bearer = authorization;  // of another scheme: as malformed as a token can be
  }
  credentials.identity = MetadataOf(context, kIdentityKey);
  return credentials;
}

}  // namespace

Callers::Callers(Gate& gate, Metrics& metrics) : gate_(gate), metrics_(metrics) {
  gate_.OnRevocation([this] { CancelOutlived(); });
}

absl::StatusOr<Admitted> Callers::Admit(const grpc::CallbackServerContext& context, Call call, const Subject& subject) {
  Gate::Judgement judgement = gate_.Judge(CredentialsOf(context), call, subject);
  if (judgement.caller.ok()) {
    if (judgement.to_audit && !MayChange(*judgement.caller))
      return absl::ResourceExhaustedError("too many changes come from one user; try again in a minute");
    return Admitted{*std::move(judgement.caller), std::move(judgement.to_audit)};
  }
  const absl::Status refusal = judgement.caller.status();
  if (absl::IsUnauthenticated(refusal)) metrics_.Add(Metric::kDeniedCalls, "unauthenticated");
  if (absl::IsPermissionDenied(refusal)) metrics_.Add(Metric::kDeniedCalls, "forbidden");
  if (judgement.to_audit) {
    const absl::Status queued = refusals_.Run("", 0, [this, row = *std::move(judgement.to_audit)] { gate_.Keep(row); });
    if (!queued.ok()) spdlog::error("a refusal was not audited: {}", std::string(refusal.message()));
  }
  return refusal;
}

bool Callers::MayChange(const Principal& principal) {
  constexpr size_t kMostKnown = 1024;  // names, which on an open server are what callers say
  const std::string& who = Sharer(principal);
  if (who.empty() || principal.scopes.Has(Scope::kAdmin)) return true;
  const absl::Duration now = Clock::System().Monotonic();
  std::lock_guard lock(changes_mutex_);
  if (changes_.size() >= kMostKnown) std::erase_if(changes_, [now](const auto& of) { return of.second.IsWhole(now); });
  return changes_.try_emplace(who, kChangesAtOnce, kChangesPerSecond).first->second.Take(1, now);
}

bool Callers::Audit(const Admitted& admitted) { return !admitted.to_audit || gate_.Keep(*admitted.to_audit); }

void Callers::AuditFailure(const Admitted& admitted, const absl::Status& why) {
  if (!admitted.to_audit) return;
  AuditRow row = *admitted.to_audit;
  row.verdict = "failed";
  row.detail = std::string(why.message());
  gate_.Keep(row);
}

std::string Callers::CertificateOf(const grpc::CallbackServerContext& context) {
  const std::shared_ptr<const grpc::AuthContext> auth = context.auth_context();
  return IsEncrypted(*auth) ? PropertyOf(*auth, GRPC_X509_PEM_CERT_PROPERTY_NAME) : "";
}

void Callers::CancelOutlived() {
  std::lock_guard lock(mutex_);
  std::vector<int64_t> outlived;
  for (const auto& [id, call] : lasting_) {
    if (!gate_.StillStands(call.principal)) outlived.push_back(id);
  }
  for (const int64_t id : outlived) {
    if (const auto found = lasting_.find(id); found != lasting_.end()) found->second.context->TryCancel();
  }
}

Callers::Lasting::Lasting(Callers& callers, grpc::CallbackServerContext* context, Principal principal)
    : callers_(callers) {
  std::lock_guard lock(callers_.mutex_);
  id_ = callers_.next_id_++;
  const LastingCall& call = callers_.lasting_[id_] = {context, std::move(principal)};
  // What was revoked since the call was admitted has been told already.
  if (!callers_.gate_.StillStands(call.principal)) context->TryCancel();
}

Callers::Lasting::~Lasting() {
  std::lock_guard lock(callers_.mutex_);
  callers_.lasting_.erase(id_);
}

}  // namespace temper
