// temper-worker: serves a device to a temper-server. The same program is the measuring child that it starts.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "compiler/codegen/codegen.h"
#include "compiler/target/target.h"
#include "measure_worker/sandbox/session.h"
#include "measure_worker/service/agent.h"
#include "measure_worker/service/device.h"
#include "measure_worker/service/fingerprint.h"

namespace temper::worker {
namespace {

constexpr int kOkExit = 0, kFailedExit = 1, kUsageExit = 2;

struct Options {
  std::string server, key, device = "cpu", target = "host", require_sandbox = "basic";
  std::string log_format = "text";
  bool shares_server_cores = false, parent_watch = false, verbose = false;
  int child_fd = -1;  // this is the measuring child
};

// Measures in a sandboxed child, one lease at a time on these cores, whoever else wants them.
class SandboxMeasurer : public Measurer {
 public:
  SandboxMeasurer(std::vector<std::string> command, Confinement confinement, const SandboxLimits& limits,
                  const std::vector<int>& cores)
      : sandbox_(std::move(command), std::move(confinement), limits), cores_(LockDirectory(), cores) {}

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
    if (!cores_.Acquire([&] { return token.cancelled(); })) return absl::CancelledError("cancelled");
    const absl::Status status = run();
    cores_.Release();
    return status;
  }

  Sandbox sandbox_;
  CoreLock cores_;
};

// Descriptors are cheap, and running out of them is not.
void RaiseDescriptorLimit() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

std::string HostAndProcess() {
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  return absl::StrCat(host, ":", getpid());
}

// Blocks until SIGTERM or SIGINT, or, if asked to watch it, until our parent is gone.
void AwaitEnd(const sigset_t& signals, pid_t watched_parent) {
  constexpr timespec kLookAgain{0, 200'000'000};
  for (;;) {
    const int signal = sigtimedwait(&signals, nullptr, &kLookAgain);
    if (signal > 0) {
      spdlog::info("stopping on SIG{}", sigabbrev_np(signal));
      return;
    }
    if (watched_parent != 0 && getppid() != watched_parent) {
      spdlog::info("stopping: the parent process is gone");
      return;
    }
  }
}

// What children can be confined by here, if it is enough. What dead workers left is taken away first.
absl::StatusOr<Confinement> Confine(const std::string& required) {
  TEMPER_ASSIGN_OR_RETURN(const SandboxTier least, ParseSandboxTier(required));
  // A child that runs as the same user must not look into this process, which knows secrets.
  prctl(PR_SET_DUMPABLE, 0);
  if (const int swept = SweepScratch(); swept > 0)
    spdlog::info("removed {} folders of workers that were killed", swept);
  TEMPER_ASSIGN_OR_RETURN(Confinement confinement, ProbeConfinement());
  if (confinement.cgroup.has_value()) SweepControlGroups(*confinement.cgroup);
  if (TierOf(confinement) < least) {
    return absl::FailedPreconditionError(absl::StrCat("--require-sandbox ", required, " can not be had here, only ",
                                                      Text(confinement), "; TEMPER_LOG=debug says why"));
  }
  return confinement;
}

absl::Status Serve(const Options& options) {
  const pid_t parent = options.parent_watch ? getppid() : 0;
  TEMPER_ASSIGN_OR_RETURN(const DeviceSpec device, ParseDeviceSpec(options.device));
  if (!device.cores.empty()) TEMPER_RETURN_IF_ERROR(BindToCores(device.cores));
  TEMPER_ASSIGN_OR_RETURN(const Confinement confinement, Confine(options.require_sandbox));
  RaiseDescriptorLimit();
  // All threads leave these to AwaitEnd; the child gets its own mask.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);

  const int threads = HostTarget().threads;
  TEMPER_ASSIGN_OR_RETURN(Target target, ParseTarget(options.target));
  TEMPER_RETURN_IF_ERROR(CheckRunsHere(target));
  target.threads = threads;
  AgentOptions agent_options;
  v1::RegisterRequest& r = agent_options.registration;
  r.set_device_key(options.key);
  r.set_fingerprint(device.backend == "null" ? "null device" : Fingerprint(FingerprintDirectory()));
  r.set_target(Text(target));
  r.set_codegen_id(CodegenId());
  r.set_threads(target.threads);
  // One lease in reserve keeps the device busy; where the server computes on the same cores, it would only keep it out.
  r.set_slots(options.shares_server_cores ? 1 : 2);
  r.set_shares_server_cores(options.shares_server_cores);
  r.set_name(HostAndProcess());
  r.set_sandbox(Text(confinement));
  agent_options.seed = static_cast<uint64_t>(getpid());
  spdlog::info("{} on cores {}: {}; sandbox {}", options.key, CoreListText(AffinityCores()), r.fingerprint(),
               r.sandbox());

  SandboxLimits limits;
  limits.simulated = FindBackend(device.backend)->simulated;
  SandboxMeasurer measurer({"/proc/self/exe", "--child", std::to_string(kChildFd), "--device", device.backend},
                           confinement, limits, AffinityCores());
  const auto link = ConnectByGrpc(options.server);
  Agent agent(*link, measurer, std::move(agent_options));
  agent.Start();
  AwaitEnd(signals, parent);
  agent.Stop();
  return absl::OkStatus();
}

int RunChild(const Options& options) {
  const auto device = ParseDeviceSpec(options.device);
  if (!device.ok()) return kUsageExit;
  const auto backend = FindBackend(device->backend)->make();
  return ChildMain(options.child_fd, *backend);
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app("Builds, verifies and times kernels for a temper-server.", "temper-worker");
  app.footer("Example: temper-worker --server 192.168.1.10:9190 --key epyc-zen5 --device cpu:0-15");
  auto* server = app.add_option("--server", options.server, "Where the server listens: HOST:PORT or unix:PATH");
  auto* key = app.add_option("--key", options.key, "Your name for this kind of device");
  app.add_option("--device", options.device, "What to measure on: cpu, or cpu:CORES such as cpu:0-3,8")
      ->capture_default_str();
  app.add_option("--target", options.target, "What to generate code for, such as llvm:haswell; it has to run here")
      ->capture_default_str();
  app.add_flag("--shares-server-cores", options.shares_server_cores,
               "The server runs on these cores too: it computes only while nothing is measured");
  app.add_option("--require-sandbox", options.require_sandbox,
                 "Do not start where less can confine what is measured: basic, isolated or full")
      ->capture_default_str();
  app.add_flag("--parent-watch", options.parent_watch, "Stop when the process that started this one is gone");
  app.add_option("--log-format", options.log_format, "text, or json: an object a line")
      ->envname("TEMPER_LOG_FORMAT")
      ->check(CLI::IsMember(kLogFormats))
      ->capture_default_str();
  app.add_flag("-v,--verbose", options.verbose, "Say what is going on");
  app.add_option("--child", options.child_fd)->group("");  // how this program starts itself
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);
    std::fprintf(stderr, "temper-worker: %s; see --help\n", e.what());
    return kUsageExit;
  }
  SetUpLogging(options.verbose, ParseLogFormat(options.log_format));
  if (options.child_fd >= 0) return RunChild(options);
  if (server->empty() || key->empty()) {
    std::cerr << "temper-worker: give " << (server->empty() ? "--server HOST:PORT" : "--key NAME") << "; see --help\n";
    return kUsageExit;
  }
  if (const absl::Status status = Serve(options); !status.ok()) {
    std::cerr << "temper-worker: " << status.message() << "\n";
    return absl::IsInvalidArgument(status) ? kUsageExit : kFailedExit;
  }
  return kOkExit;
}

}  // namespace
}  // namespace temper::worker

int main(int argc, char** argv) { return temper::worker::Main(argc, argv); }
