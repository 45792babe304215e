#include <memory>

#include "proto/check.h"
#include "proto/convert.h"
#include "proto/convert_trial.h"
#include "temper/v1/admin.pb.h"
#include "temper/v1/tuning.pb.h"
#include "temper/v1/worker.pb.h"
#include "tests/proto/fuzz/targets.h"

namespace temper::fuzz {
namespace {

// A message that keeps its limits does so after it has been a value of Temper's.
void Again(const google::protobuf::Message& message) { Expect(CheckMessage(message).ok(), "limits kept on the way"); }

void Convert(const v1::SubmitResultsRequest& request) {
  for (const v1::CandidateResult& result : request.results())
    Again(ToWire(result.lease(), Candidate{result.candidate(), result.attempt(), "", 0, ""}, FromWire(result)));
  for (const v1::ModelResult& result : request.models()) Again(ToWire(result.lease(), FromWire(result)));
}
void Convert(const v1::SyncReply& reply) {
  for (const v1::Lease& lease : reply.grants()) {
    Again(ToWire(FromWire(lease.batch())));
    Again(ToWire(FromWire(lease.model())));
    Again(ToWire(FromWire(lease.finals())));
  }
}
void Convert(const v1::PutRecordsRequest& request) {
  for (const v1::Record& record : request.records()) {
    const absl::StatusOr<Record> value = FromWire(record);
    if (!value.ok()) continue;
    Again(ToWire(*value));
    ToJsonLine(*value);
  }
}
void Convert(const v1::QueryBestRequest& request) {
  for (const v1::BestQuery& query : request.queries()) Again(ToWire(FromWire(query)));
}
void Convert(const google::protobuf::Message&) {}

template <typename Message>
void Read(std::string_view bytes) {
  Message message;
  if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return;
  if (CheckMessage(message).ok()) Convert(message);
}

// The position of a message is the first byte of its inputs: new ones go to the end.
constexpr Target kMessages[] = {
    Read<v1::RegisterRequest>,     Read<v1::SyncRequest>,          Read<v1::LeaveRequest>,
    Read<v1::SyncReply>,           Read<v1::SubmitResultsRequest>, Read<v1::SubmitJobRequest>,
    Read<v1::WatchJobRequest>,     Read<v1::CancelJobRequest>,     Read<v1::SetPriorityRequest>,
    Read<v1::ListJobsRequest>,     Read<v1::ListDevicesRequest>,   Read<v1::QueryBestRequest>,
    Read<v1::QueryVerdictRequest>, Read<v1::PutRecordsRequest>,    Read<v1::ExportRecordsRequest>,
    Read<v1::JoinRequest>,         Read<v1::AddDeviceRequest>,     Read<v1::ApproveDeviceRequest>,
    Read<v1::RevokeDeviceRequest>, Read<v1::DrainRequest>,         Read<v1::AddTokenRequest>,
    Read<v1::RevokeTokenRequest>,  Read<v1::ListAuditRequest>,     Read<v1::JobEvent>,
};

}  // namespace

void Requests(std::string_view bytes) {
  if (bytes.empty()) return;
  kMessages[static_cast<unsigned char>(bytes[0]) % std::size(kMessages)](bytes.substr(1));
}

}  // namespace temper::fuzz
