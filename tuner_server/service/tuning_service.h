// The clients' calls: parse, call the core or the store, convert.
#pragma once

#include "temper/v1/tuning.grpc.pb.h"
#include "tuner_server/service/core.h"

namespace temper {

class TuningServiceImpl : public v1::TuningService::CallbackService {
 public:
  explicit TuningServiceImpl(ServerCore& core) : core_(core) {}

  grpc::ServerUnaryReactor* SubmitJob(grpc::CallbackServerContext* context, const v1::SubmitJobRequest* request,
                                      v1::SubmitJobReply* reply) override;
  grpc::ServerWriteReactor<v1::JobEvent>* WatchJob(grpc::CallbackServerContext* context,
                                                   const v1::WatchJobRequest* request) override;
  grpc::ServerUnaryReactor* CancelJob(grpc::CallbackServerContext* context, const v1::CancelJobRequest* request,
                                      v1::CancelJobReply* reply) override;
  grpc::ServerUnaryReactor* ListJobs(grpc::CallbackServerContext* context, const v1::ListJobsRequest* request,
                                     v1::ListJobsReply* reply) override;
  grpc::ServerUnaryReactor* ListDevices(grpc::CallbackServerContext* context, const v1::ListDevicesRequest* request,
                                        v1::ListDevicesReply* reply) override;
  grpc::ServerUnaryReactor* QueryBest(grpc::CallbackServerContext* context, const v1::QueryBestRequest* request,
                                      v1::QueryBestReply* reply) override;
  grpc::ServerUnaryReactor* QueryVerdict(grpc::CallbackServerContext* context, const v1::QueryVerdictRequest* request,
                                         v1::QueryVerdictReply* reply) override;
  grpc::ServerUnaryReactor* PutRecords(grpc::CallbackServerContext* context, const v1::PutRecordsRequest* request,
                                       v1::PutRecordsReply* reply) override;
  grpc::ServerWriteReactor<v1::Record>* ExportRecords(grpc::CallbackServerContext* context,
                                                      const v1::ExportRecordsRequest* request) override;

 private:
  ServerCore& core_;
};

}  // namespace temper
