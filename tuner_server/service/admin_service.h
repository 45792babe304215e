// The admins' calls: devices, workers, tokens, the audit.
#pragma once

#include "temper/v1/admin.grpc.pb.h"
#include "tuner_server/service/callers.h"
#include "tuner_server/service/core.h"

namespace temper {

class AdminServiceImpl : public v1::AdminService::CallbackService {
 public:
  AdminServiceImpl(ServerCore& core, Gate& gate, Callers& callers) : core_(core), gate_(gate), callers_(callers) {}

  grpc::ServerUnaryReactor* AddDevice(grpc::CallbackServerContext* context, const v1::AddDeviceRequest* request,
                                      v1::AddDeviceReply* reply) override;
  grpc::ServerUnaryReactor* ApproveDevice(grpc::CallbackServerContext* context, const v1::ApproveDeviceRequest* request,
                                          v1::ApproveDeviceReply* reply) override;
  grpc::ServerUnaryReactor* RevokeDevice(grpc::CallbackServerContext* context, const v1::RevokeDeviceRequest* request,
                                         v1::RevokeDeviceReply* reply) override;
  grpc::ServerUnaryReactor* Drain(grpc::CallbackServerContext* context, const v1::DrainRequest* request,
                                  v1::DrainReply* reply) override;
  grpc::ServerUnaryReactor* AddToken(grpc::CallbackServerContext* context, const v1::AddTokenRequest* request,
                                     v1::AddTokenReply* reply) override;
  grpc::ServerUnaryReactor* RevokeToken(grpc::CallbackServerContext* context, const v1::RevokeTokenRequest* request,
                                        v1::RevokeTokenReply* reply) override;
  grpc::ServerUnaryReactor* ListTokens(grpc::CallbackServerContext* context, const v1::ListTokensRequest* request,
                                       v1::ListTokensReply* reply) override;
  grpc::ServerUnaryReactor* ListAudit(grpc::CallbackServerContext* context, const v1::ListAuditRequest* request,
                                      v1::ListAuditReply* reply) override;

 private:
  // Workers of the key that were held back and may serve now.
  void AdmitApproved(const std::string& key);

  ServerCore& core_;
  Gate& gate_;
  Callers& callers_;
};

}  // namespace temper
