// Rights and the audit, in the tables token, certificate, approval and audit.
#pragma once

#include "storage/access.h"
#include "storage/sqlite/database.h"

namespace temper {

class SqliteAccess : public AccessStore {
 public:
  explicit SqliteAccess(Database& database) : database_(database) {}  // which outlives it

  absl::Status PutToken(const TokenRow& token) override;
  absl::Status SpendToken(const std::string& id) override;
  absl::StatusOr<std::vector<TokenRow>> Tokens() override;
  absl::Status PutCertificate(const CertificateRow& certificate) override;
  absl::StatusOr<std::vector<CertificateRow>> Certificates() override;
  absl::Status PutDevice(const DeviceRow& device) override;
  absl::StatusOr<std::vector<DeviceRow>> Devices() override;
  absl::Status AppendAudit(const AuditRow& row) override;
  absl::StatusOr<std::vector<AuditRow>> Audit(int64_t before, int64_t limit) override;

 private:
  Database& database_;
};

}  // namespace temper
