#include "tuner_server/service/worker_service.h"

#include <atomic>

#include "base/failpoint.h"
#include "tuner_server/service/calls.h"
#include "tuner_server/service/wire.h"

namespace temper {
namespace {

constexpr int kRenewals = 6;  // of a lease before it ends

// Answered by the core, at once or when there is something to say.
class SyncReactor : public grpc::ServerUnaryReactor {
 public:
  SyncReactor(ServerCore& core, int64_t ticket) : core_(core), ticket_(ticket) {}

  static grpc::ServerUnaryReactor* Begin(ServerCore& core, const v1::SyncRequest& request, v1::SyncReply* reply) {
    SyncCall call;
    call.ticket = core.NewTicket();
    call.session = request.session();
    call.held.assign(request.leases().begin(), request.leases().end());
    call.free_slots = request.free_slots();
    call.wait = absl::Milliseconds(request.wait_ms());
    auto* reactor = new SyncReactor(core, call.ticket);
    // The reactor may be gone once the core has answered; what the check below needs outlives it.
    const std::shared_ptr<std::atomic<bool>> broken = reactor->broken_;
    const int64_t ticket = call.ticket;
    core.Sync(std::move(call), [reactor, reply](const absl::StatusOr<Dispatcher::SyncOutcome>& outcome) {
      if (outcome.ok()) *reply = ToWire(*outcome);
      reactor->Finish(ToGrpc(outcome.status()));
    });
    if (*broken) core.BreakSync(ticket);
    return reactor;
  }

  void OnCancel() override {
    *broken_ = true;
    core_.BreakSync(ticket_);
  }
  void OnDone() override { delete this; }

 private:
  ServerCore& core_;
  const int64_t ticket_;
  const std::shared_ptr<std::atomic<bool>> broken_ = std::make_shared<std::atomic<bool>>(false);
};

class ResultsReactor : public grpc::ServerUnaryReactor {
 public:
  void OnDone() override { delete this; }
};

}  // namespace

grpc::ServerUnaryReactor* WorkerServiceImpl::Register(grpc::CallbackServerContext* context,
                                                      const v1::RegisterRequest* request, v1::RegisterReply* reply) {
  if (const absl::Status admitted = Admit(*context, *request, kLargestReport); !admitted.ok()) {
    return Answer(context, admitted);
  }
  const absl::StatusOr<std::string> session = core_.Register(FromWire(*request));
  if (!session.ok()) return Answer(context, session.status());
  reply->set_session(*session);
  reply->set_lease_ms(static_cast<int32_t>(absl::ToInt64Milliseconds(core_.options().dispatch.lease)));
  reply->set_sync_ms(static_cast<int32_t>(absl::ToInt64Milliseconds(core_.options().dispatch.lease / kRenewals)));
  return Answer(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* WorkerServiceImpl::Sync(grpc::CallbackServerContext* context, const v1::SyncRequest* request,
                                                  v1::SyncReply* reply) {
  if (const absl::Status admitted = Admit(*context, *request, kLargestReport); !admitted.ok()) {
    return Answer(context, admitted);
  }
  return SyncReactor::Begin(core_, *request, reply);
}

grpc::ServerUnaryReactor* WorkerServiceImpl::SubmitResults(grpc::CallbackServerContext* context,
                                                           const v1::SubmitResultsRequest* request,
                                                           v1::SubmitResultsReply* reply) {
  if (const absl::Status admitted = Admit(*context, *request, kLargestReport); !admitted.ok()) {
    return Answer(context, admitted);
  }
  std::vector<ItemResult> results;
  for (const v1::CandidateResult& result : request->results()) results.push_back(ItemResultOf(result));
  for (const v1::ModelResult& result : request->models()) results.push_back(ItemResultOf(result));
  auto* reactor = new ResultsReactor;
  core_.SubmitResults(std::move(results), [reactor, reply](const absl::StatusOr<std::vector<bool>>& acked) {
    Failpoint("before_ack");
    if (acked.ok()) reply->mutable_acked()->Add(acked->begin(), acked->end());
    reactor->Finish(ToGrpc(acked.status()));
  });
  return reactor;
}

}  // namespace temper
