// Rights and the audit in memory: see memory_store.h.
#pragma once

#include <map>
#include <mutex>

#include "storage/access.h"

namespace temper {

class MemoryAccess : public AccessStore {
 public:
  absl::Status PutToken(const TokenRow& token) override;
  absl::Status SpendToken(const std::string& id) override;
  absl::StatusOr<std::vector<TokenRow>> Tokens() override;
  absl::Status PutCertificate(const CertificateRow& certificate) override;
  absl::StatusOr<std::vector<CertificateRow>> Certificates() override;
  absl::Status PutDevice(const DeviceRow& device) override;
  absl::StatusOr<std::vector<DeviceRow>> Devices() override;
  absl::Status AppendAudit(const AuditRow& row) override;
  absl::StatusOr<std::vector<AuditRow>> Audit(int64_t before, int64_t limit) override;

  int64_t PruneAudit(int64_t before_unix_ms, bool dry_run);  // all but the newest row; how many

 private:
  std::mutex mutex_;
  std::map<std::string, TokenRow> tokens_;
  std::map<std::string, CertificateRow> certificates_;
  std::map<std::pair<std::string, std::string>, DeviceRow> devices_;
  std::vector<AuditRow> audit_;
};

}  // namespace temper
