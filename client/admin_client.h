// The C++ side of AdminService: values in, values out, each call with a deadline. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "client/connection.h"
#include "temper/v1/admin.pb.h"

namespace temper {

class AdminClient {
 public:
  // See ServerConnection::Dial.
  static absl::StatusOr<std::unique_ptr<AdminClient>> Connect(const std::string& address,
                                                              const ClientOptions& options = {});
  ~AdminClient();

  const std::string& address() const;

  absl::StatusOr<v1::AddDeviceReply> AddDevice(const std::string& key);
  absl::StatusOr<int> ApproveDevice(const std::string& key, const std::string& fingerprint);  // how many
  absl::StatusOr<int> RevokeDevice(const std::string& key);                                   // certificates
  absl::StatusOr<int> Drain(const v1::DrainRequest& request);                                 // workers

  absl::StatusOr<v1::AddTokenReply> AddToken(const v1::AddTokenRequest& request);
  absl::Status RevokeToken(const std::string& id);
  absl::StatusOr<std::vector<v1::TokenSummary>> ListTokens();

  // The newest `most`, newest first.
  absl::StatusOr<std::vector<v1::AuditEntry>> ListAudit(int64_t most);

 private:
  struct Impl;
  explicit AdminClient(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace temper
