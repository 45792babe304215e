// The one place that knows who may come in: identifies callers, asks the table of rights, keeps tokens, certificates,
// devices and the audit. Knows nothing of the wire. Thread-safe.
//
// All rows are held in memory too, for each call is judged by them: one server a store.
#pragma once

#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "security/audit.h"
#include "security/join.h"
#include "security/server_directory.h"

namespace temper {

// What a caller showed.
struct Credentials {
  std::string certificate_pem;  // whose key it proved to hold; empty: none
  std::string bearer;           // a token's text; empty: none
  std::string identity;         // what it calls itself; empty: nothing
  bool private_wire = false;    // encrypted, or not beyond this machine
};

class Gate {
 public:
  // Without a directory the server was not initialised, and whoever reaches it is an OpenPrincipal. The store and the
  // clock outlive it.
  static absl::StatusOr<std::unique_ptr<Gate>> Open(AccessStore& store, const Clock& clock,
                                                    std::optional<ServerDirectory> directory);

  bool initialised() const { return directory_.has_value(); }

  // Who calls, if it may: kUnauthenticated or kPermissionDenied, one line. Waits for nobody: what the audit is to keep
  // of it, a refusal or a call that the table wants audited, is the caller's to Keep.
  struct Judgement {
    absl::StatusOr<Principal> caller;
    std::optional<AuditRow> to_audit;
  };
  Judgement Judge(const Credentials& credentials, Call call, const Subject& subject);
  bool Keep(const AuditRow& row) { return audit_.Keep(row); }  // see Audit
  // Both in one.
  absl::StatusOr<Principal> Admit(const Credentials& credentials, Call call, const Subject& subject);
  // Whether what made it a principal still stands, neither revoked nor expired: for calls that last, and for logins.
  bool StillStands(const Principal& principal) const;
  // Called, from the thread that revokes, after each revocation. Set once, before calls come in.
  void OnRevocation(std::function<void()> callback) { on_revocation_ = std::move(callback); }

  // --- devices; the caller has asked for its right ---

  // An invitation for a worker that is to serve the key. kFailedPrecondition: not initialised.
  absl::StatusOr<MintedToken> Invite(const std::string& device_key);
  struct Joined {
    std::string device_key, certificate_pem, authority_pem, serial;
  };
  // Uses the invitation up; not where the request is bad. kUnauthenticated: no good invitation.
  absl::StatusOr<Joined> Join(std::string_view invitation, std::string_view certificate_request);
  // Another certificate for the key and the device keys of one that Admit let in, PEM; for one certificate always the
  // same. kFailedPrecondition: none was shown, or it is too early. kUnauthenticated: it was revoked since, or is not
  // known here.
  absl::StatusOr<std::string> Renew(const std::string& certificate_pem);
  // Whether a device with this fingerprint may serve the key now: the first one may, all others wait for Approve, and
  // so do all of a key that was revoked. What was measured of a device and differs from one time to the next (GFLOP/s,
  // GB/s) makes it no other one. Where the server was not initialised, all may. `holder`: Principal::holds of who asks.
  // An error tells of the store. kResourceExhausted: kMostPending of the key wait already, or the holder came with
  // kMostOpened new ones since the server's start.
  absl::StatusOr<bool> MayServe(const std::string& device_key, const std::string& fingerprint,
                                const std::string& holder = "");
  // Whether it may by what is known already; waits for nobody.
  bool IsApproved(const std::string& device_key, const std::string& fingerprint) const;
  // What a worker is told that waits for Approve.
  static std::string WhyPending(const std::string& device_key);
  // What one is told that serves as its key is revoked.
  static std::string WhyRevoked(const std::string& device_key);
  static constexpr int kMostPending = 1000, kMostOpened = 1000;
  // Lets a fingerprint serve that waits; empty: all that wait. kNotFound: none does. Returns how many.
  absl::StatusOr<int> Approve(const std::string& device_key, const std::string& fingerprint);
  // Every certificate, fingerprint and invitation of the key, from this moment on. Holds in this process even where the
  // store fails; asked again, it stores all of it again. kNotFound: there is nothing to revoke. Returns how many
  // certificates.
  absl::StatusOr<int> Revoke(const std::string& device_key);
  std::vector<DeviceRow> Devices() const;

  // --- tokens ---

  absl::StatusOr<MintedToken> AddToken(const TokenGrant& grant);  // its text is never to be had again
  absl::Status RevokeToken(const std::string& id);                // kNotFound. Holds like Revoke
  std::string OwnerOf(const std::string& token_id) const;         // empty: there is no such token
  // Whether a job for the device key may be this owner's: a token of theirs that stands may submit it. Where the server
  // was not initialised, it may.
  bool MaySubmit(const std::string& owner, const std::string& device_key) const;
  // At most `most` of those with ids above `after`, by their ids; no invitations.
  std::vector<TokenRow> Tokens(const std::string& after = "", size_t most = std::numeric_limits<size_t>::max()) const;

  // Newest first; see AccessStore.
  absl::StatusOr<std::vector<AuditRow>> ListAudit(int64_t before, int64_t limit) { return store_.Audit(before, limit); }

 private:
  Gate(AccessStore& store, const Clock& clock, std::optional<ServerDirectory> directory,
       std::unique_ptr<CertificateVerifier> verifier);
  absl::Status Load();
  absl::StatusOr<Joined> JoinUnaudited(std::string_view invitation, std::string_view certificate_request);
  absl::StatusOr<Principal> Identify(const Credentials& credentials);
  absl::StatusOr<Principal> ByToken(const Credentials& credentials) const;
  absl::StatusOr<Principal> ByCertificate(const std::string& pem);
  absl::Status CheckKnown(const Certificate& certificate) const;
  absl::StatusOr<std::shared_ptr<const Certificate>> Verified(const std::string& pem);
  absl::StatusOr<std::string> PutCertificate(const std::string& pem, absl::Time now);
  absl::Status PutDevice(DeviceRow device, std::string_view state);
  bool WasRevoked(const std::string& device_key) const;  // by its certificates
  void Keep(const TokenRow& token);

  AccessStore& store_;
  const Clock& clock_;
  const std::optional<ServerDirectory> directory_;
  const std::unique_ptr<CertificateVerifier> verifier_;  // where initialised
  Audit audit_;
  std::function<void()> on_revocation_ = [] {};

  std::map<std::string, int> opened_;                   // new devices by holder; under changes_
  std::mutex changes_;                                  // held over what looks and then writes; taken before mutex_
  mutable std::mutex mutex_;                            // of what follows; never held while the store works
  std::map<std::string, TokenRow> tokens_;              // by id, invitations too
  std::map<std::string, CertificateRow> certificates_;  // by serial
  std::map<std::string, std::string> renewals_;         // by serial, what this process answered
  std::map<std::pair<std::string, std::string>, DeviceRow> devices_;  // by key and fingerprint
  // Certificates whose signature was checked, by their text: a handshake is dear, a call is not to be.
  std::unordered_map<std::string, std::shared_ptr<const Certificate>> verified_;
};

}  // namespace temper
