// What all handlers ask of a call before they look at it.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "proto/check.h"
#include "proto/convert.h"
#include "tuner_server/service/callers.h"
#include "tuner_server/service/work_pool.h"

namespace temper {

inline constexpr size_t kLargestQuery = 4 << 20, kLargestReport = 1 << 20, kLargestGraph = 16 << 20;

// Why a job ends that nobody could submit any more.
inline constexpr char kNobodysJob[] = "the last token of its owner's that may submit it was revoked";

// How many of a list are told at once, where `asked` is what the request says; 0: it does not say.
inline constexpr int kMostAPage = 1000;
inline int PageSize(int asked, int otherwise) { return asked == 0 ? otherwise : std::min(asked, kMostAPage); }

// Who calls. What a handler sees has passed this: the caller has the right, the call has a deadline, the request a
// bounded size, and each of its fields keeps its limit. A call without a deadline could wait for ever on a server that
// hangs, and holds its resources for as long.
template <typename Request>
absl::StatusOr<Admitted> Admit(Callers& callers, const grpc::CallbackServerContext& context, const Request& request,
                               size_t largest, Call call, const Subject& subject = {}) {
  if (context.deadline() == std::chrono::system_clock::time_point::max()) {
    callers.CountRejected("no_deadline");
    return absl::InvalidArgumentError("the call has no deadline");
  }
  if (const size_t bytes = request.ByteSizeLong(); bytes > largest) {
    callers.CountRejected("too_large");
    return absl::ResourceExhaustedError(
        absl::StrCat("the request has ", bytes, " bytes; at most ", largest, " are taken"));
  }
  absl::StatusOr<Admitted> caller = callers.Admit(context, call, subject);
  if (!caller.ok()) return caller;
  if (absl::Status fit = CheckMessage(request); !fit.ok()) {
    callers.CountRejected("bad_field");
    return fit;
  }
  return caller;
}

inline grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context, const absl::Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpc(status));
  return reactor;
}

// Answers with the status of `work`, which fills the reply on one of the pool's threads, once the audit has the call.
// What holds up a call so holds up no worker's: gRPC's own threads are few.
inline grpc::ServerUnaryReactor* AnswerFrom(WorkPool& pool, Callers& callers, grpc::CallbackServerContext* context,
                                            const absl::StatusOr<Admitted>& admitted, size_t bytes,
                                            std::function<absl::Status()> work) {
  if (!admitted.ok()) return Answer(context, admitted.status());
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const std::string who = Sharer(admitted->principal);
  const absl::Status queued =
      pool.Run(who, bytes, [&callers, context, reactor, caller = *admitted, work = std::move(work)] {
        // Nobody waits for the answer to a call that was given up meanwhile.
        if (context->IsCancelled()) return reactor->Finish(grpc::Status::CANCELLED);
        const bool audited = callers.Audit(caller);
        const absl::Status done = work();
        if (!done.ok() && audited) callers.AuditFailure(caller, done);
        reactor->Finish(ToGrpc(done));
      });
  if (!queued.ok()) reactor->Finish(ToGrpc(queued));
  return reactor;
}

}  // namespace temper
