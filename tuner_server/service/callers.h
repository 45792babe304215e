// Who makes a call: what gRPC knows of it, judged by the gate. Thread-safe.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include "security/gate.h"
#include "tuner_server/operations/metrics.h"

namespace temper {

class Callers {
 public:
  // Both outlive it; the gate tells it of revocations.
  Callers(Gate& gate, Metrics& metrics);

  // See Gate::Admit. Who is refused is counted.
  absl::StatusOr<Principal> Admit(const grpc::CallbackServerContext& context, Call call, const Subject& subject);

  // PEM of the certificate whose key the caller proved to hold; empty: none.
  static std::string CertificateOf(const grpc::CallbackServerContext& context);

  // A message was refused for what it holds: "no_deadline", "too_large", "bad_field".
  void CountRejected(std::string_view reason) { metrics_.Add(Metric::kRejectedMessages, reason); }

  // Cancels the calls that last and whose callers no longer stand (Gate::StillStands). Revocations do so at once;
  // nobody tells when a token or a certificate expires, so this is to be called now and then.
  void CancelOutlived();

  // A call that lasts: it is cancelled when what let its caller in is revoked, or has expired. Held until the call's
  // OnDone, and no longer: the call's context has to be there.
  class Lasting {
   public:
    Lasting(Callers& callers, grpc::CallbackServerContext* context, Principal principal);
    ~Lasting();
    Lasting(const Lasting&) = delete;
    Lasting& operator=(const Lasting&) = delete;

   private:
    Callers& callers_;
    int64_t id_;
  };

 private:
  struct LastingCall {
    grpc::CallbackServerContext* context;
    Principal principal;
  };

  Gate& gate_;
  Metrics& metrics_;
  // Recursive: gRPC may end a call, and so its Lasting, on the thread that cancels it.
  std::recursive_mutex mutex_;
  std::map<int64_t, LastingCall> lasting_;
  int64_t next_id_ = 1;
};

}  // namespace temper
