// Who may do what, and what was done: tokens, certificates, devices and the audit, kept in the same database as the
// records. Values only: what a scope means and how a secret is hashed is security/'s matter.
//
// Thread-safe. Writes return once they are durable.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace temper {

// A bearer's right, or a one-time invitation for a device.
struct TokenRow {
  std::string id;                                    // public, unique
  std::string hash;                                  // of the secret, as hex; the secret itself is never kept
  std::string owner;                                 // a name for people, and who its jobs belong to
  std::string scopes;                                // "read,submit"; "join" for an invitation
  std::string keys;                                  // device keys, separated by commas; empty: all
  int64_t created_unix_ms = 0, expires_unix_ms = 0;  // 0: never
  bool revoked = false;                              // or, of an invitation, used
};

struct CertificateRow {
  std::string serial;  // hex, unique
  std::string keys;    // device keys, separated by commas
  int64_t created_unix_ms = 0, expires_unix_ms = 0;
  bool revoked = false;
};

// A device that may serve a key, or that asks to.
struct DeviceRow {
  std::string key, fingerprint;  // together unique
  std::string state;             // "approved", "pending", "revoked"
  int64_t updated_unix_ms = 0;
};

struct AuditRow {
  int64_t id = 0;  // given by the store
  int64_t time_unix_ms = 0;
  std::string principal, call, subject, verdict, detail;
};

class AccessStore {
 public:
  virtual ~AccessStore() = default;

  virtual absl::Status PutToken(const TokenRow& token) = 0;  // made, or changed by id
  // Marks it revoked in one step; kFailedPrecondition: it was before, so who uses an invitation twice loses.
  virtual absl::Status SpendToken(const std::string& id) = 0;
  virtual absl::StatusOr<std::vector<TokenRow>> Tokens() = 0;

  virtual absl::Status PutCertificate(const CertificateRow& certificate) = 0;  // by serial
  virtual absl::StatusOr<std::vector<CertificateRow>> Certificates() = 0;

  virtual absl::Status PutDevice(const DeviceRow& device) = 0;  // by key and fingerprint
  virtual absl::StatusOr<std::vector<DeviceRow>> Devices() = 0;

  virtual absl::Status AppendAudit(const AuditRow& row) = 0;
  // Newest first, those with an id below `before` (0: all), at most `limit`.
  virtual absl::StatusOr<std::vector<AuditRow>> Audit(int64_t before, int64_t limit) = 0;
};

}  // namespace temper
