#include "tuner_server/service/worker_service.h"

#include <atomic>

#include "absl/strings/str_cat.h"
#include "base/failpoint.h"
#include "proto/convert.h"
#include "tuner_server/service/calls.h"
#include "tuner_server/service/wire.h"

namespace temper {
namespace {

constexpr int kRenewals = 6;  // of a lease before it ends

// Answered by the core, at once or when there is something to say.
class SyncReactor : public grpc::ServerUnaryReactor {
 public:
  SyncReactor(ServerCore& core, int64_t ticket, Callers& callers, grpc::CallbackServerContext* context,
              Principal principal)
      : core_(core), ticket_(ticket), lasting_(callers, context, std::move(principal)) {}

  static grpc::ServerUnaryReactor* Begin(ServerCore& core, Callers& callers, grpc::CallbackServerContext* context,
                                         Principal principal, const v1::SyncRequest& request, v1::SyncReply* reply) {
    SyncCall call;
    call.ticket = core.NewTicket();
    call.session = request.session();
    call.holder = principal.holds;
    call.held.assign(request.leases().begin(), request.leases().end());
    call.free_slots = request.free_slots();
    call.wait = absl::Milliseconds(request.wait_ms());
    auto* reactor = new SyncReactor(core, call.ticket, callers, context, std::move(principal));
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
  const Callers::Lasting lasting_;
  const std::shared_ptr<std::atomic<bool>> broken_ = std::make_shared<std::atomic<bool>>(false);
};

class ResultsReactor : public grpc::ServerUnaryReactor {
 public:
  void OnDone() override { delete this; }
};

}  // namespace

absl::Status WorkerServiceImpl::TakeIn(const v1::RegisterRequest& request, const std::string& holder,
                                       v1::RegisterReply& reply) {
  const std::string &key = request.device_key(), &fingerprint = request.fingerprint();
  WorkerInfo worker = FromWire(request);
  worker.holder = holder;
  TEMPER_ASSIGN_OR_RETURN(const std::string session, core_.Register(worker));
  if (!gate_.IsApproved(key, fingerprint)) {
    // Nobody knows the session yet, so nothing was granted before this.
    core_.HoldBack(session, Gate::WhyPending(key));
    TEMPER_ASSIGN_OR_RETURN(const bool may_serve, gate_.MayServe(key, fingerprint, holder));
    // It is the first of its key, or an admin has approved it since it was held back.
    if (may_serve || gate_.IsApproved(key, fingerprint)) core_.AdmitDevice(key, fingerprint);
  }
  reply.set_session(session);
  reply.set_lease_ms(static_cast<int32_t>(absl::ToInt64Milliseconds(core_.options().dispatch.lease)));
  reply.set_sync_ms(static_cast<int32_t>(absl::ToInt64Milliseconds(core_.options().dispatch.lease / kRenewals)));
  return absl::OkStatus();
}

grpc::ServerUnaryReactor* WorkerServiceImpl::Register(grpc::CallbackServerContext* context,
                                                      const v1::RegisterRequest* request, v1::RegisterReply* reply) {
  const auto admitted = Admit(callers_, *context, *request, kLargestReport, Call::kRegister,
                              {.device_key = request->device_key(), .text = request->device_key()});
  if (!admitted.ok()) return Answer(context, admitted.status());
  if (request->wire_version() < kOldestWireVersion) {
    return Answer(context, absl::FailedPreconditionError(absl::StrCat(
                               "the worker ", request->name(), " speaks version ", request->wire_version(),
                               " of the wire, and this server needs ", kOldestWireVersion, ": update it")));
  }
  const std::string& holder = admitted->principal.holds;
  // Most are known, and wait for nobody.
  if (gate_.IsApproved(request->device_key(), request->fingerprint()))
    return Answer(context, TakeIn(*request, holder, *reply));
  return AnswerFrom(new_devices_, callers_, context, admitted, request->ByteSizeLong(),
                    [=, this] { return TakeIn(*request, holder, *reply); });
}

grpc::ServerUnaryReactor* WorkerServiceImpl::Sync(grpc::CallbackServerContext* context, const v1::SyncRequest* request,
                                                  v1::SyncReply* reply) {
  absl::StatusOr<Admitted> admitted = Admit(callers_, *context, *request, kLargestReport, Call::kSync);
  if (!admitted.ok()) return Answer(context, admitted.status());
  return SyncReactor::Begin(core_, callers_, context, std::move(admitted->principal), *request, reply);
}

grpc::ServerUnaryReactor* WorkerServiceImpl::SubmitResults(grpc::CallbackServerContext* context,
                                                           const v1::SubmitResultsRequest* request,
                                                           v1::SubmitResultsReply* reply) {
  const auto admitted = Admit(callers_, *context, *request, kLargestReport, Call::kSubmitResults);
  if (!admitted.ok()) return Answer(context, admitted.status());
  std::vector<ItemResult> results;
  for (const v1::CandidateResult& result : request->results()) results.push_back(ItemResultOf(result));
  for (const v1::ModelResult& result : request->models()) results.push_back(ItemResultOf(result));
  for (ItemResult& result : results) {
    result.instance = request->instance();
    result.holder = admitted->principal.holds;
  }
  auto* reactor = new ResultsReactor;
  core_.SubmitResults(std::move(results), [reactor, reply](const absl::StatusOr<std::vector<bool>>& acked) {
    Failpoint("before_ack");
    if (acked.ok()) reply->mutable_acked()->Add(acked->begin(), acked->end());
    reactor->Finish(ToGrpc(acked.status()));
  });
  return reactor;
}

grpc::ServerUnaryReactor* WorkerServiceImpl::Leave(grpc::CallbackServerContext* context,
                                                   const v1::LeaveRequest* request, v1::LeaveReply*) {
  const auto admitted = Admit(callers_, *context, *request, kLargestReport, Call::kLeave);
  if (!admitted.ok()) return Answer(context, admitted.status());
  return Answer(context, core_.Leave(request->session(), admitted->principal.holds, request->reason()));
}

}  // namespace temper
