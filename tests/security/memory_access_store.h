// An AccessStore in memory, whose writes fail when told to.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <mutex>
#include <utility>

#include "storage/access.h"

namespace temper {

class MemoryAccessStore : public AccessStore {
 public:
  absl::Status failure;                 // of all writes, while it is not OK
  std::function<void()> before_writes;  // set while nobody calls

  absl::Status PutToken(const TokenRow& token) override {
    return Write([&] { tokens_[token.id] = token; });
  }
  absl::Status SpendToken(const std::string& id) override {
    if (before_writes) before_writes();
    std::lock_guard lock(mutex_);
    if (tokens_[id].revoked) return absl::FailedPreconditionError("spent before");
    tokens_[id].revoked = true;
    return failure;
  }
  absl::StatusOr<std::vector<TokenRow>> Tokens() override { return Values(tokens_); }

  absl::Status PutCertificate(const CertificateRow& certificate) override {
    return Write([&] { certificates_[certificate.serial] = certificate; });
  }
  absl::StatusOr<std::vector<CertificateRow>> Certificates() override { return Values(certificates_); }

  absl::Status PutDevice(const DeviceRow& device) override {
    return Write([&] { devices_[{device.key, device.fingerprint}] = device; });
  }
  absl::StatusOr<std::vector<DeviceRow>> Devices() override { return Values(devices_); }

  absl::Status AppendAudit(const AuditRow& row) override {
    return Write([&] {
      audit_.push_back(row);
      audit_.back().id = static_cast<int64_t>(audit_.size());
    });
  }
  absl::StatusOr<std::vector<AuditRow>> Audit(int64_t before, int64_t limit) override {
    std::lock_guard lock(mutex_);
    std::vector<AuditRow> rows;
    for (auto row = audit_.rbegin(); row != audit_.rend() && static_cast<int64_t>(rows.size()) < limit; ++row) {
      if (before == 0 || row->id < before) rows.push_back(*row);
    }
    return rows;
  }

 private:
  template <typename F>
  absl::Status Write(F write) {
    if (before_writes) before_writes();
    std::lock_guard lock(mutex_);
    if (failure.ok()) write();
    return failure;
  }
  template <typename Map>
  std::vector<typename Map::mapped_type> Values(const Map& map) {
    std::lock_guard lock(mutex_);
    std::vector<typename Map::mapped_type> values;
    for (const auto& [key, value] : map) values.push_back(value);
    return values;
  }

  std::mutex mutex_;
  std::map<std::string, TokenRow> tokens_;
  std::map<std::string, CertificateRow> certificates_;
  std::map<std::pair<std::string, std::string>, DeviceRow> devices_;
  std::vector<AuditRow> audit_;
};

}  // namespace temper
