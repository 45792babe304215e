// Who makes a call: what gRPC knows of it, judged by the gate. Thread-safe.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "base/allowance.h"
#include "security/gate.h"
#include "tuner_server/operations/metrics.h"
#include "tuner_server/service/work_pool.h"

namespace temper {

// Who may make a call, and what the audit is to keep of it before it is done.
struct Admitted {
  Principal principal;
  std::optional<AuditRow> to_audit;
};

class Callers {
 public:
  // Both outlive it; the gate tells it of revocations.
  Callers(Gate& gate, Metrics& metrics);

  // Each change is a line of the audit, which stays. So many may one who is no admin make at once, and for long.
  static constexpr double kChangesAtOnce = 1000, kChangesPerSecond = 20;

  // See Gate::Judge. Who is refused is counted, and audited on a thread of its own. kResourceExhausted: too many
  // changes.
  absl::StatusOr<Admitted> Admit(const grpc::CallbackServerContext& context, Call call, const Subject& subject);
  // Waits for the store; for threads that may. False: it could not be kept, and the log says so.
  bool Audit(const Admitted& admitted);
  // What was audited before it was done was not done after all.
  void AuditFailure(const Admitted& admitted, const absl::Status& why);

  // See Gate.
  bool StillStands(const Principal& principal) const { return gate_.StillStands(principal); }
  bool MaySubmit(const std::string& owner, const std::string& device_key) const {
    return gate_.MaySubmit(owner, device_key);
  }

  // PEM of the certificate whose key the caller proved to hold; empty: none.
  static std::string CertificateOf(const grpc::CallbackServerContext& context);

  // A message was refused for what it holds: "no_deadline", "too_large", "bad_field", "unreadable".
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

  bool MayChange(const Principal& principal);

  Gate& gate_;
  Metrics& metrics_;
  // Recursive: gRPC may end a call, and so its Lasting, on the thread that cancels it.
  std::recursive_mutex mutex_;
  std::map<int64_t, LastingCall> lasting_;
  int64_t next_id_ = 1;
  std::mutex changes_mutex_;
  std::map<std::string, Allowance> changes_;  // by who shares
  WorkPool refusals_{{.threads = 1, .waiting = 64, .bytes = 0}};
};

}  // namespace temper
