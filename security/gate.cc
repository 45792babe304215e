#include "security/gate.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/utf8.h"

namespace temper {
namespace {

constexpr size_t kMostVerified = 4096;
constexpr char kApproved[] = "approved", kPending[] = "pending", kRevoked[] = "revoked";

// What a refused caller claims to be, for the audit.
std::string Claim(const Credentials& credentials) {
  if (!credentials.bearer.empty()) {
    const auto token = ParseToken(credentials.bearer);
    return token.ok() ? absl::StrCat("token ", Escaped(token->id)) : "a malformed token";
  }
  if (!credentials.certificate_pem.empty()) {
    const auto certificate = ReadCertificate(credentials.certificate_pem);
    return certificate.ok() ? absl::StrCat("certificate ", certificate->serial) : "an unreadable certificate";
  }
  return Describe(Principal());
}

bool Names(const std::string& keys, const std::string& key) {
  const std::vector<std::string> all = SplitKeys(keys);
  return std::find(all.begin(), all.end(), key) != all.end();
}

// A fingerprint without the parts that were measured.
std::string Lasting(const std::string& fingerprint) {
  std::vector<std::string> parts = absl::StrSplit(fingerprint, "; ");
  std::erase_if(parts, [](const std::string& part) { return part.ends_with(" GFLOP/s") || part.ends_with(" GB/s"); });
  return absl::StrJoin(parts, "; ");
}

bool IsInvitation(const TokenRow& row) { return row.scopes == kInvitationScope; }

bool Stands(bool revoked, int64_t expires_unix_ms, int64_t now_unix_ms) {
  return !revoked && (expires_unix_ms == 0 || now_unix_ms < expires_unix_ms);
}

// Who shows the token. nullopt: it is not for calls.
std::optional<Principal> PrincipalOf(const TokenRow& row) {
  const absl::StatusOr<Scopes> scopes = Scopes::Parse(row.scopes);
  if (!scopes.ok()) return std::nullopt;
  Principal principal;
  principal.kind = Principal::Kind::kToken;
  principal.id = row.id;
  principal.owner = row.owner;
  principal.holds = absl::StrCat("token ", row.id);
  principal.scopes = *scopes;
  principal.device_keys = SplitKeys(row.keys);
  principal.every_key = principal.device_keys.empty();
  return principal;
}

}  // namespace

Gate::Gate(AccessStore& store, const Clock& clock, std::optional<ServerDirectory> directory,
           std::unique_ptr<CertificateVerifier> verifier)
    : store_(store),
      clock_(clock),
      directory_(std::move(directory)),
      verifier_(std::move(verifier)),
      audit_(store, clock) {}

absl::StatusOr<std::unique_ptr<Gate>> Gate::Open(AccessStore& store, const Clock& clock,
                                                 std::optional<ServerDirectory> directory) {
  std::unique_ptr<CertificateVerifier> verifier;
  if (directory) {
    TEMPER_ASSIGN_OR_RETURN(CertificateVerifier made,
                            CertificateVerifier::Make(directory->authority.certificate_pem()));
    verifier = std::make_unique<CertificateVerifier>(std::move(made));
  }
  std::unique_ptr<Gate> gate(new Gate(store, clock, std::move(directory), std::move(verifier)));
  TEMPER_RETURN_IF_ERROR(gate->Load());
  return gate;
}

absl::Status Gate::Load() {
  if (!initialised()) return absl::OkStatus();
  TEMPER_ASSIGN_OR_RETURN(const std::vector<TokenRow> tokens, store_.Tokens());
  for (const TokenRow& row : tokens) tokens_[row.id] = row;
  TEMPER_ASSIGN_OR_RETURN(const std::vector<CertificateRow> certificates, store_.Certificates());
  for (const CertificateRow& row : certificates) certificates_[row.serial] = row;
  TEMPER_ASSIGN_OR_RETURN(const std::vector<DeviceRow> devices, store_.Devices());
  for (const DeviceRow& row : devices) devices_[{row.key, row.fingerprint}] = row;
  // The first token counts until it is revoked, which the store remembers.
  const TokenRow& admin = directory_->admin_token;
  if (tokens_.contains(admin.id)) return absl::OkStatus();
  tokens_[admin.id] = admin;
  return store_.PutToken(admin);
}

Gate::Judgement Gate::Judge(const Credentials& credentials, Call call, const Subject& subject) {
  absl::StatusOr<Principal> principal = Identify(credentials);
  const absl::Status status = principal.ok() ? Allowed(*principal, call, subject) : principal.status();
  const std::string& about = subject.text.empty() ? subject.device_key : subject.text;
  if (!status.ok()) {
    const std::string who = principal.ok() ? Describe(*principal) : Claim(credentials);
    return {status, audit_.Refused(who, call, about, std::string(status.message()))};
  }
  std::optional<AuditRow> row;
  if (RightOf(call).audited) row = audit_.Done(*principal, call, about, "");
  return {std::move(principal), std::move(row)};
}

absl::StatusOr<Principal> Gate::Admit(const Credentials& credentials, Call call, const Subject& subject) {
  Judgement judgement = Judge(credentials, call, subject);
  if (judgement.to_audit) Keep(*judgement.to_audit);
  return std::move(judgement.caller);
}

absl::StatusOr<Principal> Gate::Identify(const Credentials& credentials) {
  if (!credentials.bearer.empty() && !credentials.private_wire) {
    return absl::UnauthenticatedError(
        "a token was sent over a wire that others can read, and is refused; revoke it, and use TLS");
  }
  if (!initialised()) return OpenPrincipal(credentials.identity);
  if (!credentials.bearer.empty()) return ByToken(credentials);
  if (!credentials.certificate_pem.empty()) return ByCertificate(credentials.certificate_pem);
  return Principal();
}

absl::StatusOr<Principal> Gate::ByToken(const Credentials& credentials) const {
  TEMPER_ASSIGN_OR_RETURN(const PresentedToken presented, ParseToken(credentials.bearer));
  TokenRow row;
  {
    std::lock_guard lock(mutex_);
    if (const auto found = tokens_.find(presented.id); found != tokens_.end()) row = found->second;
  }
  TEMPER_RETURN_IF_ERROR(CheckToken(row, presented, clock_.Wall()));
  std::optional<Principal> principal = PrincipalOf(row);
  if (!principal) return absl::UnauthenticatedError("the token is not for calls");
  return *std::move(principal);
}

absl::StatusOr<Principal> Gate::ByCertificate(const std::string& pem) {
  TEMPER_ASSIGN_OR_RETURN(const std::shared_ptr<const Certificate> certificate, Verified(pem));
  TEMPER_RETURN_IF_ERROR(CheckTime(*certificate, clock_.Wall()));
  TEMPER_RETURN_IF_ERROR(CheckKnown(*certificate));
  Principal principal;
  principal.kind = Principal::Kind::kCertificate;
  principal.id = certificate->serial;
  principal.holds = absl::StrCat("key ", certificate->public_key);
  principal.scopes = {Scope::kMeasure};
  principal.device_keys = certificate->device_keys;
  return principal;
}

absl::Status Gate::CheckKnown(const Certificate& certificate) const {
  std::lock_guard lock(mutex_);
  const auto found = certificates_.find(certificate.serial);
  if (found == certificates_.end()) {
    return absl::UnauthenticatedError("the certificate is not known here; join again");
  }
  return found->second.revoked ? absl::UnauthenticatedError("the certificate was revoked") : absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const Certificate>> Gate::Verified(const std::string& pem) {
  {
    std::lock_guard lock(mutex_);
    if (const auto found = verified_.find(pem); found != verified_.end()) return found->second;
  }
  TEMPER_ASSIGN_OR_RETURN(Certificate read, verifier_->Verify(pem));
  auto certificate = std::make_shared<const Certificate>(std::move(read));
  std::lock_guard lock(mutex_);
  if (verified_.size() >= kMostVerified) verified_.clear();
  verified_[pem] = certificate;
  return certificate;
}

bool Gate::StillStands(const Principal& principal) const {
  const int64_t now = absl::ToUnixMillis(clock_.Wall());
  std::lock_guard lock(mutex_);
  switch (principal.kind) {
    case Principal::Kind::kAnonymous:
      return true;
    case Principal::Kind::kToken: {
      const auto found = tokens_.find(principal.id);
      return found != tokens_.end() && Stands(found->second.revoked, found->second.expires_unix_ms, now);
    }
    case Principal::Kind::kCertificate: {
      const auto found = certificates_.find(principal.id);
      return found != certificates_.end() && Stands(found->second.revoked, found->second.expires_unix_ms, now);
    }
  }
  return false;
}

absl::StatusOr<MintedToken> Gate::Invite(const std::string& device_key) {
  if (!initialised()) {
    return absl::FailedPreconditionError(
        "this server takes every worker as it is; run temper-server init DIR and serve with --dir DIR to ask for more");
  }
  TEMPER_RETURN_IF_ERROR(CheckDeviceKey(device_key));
  const MintedToken minted = MintInvitation(device_key, directory_->authority.fingerprint(), clock_.Wall());
  TEMPER_RETURN_IF_ERROR(store_.PutToken(minted.row));
  Keep(minted.row);
  return minted;
}

absl::StatusOr<Gate::Joined> Gate::Join(std::string_view invitation, std::string_view certificate_request) {
  absl::StatusOr<Joined> joined = JoinUnaudited(invitation, certificate_request);
  const std::optional<AuditRow> row =
      joined.ok()
          ? audit_.Done(Principal(), Call::kJoin, joined->device_key, absl::StrCat("certificate ", joined->serial))
          : audit_.Refused(Describe(Principal()), Call::kJoin, "", std::string(joined.status().message()));
  if (row) Keep(*row);
  return joined;
}

absl::StatusOr<Gate::Joined> Gate::JoinUnaudited(std::string_view invitation, std::string_view certificate_request) {
  if (!initialised()) return absl::FailedPreconditionError("this server takes every worker as it is; nobody joins it");
  TEMPER_ASSIGN_OR_RETURN(const Invitation presented, ParseInvitation(invitation));
  std::lock_guard changing(changes_);
  TokenRow row;
  {
    std::lock_guard lock(mutex_);
    if (const auto found = tokens_.find(presented.token.id); found != tokens_.end()) row = found->second;
  }
  const absl::Time now = clock_.Wall();
  TEMPER_RETURN_IF_ERROR(CheckInvitation(row, presented.token, now));
  Joined joined{row.keys, "", directory_->authority.certificate_pem(), ""};
  TEMPER_ASSIGN_OR_RETURN(
      joined.certificate_pem,
      directory_->authority.SignWorker(certificate_request, SplitKeys(row.keys), {now, now + kWorkerLifetime}));
  TEMPER_RETURN_IF_ERROR(store_.SpendToken(row.id));
  row.revoked = true;
  Keep(row);
  TEMPER_ASSIGN_OR_RETURN(joined.serial, PutCertificate(joined.certificate_pem, now));
  return joined;
}

absl::StatusOr<std::string> Gate::PutCertificate(const std::string& pem, absl::Time now) {
  TEMPER_ASSIGN_OR_RETURN(const Certificate certificate, ReadCertificate(pem));
  const CertificateRow kept{certificate.serial, absl::StrJoin(certificate.device_keys, ","), absl::ToUnixMillis(now),
                            absl::ToUnixMillis(certificate.validity.until), false};
  TEMPER_RETURN_IF_ERROR(store_.PutCertificate(kept));
  std::lock_guard lock(mutex_);
  certificates_[kept.serial] = kept;
  return kept.serial;
}

absl::StatusOr<std::string> Gate::Renew(const std::string& certificate_pem) {
  if (!initialised() || certificate_pem.empty()) {
    return absl::FailedPreconditionError("there is no certificate to renew: the caller showed none");
  }
  TEMPER_ASSIGN_OR_RETURN(const std::shared_ptr<const Certificate> before, Verified(certificate_pem));
  const absl::Time now = clock_.Wall();
  if (now < RenewedFrom(*before)) {
    return absl::FailedPreconditionError(
        absl::StrCat("the certificate is renewed from ", absl::FormatTime(RenewedFrom(*before)), " on"));
  }
  std::lock_guard changing(changes_);
  TEMPER_RETURN_IF_ERROR(CheckKnown(*before));
  {
    std::lock_guard lock(mutex_);
    // An answer that was lost is given again, so that no worker fills the store.
    if (const auto found = renewals_.find(before->serial); found != renewals_.end()) return found->second;
  }
  TEMPER_ASSIGN_OR_RETURN(const std::string renewed,
                          directory_->authority.RenewWorker(certificate_pem, {now, now + kWorkerLifetime}));
  TEMPER_ASSIGN_OR_RETURN(const std::string serial, PutCertificate(renewed, now));
  Principal worker;
  worker.kind = Principal::Kind::kCertificate;
  worker.id = before->serial;
  Keep(
      audit_.Done(worker, Call::kRenew, absl::StrJoin(before->device_keys, ","), absl::StrCat("certificate ", serial)));
  std::lock_guard lock(mutex_);
  return renewals_[before->serial] = renewed;
}

bool Gate::IsApproved(const std::string& device_key, const std::string& fingerprint) const {
  if (!initialised()) return true;
  std::lock_guard lock(mutex_);
  const auto found = devices_.find({device_key, Lasting(fingerprint)});
  return found != devices_.end() && found->second.state == kApproved;
}

absl::StatusOr<bool> Gate::MayServe(const std::string& device_key, const std::string& fingerprint,
                                    const std::string& holder) {
  if (IsApproved(device_key, fingerprint)) return true;
  const std::string device = Lasting(fingerprint);
  std::lock_guard changing(changes_);
  bool known = false, key_is_new = !WasRevoked(device_key);
  int pending = 0;
  for (const DeviceRow& row : Devices()) {
    if (row.key != device_key) continue;
    if (row.fingerprint == device && row.state == kApproved) return true;
    known |= row.fingerprint == device && row.state == kPending;
    key_is_new = false;
    pending += row.state == kPending ? 1 : 0;
  }
  if (known) return false;
  // Each is a row that stays: whoever calls itself by another key each time would fill the disk.
  if (!holder.empty() && opened_[holder] >= kMostOpened) {
    return absl::ResourceExhaustedError(
        absl::StrCat("with its ", holder, " ", kMostOpened, " new devices came already; give other workers another"));
  }
  DeviceRow row{device_key, device};
  if (key_is_new) {
    TEMPER_RETURN_IF_ERROR(PutDevice(row, kApproved));
    ++opened_[holder];
    return true;
  }
  // A worker that calls itself another device each time fills neither memory nor disk.
  if (pending >= kMostPending) {
    return absl::ResourceExhaustedError(absl::StrCat(pending, " devices with the key '", device_key,
                                                     "' wait for approval; approve or revoke them first"));
  }
  TEMPER_RETURN_IF_ERROR(PutDevice(row, kPending));
  ++opened_[holder];
  return false;
}

bool Gate::WasRevoked(const std::string& device_key) const {
  std::lock_guard lock(mutex_);
  return std::ranges::any_of(certificates_, [&](const auto& certificate) {
    return certificate.second.revoked && Names(certificate.second.keys, device_key);
  });
}

std::string Gate::WhyPending(const std::string& device_key) {
  return absl::StrCat("its fingerprint is not approved; let it in with: temper device approve ", device_key);
}

std::string Gate::WhyRevoked(const std::string& device_key) {
  return absl::StrCat("its key was revoked; to let the machine in again, invite it: temper device add ", device_key);
}

absl::StatusOr<int> Gate::Approve(const std::string& device_key, const std::string& fingerprint) {
  std::lock_guard changing(changes_);
  const std::string device = Lasting(fingerprint);
  int approved = 0;
  for (const DeviceRow& row : Devices()) {
    const bool meant = row.key == device_key && (fingerprint.empty() || row.fingerprint == device);
    if (!meant || row.state != kPending) continue;
    TEMPER_RETURN_IF_ERROR(PutDevice(row, kApproved));
    ++approved;
  }
  if (approved > 0) return approved;
  return absl::NotFoundError(absl::StrCat("no device with the key '", device_key, "'",
                                          fingerprint.empty() ? "" : " and that fingerprint", " waits for approval"));
}

absl::StatusOr<int> Gate::Revoke(const std::string& device_key) {
  std::vector<TokenRow> invitations;
  std::vector<CertificateRow> certificates;
  std::vector<DeviceRow> devices;
  std::unique_lock changing(changes_);
  // Those too that are revoked in memory: the store may have failed when they were.
  {
    std::lock_guard lock(mutex_);
    for (auto& [id, row] : tokens_) {
      if (!IsInvitation(row) || !Names(row.keys, device_key)) continue;
      row.revoked = true;
      invitations.push_back(row);
    }
    for (auto& [serial, row] : certificates_) {
      if (!Names(row.keys, device_key)) continue;
      row.revoked = true;
      certificates.push_back(row);
    }
    for (auto& [name, row] : devices_) {
      if (row.key != device_key) continue;
      row.state = kRevoked;
      row.updated_unix_ms = absl::ToUnixMillis(clock_.Wall());
      devices.push_back(row);
    }
  }
  if (invitations.empty() && certificates.empty() && devices.empty()) {
    return absl::NotFoundError(absl::StrCat("there is nothing to revoke of the device key '", device_key, "'"));
  }
  absl::Status status;
  for (const TokenRow& row : invitations) status.Update(store_.PutToken(row));
  for (const CertificateRow& row : certificates) status.Update(store_.PutCertificate(row));
  for (const DeviceRow& row : devices) status.Update(store_.PutDevice(row));
  changing.unlock();
  on_revocation_();
  TEMPER_RETURN_IF_ERROR(status);
  return static_cast<int>(certificates.size());
}

std::vector<DeviceRow> Gate::Devices() const {
  std::lock_guard lock(mutex_);
  std::vector<DeviceRow> rows;
  for (const auto& [name, row] : devices_) rows.push_back(row);
  return rows;
}

absl::StatusOr<MintedToken> Gate::AddToken(const TokenGrant& grant) {
  if (!initialised()) {
    return absl::FailedPreconditionError(
        "this server asks for no tokens; run temper-server init DIR and serve with --dir DIR to have it ask");
  }
  if (grant.owner.empty()) return absl::InvalidArgumentError("a token needs an owner's name");
  if (grant.scopes == Scopes()) return absl::InvalidArgumentError("a token needs a scope");
  if (grant.expires <= clock_.Wall()) return absl::InvalidArgumentError("the token would have expired already");
  for (const std::string& key : grant.device_keys) TEMPER_RETURN_IF_ERROR(CheckDeviceKey(key));
  const MintedToken minted = MintToken(grant, clock_.Wall());
  TEMPER_RETURN_IF_ERROR(store_.PutToken(minted.row));
  Keep(minted.row);
  return minted;
}

absl::Status Gate::RevokeToken(const std::string& id) {
  TokenRow row;
  {
    std::lock_guard lock(mutex_);
    const auto found = tokens_.find(id);
    if (found == tokens_.end()) return absl::NotFoundError(absl::StrCat("there is no token '", id, "'"));
    found->second.revoked = true;
    row = found->second;
  }
  const absl::Status status = store_.PutToken(row);
  on_revocation_();
  return status;
}

std::string Gate::OwnerOf(const std::string& token_id) const {
  std::lock_guard lock(mutex_);
  const auto found = tokens_.find(token_id);
  return found == tokens_.end() ? "" : found->second.owner;
}

bool Gate::MaySubmit(const std::string& owner, const std::string& device_key) const {
  if (!initialised()) return true;
  const int64_t now = absl::ToUnixMillis(clock_.Wall());
  std::lock_guard lock(mutex_);
  return std::ranges::any_of(tokens_, [&](const auto& token) {
    const TokenRow& row = token.second;
    if (row.owner != owner || !Stands(row.revoked, row.expires_unix_ms, now)) return false;
    const std::optional<Principal> principal = PrincipalOf(row);
    return principal && Allowed(*principal, Call::kSubmitJob, {.device_key = device_key}).ok();
  });
}

std::vector<TokenRow> Gate::Tokens(const std::string& after, size_t most) const {
  std::lock_guard lock(mutex_);
  std::vector<TokenRow> rows;
  for (auto next = tokens_.upper_bound(after); next != tokens_.end() && rows.size() < most; ++next) {
    if (!IsInvitation(next->second)) rows.push_back(next->second);
  }
  return rows;
}

absl::Status Gate::PutDevice(DeviceRow device, std::string_view state) {
  device.state = state;
  device.updated_unix_ms = absl::ToUnixMillis(clock_.Wall());
  TEMPER_RETURN_IF_ERROR(store_.PutDevice(device));
  std::lock_guard lock(mutex_);
  devices_[{device.key, device.fingerprint}] = device;
  return absl::OkStatus();
}

void Gate::Keep(const TokenRow& token) {
  std::lock_guard lock(mutex_);
  tokens_[token.id] = token;
}

}  // namespace temper
