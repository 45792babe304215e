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

}  // namespace temper
