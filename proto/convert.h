// The only conversions between the wire's messages and Temper's values, and between absl::Status and grpc::Status.
#pragma once

#include <grpcpp/support/status.h>

#include "base/status.h"
#include "storage/store.h"
#include "temper/v1/record.pb.h"
#include "temper/v1/tuning.pb.h"

namespace temper {

// What server and worker say to one another: raised when an older side would misunderstand a newer one. A server serves
// workers from kOldestWireVersion on, and names the others.
inline constexpr int kWireVersion = 2, kOldestWireVersion = 2;

// The codes of both are numbered alike. Messages are cut to 2 KiB, and are one line of UTF-8.
grpc::Status ToGrpc(const absl::Status& status);
absl::Status FromGrpc(const grpc::Status& status);

v1::Record ToWire(const Record& record);
absl::StatusOr<Record> FromWire(const v1::Record& record);  // kInvalidArgument: no such outcome

v1::BestQuery ToWire(const BestQuery& query);
BestQuery FromWire(const v1::BestQuery& query);

v1::BestAnswer ToWire(const std::optional<BestAnswer>& answer);
absl::StatusOr<std::optional<BestAnswer>> FromWire(const v1::BestAnswer& answer);

v1::JobSummary ToWire(const JobRow& row);

// A name that is a file's, or is stored from before names were held to what they are held to now (HasControls): nobody
// takes a message with it. It is escaped, and cut to kLongestName.
std::string NameForWire(const std::string& name);

}  // namespace temper
