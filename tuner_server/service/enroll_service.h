// How workers get their certificates.
#pragma once

#include "temper/v1/admin.grpc.pb.h"
#include "tuner_server/service/callers.h"

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
};

}  // namespace temper
