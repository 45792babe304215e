#include "tuner_server/service/enroll_service.h"

#include "tuner_server/service/calls.h"

namespace temper {

grpc::ServerUnaryReactor* EnrollServiceImpl::Join(grpc::CallbackServerContext* context, const v1::JoinRequest* request,
                                                  v1::JoinReply* reply) {
  const auto admitted = Admit(callers_, *context, *request, kLargestReport, Call::kJoin);
  if (!admitted.ok()) return Answer(context, admitted.status());
  absl::StatusOr<Gate::Joined> joined = gate_.Join(request->invitation(), request->signing_request());
  if (!joined.ok()) return Answer(context, joined.status());
  reply->set_certificate(joined->certificate_pem);
  reply->set_authority(joined->authority_pem);
  reply->set_device_key(joined->device_key);
  return Answer(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* EnrollServiceImpl::Renew(grpc::CallbackServerContext* context,
                                                   const v1::RenewRequest* request, v1::RenewReply* reply) {
  const auto admitted = Admit(callers_, *context, *request, kLargestReport, Call::kRenew);
  if (!admitted.ok()) return Answer(context, admitted.status());
  absl::StatusOr<std::string> renewed = gate_.Renew(Callers::CertificateOf(*context));
  if (renewed.ok()) reply->set_certificate(*std::move(renewed));
  return Answer(context, renewed.status());
}

}  // namespace temper
