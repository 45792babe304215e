// How workers get their certificates. What is stored of them is stored on a thread of its own, so that nobody who joins
// delays a worker's calls.
#pragma once

#include "temper/v1/admin.grpc.pb.h"
#include "tuner_server/service/callers.h"
#include "tuner_server/service/work_pool.h"

namespace temper {

class EnrollServiceImpl : public v1::EnrollService::CallbackService {
 public:
  EnrollServiceImpl(Gate& gate, Callers& callers) : gate_(gate), callers_(callers) {}

  grpc::ServerUnaryReactor* Join(grpc::CallbackServerContext* context, const v1::JoinRequest* request,
                                 v1::JoinReply* reply) override;
  grpc::ServerUnaryReactor* Renew(grpc::CallbackServerContext* context, const v1::RenewRequest* request,
                                  v1::RenewReply* reply) override;

 private:
  Gate& gate_;
  Callers& callers_;
  WorkPool pool_{{.threads = 1, .waiting = 256, .bytes = 4 << 20}};
};

}  // namespace temper
