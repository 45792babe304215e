// The workers' calls: parse, call the core, convert. A waiting Sync holds no thread.
#pragma once

#include "temper/v1/worker.grpc.pb.h"
#include "tuner_server/service/callers.h"
#include "tuner_server/service/core.h"

namespace temper {

class WorkerServiceImpl : public v1::WorkerService::CallbackService {
 public:
  WorkerServiceImpl(ServerCore& core, Gate& gate, Callers& callers) : core_(core), gate_(gate), callers_(callers) {}

  grpc::ServerUnaryReactor* Register(grpc::CallbackServerContext* context, const v1::RegisterRequest* request,
                                     v1::RegisterReply* reply) override;
  grpc::ServerUnaryReactor* Sync(grpc::CallbackServerContext* context, const v1::SyncRequest* request,
                                 v1::SyncReply* reply) override;
  grpc::ServerUnaryReactor* SubmitResults(grpc::CallbackServerContext* context, const v1::SubmitResultsRequest* request,
                                          v1::SubmitResultsReply* reply) override;
  grpc::ServerUnaryReactor* Leave(grpc::CallbackServerContext* context, const v1::LeaveRequest* request,
                                  v1::LeaveReply* reply) override;

 private:
  ServerCore& core_;
  Gate& gate_;
  Callers& callers_;
};

}  // namespace temper
