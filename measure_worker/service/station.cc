#include "measure_worker/service/station.h"

#include <unistd.h>

#include <thread>
#include <utility>

#include <spdlog/spdlog.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/secure_random.h"
#include "measure_worker/backend.h"
#include "measure_worker/host/cores.h"
#include "measure_worker/sandbox/sandbox.h"
#include "measure_worker/service/agent.h"
#include "measure_worker/service/spool.h"

namespace temper::worker {
namespace {

constexpr absl::Duration kLongWait = absl::Seconds(2);

// Measures in a sandboxed child, one lease at a time on the device, whoever else wants it.
class SandboxMeasurer : public Measurer {
 public:
  // `device.cores` are those that the child runs on.
  SandboxMeasurer(const DeviceSpec& device, const Confinement& confinement)
      : sandbox_({"/proc/self/exe", "--child", std::to_string(kChildFd), "--device", Text(device)}, confinement,
                 Limits(device)),
        device_(device),
        lock_(FindBackend(device.backend)->lock(device)) {}

  absl::Status Run(const BatchWork& work, const CancelToken& token,
                   const std::function<void(int, TrialResult)>& on_trial) override {
    return Locked(token, [&] { return sandbox_.Run(work, token, on_trial); });
  }
  absl::Status Run(const FinalsWork& work, const CancelToken& token,
                   const std::function<void(int, TrialResult)>& on_trial) override {
    return Locked(token, [&] { return sandbox_.Run(work, token, on_trial); });
  }
  absl::StatusOr<ModelResult> Run(const ModelWork& work, const CancelToken& token) override {
    absl::StatusOr<ModelResult> result;
    const absl::Status status = Locked(token, [&] {
      result = sandbox_.Run(work, token);
      return result.status();
    });
    if (!status.ok()) return status;
    return result;
  }

 private:
  template <typename F>
  absl::Status Locked(const CancelToken& token, F run) {
    // This thread starts the child, which inherits its cores.
    if (AffinityCores() != device_.cores) TEMPER_RETURN_IF_ERROR(BindToCores(device_.cores));
    const absl::Time began = absl::Now();
    const auto give_up = [&] {
      if (absl::Now() - began > kLongWait && !std::exchange(told_, true))
        spdlog::warn("waiting for {}: another process measures on it, and takes turns with this one", Text(device_));
      return token.cancelled();
    };
    if (!lock_->Acquire(give_up)) return absl::CancelledError("cancelled");
    const absl::Status status = run();
    Watch();
    lock_->Release();
    return status;
  }
  // A record has no field for it, so the log keeps what the device was like while it measured.
  void Watch() const {
    auto* const watch = FindBackend(device_.backend)->watch;
    if (watch == nullptr || !spdlog::should_log(spdlog::level::info)) return;
    spdlog::info("{} after a lease: {}", Text(device_), watch(device_));
  }
  static SandboxLimits Limits(const DeviceSpec& device) {
    const BackendDef& backend = *FindBackend(device.backend);
    SandboxLimits limits;
    limits.simulated = backend.simulated();
    if (backend.driver_files != nullptr) limits.child.driver_files = backend.driver_files();
    return limits;
  }

  Sandbox sandbox_;
  const DeviceSpec device_;
  const std::unique_ptr<DeviceLock> lock_;
  bool told_ = false;  // that it has to be waited for
};

class SandboxedStation : public Station {
 public:
  SandboxedStation(const DeviceSpec& device, const Confinement& confinement, std::unique_ptr<ServerLink> link,
                   std::unique_ptr<Spool> spool, AgentOptions agent)
      : link_(std::move(link)),
        spool_(std::move(spool)),
        measurer_(device, confinement),
        agent_(*link_, measurer_, *spool_, std::move(agent)) {}

  void Start() override { agent_.Start(); }
  void Stop(const std::string& why) override { agent_.Stop(why); }
  bool Lives() override { return agent_.Lives(); }
  std::string Refused() override { return agent_.Refused(); }

 private:
  const std::unique_ptr<ServerLink> link_;
  const std::unique_ptr<Spool> spool_;
  SandboxMeasurer measurer_;
  Agent agent_;
};

std::string HostAndProcess() {
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  return absl::StrCat(host, ":", getpid());
}

// What the device is, seen from its cores.
absl::StatusOr<v1::RegisterRequest> Registration(const StationOptions& options, const Confinement& confinement) {
  if (!options.device.cores.empty()) TEMPER_RETURN_IF_ERROR(BindToCores(options.device.cores));
  const BackendDef& backend = *FindBackend(options.device.backend);
  TEMPER_ASSIGN_OR_RETURN(const DeviceReport report, backend.describe(options.device, options.target));
  v1::RegisterRequest r;
  r.set_device_key(options.key);
  r.set_fingerprint(report.fingerprint);
  r.set_target(report.target);
  r.set_codegen_id(report.codegen_id);
  r.set_threads(report.threads);
  // Where the server computes on the same cores, a lease in reserve would only keep it out.
  r.set_slots(options.shares_server_cores ? 1 : report.slots);
  r.set_shares_server_cores(options.shares_server_cores);
  r.set_name(HostAndProcess());
  r.set_sandbox(Text(confinement));
  spdlog::info("{} on cores {}: {}; sandbox {}", options.key, CoreListText(AffinityCores()), r.fingerprint(),
               r.sandbox());
  return r;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Station>> Station::Make(const StationOptions& options, const Confinement& confinement,
                                                       std::unique_ptr<ServerLink> link) {
  absl::StatusOr<v1::RegisterRequest> registration;
  std::thread([&] { registration = Registration(options, confinement); }).join();
  if (!registration.ok()) return registration.status();
  AgentOptions agent;
  agent.registration = *std::move(registration);
  agent.seed = SecureRandom();
  agent.hint = options.hint;
  std::unique_ptr<Spool> spool;
  if (options.spool.empty()) {
    spool = OpenDefaultSpool(options.key);
  } else {
    TEMPER_ASSIGN_OR_RETURN(spool, Spool::Open(options.spool));
  }
  DeviceSpec device = options.device;
  if (device.cores.empty()) device.cores = AffinityCores();
  return std::make_unique<SandboxedStation>(device, confinement, std::move(link), std::move(spool), std::move(agent));
}

}  // namespace temper::worker
