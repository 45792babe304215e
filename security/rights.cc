#include "security/rights.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "security/secret.h"

namespace temper {
namespace {

constexpr size_t kShownOfIdentity = 16;

constexpr Right kRights[] = {
    {Call::kSubmitJob, "SubmitJob", Scope::kSubmit, About::kDeviceKey, true},
    {Call::kWatchJob, "WatchJob", Scope::kRead, About::kNothing, false},
    {Call::kCancelJob, "CancelJob", Scope::kSubmit, About::kJob, true},
    {Call::kSetPriority, "SetPriority", Scope::kSubmit, About::kJob, true},
    {Call::kListJobs, "ListJobs", Scope::kRead, About::kNothing, false},
    {Call::kListDevices, "ListDevices", Scope::kRead, About::kNothing, false},
    {Call::kQueryBest, "QueryBest", Scope::kRead, About::kNothing, false},
    {Call::kQueryVerdict, "QueryVerdict", Scope::kRead, About::kNothing, false},
    {Call::kPutRecords, "PutRecords", Scope::kSubmit, About::kDeviceKey, true},
    {Call::kTrustRecords, "TrustRecords", Scope::kAdmin, About::kNothing, true},
    {Call::kExportRecords, "ExportRecords", Scope::kRead, About::kNothing, false},
    {Call::kRegister, "Register", Scope::kMeasure, About::kDeviceKey, false},
    {Call::kSync, "Sync", Scope::kMeasure, About::kNothing, false},
    {Call::kSubmitResults, "SubmitResults", Scope::kMeasure, About::kNothing, false},
    {Call::kLeave, "Leave", Scope::kMeasure, About::kNothing, false},
    {Call::kJoin, "Join", std::nullopt, About::kNothing, false},
    {Call::kRenew, "Renew", Scope::kMeasure, About::kNothing, false},
    {Call::kAddDevice, "AddDevice", Scope::kAdmin, About::kNothing, true},
    {Call::kApproveDevice, "ApproveDevice", Scope::kAdmin, About::kNothing, true},
    {Call::kRevokeDevice, "RevokeDevice", Scope::kAdmin, About::kNothing, true},
    {Call::kDrain, "Drain", Scope::kAdmin, About::kNothing, true},
    {Call::kAddToken, "AddToken", Scope::kAdmin, About::kNothing, true},
    {Call::kListTokens, "ListTokens", Scope::kAdmin, About::kNothing, false},
    {Call::kRevokeToken, "RevokeToken", Scope::kAdmin, About::kNothing, true},
    {Call::kListAudit, "ListAudit", Scope::kAdmin, About::kNothing, false},
};

absl::Status CheckDevice(const Principal& principal, const std::string& key) {
  const auto& keys = principal.device_keys;
  if (principal.every_key || key.empty() || std::find(keys.begin(), keys.end(), key) != keys.end()) {
    return absl::OkStatus();
  }
  return absl::PermissionDeniedError(absl::StrCat(Describe(principal), " has no right to the device key '", key, "'"));
}

absl::Status CheckOwner(const Principal& principal, const std::string& owner) {
  const bool admin = principal.kind != Principal::Kind::kAnonymous && principal.scopes.Has(Scope::kAdmin);
  if (admin || owner.empty() || owner == principal.owner) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat("the job belongs to ", owner, ", and ", Describe(principal), " is neither that nor an admin"));
}

}  // namespace

const std::string& Sharer(const Principal& principal) {
  return principal.owner.empty() ? principal.holds : principal.owner;
}

std::string Describe(const Principal& principal) {
  switch (principal.kind) {
    case Principal::Kind::kAnonymous:
      return principal.owner.empty() ? "a caller without a name" : principal.owner;
    case Principal::Kind::kToken:
      return absl::StrCat("token ", principal.id, " (", principal.owner, ")");
    case Principal::Kind::kCertificate:
      return absl::StrCat("certificate ", principal.id);
  }
  return "";
}

Principal OpenPrincipal(std::string_view identity) {
  Principal principal;
  // Who knows an identity is its client, so what all may read is only made of it.
  if (!identity.empty()) principal.owner = absl::StrCat("client-", Sha256Hex(identity).substr(0, kShownOfIdentity));
  principal.scopes = {Scope::kRead, Scope::kSubmit, Scope::kMeasure, Scope::kAdmin};
  principal.every_key = true;
  return principal;
}

std::span<const Right> Rights() { return kRights; }
const Right& RightOf(Call call) { return kRights[static_cast<size_t>(call)]; }

absl::Status Allowed(const Principal& principal, Call call, const Subject& subject) {
  const Right& right = RightOf(call);
  if (right.scope && !principal.scopes.Has(*right.scope)) {
    if (principal.kind == Principal::Kind::kAnonymous) {
      const char* worker = *right.scope == Scope::kMeasure ? ", or a worker's certificate" : "";
      return absl::UnauthenticatedError(
          absl::StrCat(right.name, " needs a token with the scope ", Name(*right.scope), worker));
    }
    return absl::PermissionDeniedError(
        absl::StrCat(right.name, " needs the scope ", Name(*right.scope), ", which ", Describe(principal), " lacks"));
  }
  switch (right.about) {
    case About::kNothing:
      return absl::OkStatus();
    case About::kDeviceKey:
      return CheckDevice(principal, subject.device_key);
    case About::kJob:
      return CheckOwner(principal, subject.owner);
  }
  return absl::OkStatus();
}

}  // namespace temper
