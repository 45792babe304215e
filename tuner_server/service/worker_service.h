// The workers' calls: parse, call the core, convert. A waiting Sync holds no thread, and a device that is new is stored
// on a thread of its own.
#pragma once

#include "temper/v1/worker.grpc.pb.h"
#include "tuner_server/service/callers.h"
#include "tuner_server/service/core.h"
#include "tuner_server/service/work_pool.h"

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
  // Takes in what was admitted as `holder`.
  absl::Status TakeIn(const v1::RegisterRequest& request, const std::string& holder, v1::RegisterReply& reply);

  ServerCore& core_;
  Gate& gate_;
  Callers& callers_;
  WorkPool new_devices_{{.threads = 1, .waiting = 1024, .bytes = 4 << 20}};
};

}  // namespace temper
