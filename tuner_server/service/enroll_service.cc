#include "tuner_server/service/enroll_service.h"

#include "tuner_server/service/calls.h"

namespace temper {

grpc::ServerUnaryReactor* EnrollServiceImpl::Join(grpc::CallbackServerContext* context, const v1::JoinRequest* request,
                                                  v1::JoinReply* reply) {
  return AnswerFrom(pool_, callers_, context, Admit(callers_, *context, *request, kLargestReport, Call::kJoin),
                    request->ByteSizeLong(), [=, this]() -> absl::Status {
                      TEMPER_ASSIGN_OR_RETURN(const Gate::Joined joined,
                                              gate_.Join(request->invitation(), request->signing_request()));
                      reply->set_certificate(joined.certificate_pem);
                      reply->set_authority(joined.authority_pem);
                      reply->set_device_key(joined.device_key);
                      return absl::OkStatus();
                    });
}

grpc::ServerUnaryReactor* EnrollServiceImpl::Renew(grpc::CallbackServerContext* context,
                                                   const v1::RenewRequest* request, v1::RenewReply* reply) {
  const std::string certificate = Callers::CertificateOf(*context);
  return AnswerFrom(pool_, callers_, context, Admit(callers_, *context, *request, kLargestReport, Call::kRenew),
                    certificate.size(), [=, this]() -> absl::Status {
                      TEMPER_ASSIGN_OR_RETURN(*reply->mutable_certificate(), gate_.Renew(certificate));
                      return absl::OkStatus();
                    });
}

}  // namespace temper
