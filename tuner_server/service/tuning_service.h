// The clients' calls: parse, call the core or the store, convert. What reads the store or parses a model does so on
// threads of its own, so that no client's call delays a worker's.
#pragma once

#include "temper/v1/tuning.grpc.pb.h"
#include "tuner_server/service/callers.h"
#include "tuner_server/service/core.h"
#include "tuner_server/service/shared_room.h"
#include "tuner_server/service/work_pool.h"

namespace temper {

class TuningServiceImpl : public v1::TuningService::CallbackService {
 public:
  static constexpr size_t kMostExports = 16;  // at once: each holds a page until its reader takes it

  TuningServiceImpl(ServerCore& core, Callers& callers) : core_(core), callers_(callers) {}

  grpc::ServerUnaryReactor* SubmitJob(grpc::CallbackServerContext* context, const v1::SubmitJobRequest* request,
                                      v1::SubmitJobReply* reply) override;
  grpc::ServerWriteReactor<v1::JobEvent>* WatchJob(grpc::CallbackServerContext* context,
                                                   const v1::WatchJobRequest* request) override;
  grpc::ServerUnaryReactor* CancelJob(grpc::CallbackServerContext* context, const v1::CancelJobRequest* request,
                                      v1::CancelJobReply* reply) override;
  grpc::ServerUnaryReactor* SetPriority(grpc::CallbackServerContext* context, const v1::SetPriorityRequest* request,
                                        v1::SetPriorityReply* reply) override;
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
  // What a call is about that changes a job. Who asked for a job before it was there was judged as if it were nobody's,
  // so a call has no part in a job that came later.
  struct JobSubject {
    Subject subject;
    bool live = false;
  };
  JobSubject SubjectOf(int64_t job);

  ServerCore& core_;
  Callers& callers_;
  SharedRoom exports_{kMostExports};
  SharedRoom watch_room_{64 << 20};  // events of large jobs are large
  WorkPool reads_{{.threads = 4, .waiting = 256, .bytes = 64 << 20}};
  WorkPool pages_{{.threads = 2, .waiting = 256, .bytes = 1 << 20}};  // of exports, which may look at every record
  WorkPool lists_{{.threads = 1, .waiting = 256, .bytes = 1 << 20}};  // of devices: reads of the store hold none up
  WorkPool puts_{{.threads = 1, .waiting = 64, .bytes = 64 << 20}};   // the store writes one after another anyway
  WorkPool submissions_{{.threads = 1, .waiting = 16, .bytes = 64 << 20}};
};

}  // namespace temper
