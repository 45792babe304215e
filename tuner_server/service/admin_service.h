// The admins' calls: devices, workers, tokens, the audit. What they store is stored on a thread of its own, so that no
// admin's call delays a worker's.
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "temper/v1/admin.grpc.pb.h"
#include "tuner_server/service/calls.h"
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
  // Does the work, if the caller may, on a thread of its own: most of it waits for the disk. `about`: for the audit.
  template <typename Request>
  grpc::ServerUnaryReactor* AnswerAs(grpc::CallbackServerContext* context, const Request& request, Call call,
                                     const std::string& about, std::function<absl::Status()> work) {
    return AnswerFrom(pool_, callers_, context,
                      Admit(callers_, *context, request, kLargestQuery, call, {.text = about}), request.ByteSizeLong(),
                      std::move(work));
  }
  // Workers of the key that were held back and may serve now.
  void AdmitApproved(const std::string& key);
  // After a token of the owner's was revoked: the jobs that none of its other tokens could submit.
  void CancelNobodysJobs(const std::string& owner);

  ServerCore& core_;
  Gate& gate_;
  Callers& callers_;
  WorkPool pool_{{.threads = 1, .waiting = 256, .bytes = 16 << 20}};
};

}  // namespace temper
