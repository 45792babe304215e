// temper-worker: serves a device to a temper-server. The same program is the measuring child that it starts.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <set>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/chores.h"
#include "base/log.h"
#include "base/notify.h"
#include "base/program.h"
#include "base/state_directory.h"
#include "base/version.h"
#include "measure_worker/backend.h"
#include "measure_worker/host/cores.h"
#include "measure_worker/join_command.h"
#include "measure_worker/sandbox/confinement.h"
#include "measure_worker/sandbox/process.h"
#include "measure_worker/sandbox/session.h"
#include "measure_worker/service/membership.h"
#include "measure_worker/service/station.h"

namespace temper::worker {
namespace {

constexpr int kOkExit = 0, kFailedExit = 1, kUsageExit = 2;
constexpr absl::Duration kLookAtCertificates = absl::Hours(1), kLookAtFiles = absl::Seconds(5);

struct Options {
  std::string server, target = "host", require_sandbox = "basic", spool, log_format = "text";
  std::vector<std::string> keys, devices;
  TlsFiles tls;
  std::string state_dir = StateDirectory();
  bool shares_server_cores = false, parent_watch = false, verbose = false;
  int child_fd = -1;  // this is the measuring child
};

// Descriptors are cheap, and running out of them is not.
void RaiseDescriptorLimit() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// Stations that the server refuses for good; where others go on, each is told of once, in `told`.
size_t CountRefused(const std::vector<std::unique_ptr<Station>>& stations, const std::vector<std::string>& keys,
                    std::set<std::string>& told) {
  size_t refused = 0;
  for (size_t i = 0; i < stations.size(); ++i) {
    const std::string why = stations[i]->Refused();
    if (why.empty()) continue;
    ++refused;
    if (stations.size() > 1 && told.insert(keys[i]).second)
      LogError({.key = keys[i]}, "the server refuses this worker, which serves '{}' no more: {}", keys[i], why);
  }
  return refused;
}

// Blocks until one of the signals, or, if asked to watch it, until our parent is gone. Returns which. Tells a service
// manager that watches this process that it lives, while all stations do. kPermissionDenied: the server refuses all.
absl::StatusOr<std::string> AwaitEnd(const sigset_t& signals, pid_t watched_parent, const ServiceNotifier& notifier,
                                     const std::vector<std::unique_ptr<Station>>& stations,
                                     const std::vector<std::string>& keys) {
  std::set<std::string> refused;
  constexpr timespec kLookAgain{0, 200'000'000};
  // Thrice as often as asked, for one message may come late.
  const absl::Duration every = notifier.watchdog().value_or(absl::InfiniteDuration()) / 3;
  for (absl::Time told = absl::Now();;) {
    const int signal = sigtimedwait(&signals, nullptr, &kLookAgain);
    if (signal > 0) return absl::StrCat("the worker was told to by SIG", sigabbrev_np(signal));
    if (watched_parent != 0 && getppid() != watched_parent) return std::string("the worker's parent process is gone");
    if (CountRefused(stations, keys, refused) == stations.size()) {
      return absl::PermissionDeniedError(absl::StrCat("the server refuses this worker: ", stations.back()->Refused()));
    }
    if (absl::Now() - told < every || !std::ranges::all_of(stations, [](const auto& s) { return s->Lives(); }))
      continue;
    notifier.Send("WATCHDOG=1");
    told = absl::Now();
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

// A device for each --device and --key, in order.
absl::StatusOr<std::vector<StationOptions>> Stations(const Options& options) {
  if (options.keys.size() != options.devices.size()) {
    return absl::InvalidArgumentError(absl::StrCat(options.devices.size(), " times --device and ", options.keys.size(),
                                                   " times --key; give a --key for each --device"));
  }
  std::vector<StationOptions> stations;
  for (size_t i = 0; i < options.keys.size(); ++i) {
    StationOptions& station = stations.emplace_back();
    station.key = options.keys[i];
    TEMPER_ASSIGN_OR_RETURN(station.device, ParseDeviceSpec(options.devices[i]));
    station.target = options.target;
    station.shares_server_cores = options.shares_server_cores;
    if (!options.spool.empty())
      station.spool = options.keys.size() == 1 ? options.spool : absl::StrCat(options.spool, "/", i);
  }
  return stations;
}

// What was given, else what this machine got when it joined for the key, else plaintext.
TlsFiles TlsFor(const Options& options, const std::string& key) {
  const bool given = !options.tls.authority.empty() || !options.tls.certificate.empty() || !options.tls.key.empty();
  return given ? options.tls : MembershipOf(options.state_dir, key);
}

Chore RenewingCertificate(const std::string& server, const std::string& key, const TlsFiles& files) {
  return {.name = absl::StrCat("renewing the certificate for key '", key, "'"),
          .every = kLookAtCertificates,
          .run = [server, key, files]() -> absl::Status {
            TEMPER_ASSIGN_OR_RETURN(const bool renewed, RenewMembership(server, files, absl::Now()));
            if (renewed) spdlog::info("the certificate for key '{}' is renewed: {}", key, files.certificate);
            return absl::OkStatus();
          }};
}

Chore LookingAtFiles(const std::string& key, TlsWatch& watch) {
  return {.name = absl::StrCat("looking at TLS's files for key '", key, "'"), .every = kLookAtFiles, .run = [&watch] {
            watch.LookAgain();
            return absl::OkStatus();
          }};
}

// To people who start it by hand; only the server knows whether it lets the worker in.
void TellWhatIsOffered(const Options& options) {
  for (size_t i = 0; i < options.keys.size(); ++i) {
    std::printf("temper-worker offers %s as '%s' to %s; `temper devices` shows its state\n", options.devices[i].c_str(),
                options.keys[i].c_str(), options.server.c_str());
  }
  std::fflush(stdout);
}

absl::Status Serve(const Options& options) {
  const pid_t parent = options.parent_watch ? getppid() : 0;
  TEMPER_ASSIGN_OR_RETURN(std::vector<StationOptions> devices, Stations(options));
  for (const StationOptions& device : devices) TEMPER_RETURN_IF_ERROR(CheckCores(device.device.cores));
  // Of one device, all threads stay on its cores; of several, those that measure.
  if (devices.size() == 1 && !devices[0].device.cores.empty())
    TEMPER_RETURN_IF_ERROR(BindToCores(devices[0].device.cores));
  TEMPER_ASSIGN_OR_RETURN(const Confinement confinement, Confine(options.require_sandbox));
  RaiseDescriptorLimit();
  // All threads leave these to AwaitEnd; the child gets its own mask.
  const sigset_t signals = EndSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);

  std::vector<std::unique_ptr<TlsWatch>> watches;
  std::vector<std::unique_ptr<Station>> stations;
  std::vector<Chore> chores;
  for (StationOptions& device : devices) {
    const TlsFiles files = TlsFor(options, device.key);
    chores.push_back(RenewingCertificate(options.server, device.key, files));
    if (files.authority.empty() && !options.server.starts_with("unix:"))
      device.hint = "; does the server want encryption? Then run: temper-worker join";
    TEMPER_ASSIGN_OR_RETURN(WatchedCredentials tls, WatchedCredentialsOf(options.server, files, absl::Now()));
    if (tls.watch != nullptr) {
      chores.push_back(LookingAtFiles(device.key, *tls.watch));
      watches.push_back(std::move(tls.watch));
    }
    TEMPER_ASSIGN_OR_RETURN(auto station,
                            Station::Make(device, confinement, ConnectByGrpc(options.server, tls.credentials)));
    stations.push_back(std::move(station));
  }
  for (const auto& station : stations) station->Start();
  if (!options.parent_watch) TellWhatIsOffered(options);
  const ChoreThread looking_after(std::move(chores), Clock::System());
  const ServiceNotifier notifier = ServiceNotifier::FromEnvironment();
  notifier.Send("READY=1");
  const absl::StatusOr<std::string> end = AwaitEnd(signals, parent, notifier, stations, options.keys);
  const std::string why = end.ok() ? *end : std::string(end.status().message());
  notifier.Send("STOPPING=1");
  spdlog::info("stopping: {}", why);
  std::vector<std::thread> stopping;
  for (const auto& station : stations) stopping.emplace_back([&] { station->Stop(why); });
  for (std::thread& t : stopping) t.join();
  return end.status();
}

int RunChild(const Options& options) {
  const auto device = ParseDeviceSpec(options.devices.at(0));
  if (!device.ok()) return kUsageExit;
  absl::StatusOr<Backend> backend = MakeBackend(*device);
  if (!backend.ok()) {
    std::cerr << backend.status().message() << "\n";
    return kFailedExit;
  }
  return ChildMain(options.child_fd, *backend);
}

int Main(int argc, char** argv) {
  if (const std::string wrong = WrongCommandLine(argc, argv); !wrong.empty()) {
    std::cerr << "temper-worker: " << wrong << "\n";
    return kUsageExit;
  }
  if (argc > 1 && std::string_view(argv[1]) == "join") return RunJoin(argc - 1, argv + 1);
  Options options;
  CLI::App app("Builds, verifies and times kernels for a temper-server.", "temper-worker");
  app.footer("Example:\n  temper-worker --server 192.168.1.10:9190 --key epyc-zen5 --device cpu:0-15");
  auto* server = app.add_option("--server", options.server, "Where the server listens: HOST:PORT or unix:PATH");
  // One value each time, so that what follows is not taken for another.
  auto* key = app.add_option("--key", options.keys, "Your name for this kind of device")->allow_extra_args(false);
  app.add_option("--device", options.devices,
                 "What to measure on: cpu, cpu:CORES such as cpu:0-3,8, opencl:N for device N of OpenCL, or cuda:N for "
                 "NVIDIA's GPU N. Give it several times, each with its --key, to serve several devices [cpu]")
      ->allow_extra_args(false);
  app.add_option("--target", options.target,
                 "Target to generate code for, such as llvm:haswell; this machine must be able to run it")
      ->capture_default_str();
  app.add_option("--spool", options.spool,
                 "Folder for results that wait to be handed in [below $XDG_STATE_HOME or ~/.local/state]");
  app.add_option("--ca", options.tls.authority, "The server's authority (ca.crt) [as joined for this key]");
  app.add_option("--cert", options.tls.certificate, "This worker's certificate");
  app.add_option("--cert-key", options.tls.key, "The key of the certificate, in a file that only you may read");
  app.add_option("--state-dir", options.state_dir, "Folder in which temper-worker join kept them")
      ->capture_default_str();
  app.add_flag("--shares-server-cores", options.shares_server_cores,
               "The server runs on these cores too, and computes only while nothing is measured");
  app.add_option("--require-sandbox", options.require_sandbox,
                 "Start only if what is measured can be confined at least so: basic, isolated or full")
      ->capture_default_str();
  app.add_flag("--parent-watch", options.parent_watch, "Stop when the process that started this one is gone");
  app.add_option("--log-format", options.log_format, "text, or json with one object a line")
      ->envname("TEMPER_LOG_FORMAT")
      ->check(CLI::IsMember(kLogFormats))
      ->capture_default_str();
  app.add_flag("-v,--verbose", options.verbose, "Log more");
  app.set_version_flag("--version", absl::StrCat("temper-worker ", TemperVersion()));
  app.add_option("--child", options.child_fd)->group("");  // how this program starts itself
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);
    std::fprintf(stderr, "temper-worker: %s; see --help\n", e.what());
    return kUsageExit;
  }
  signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is an error like a full disk, in the measuring child too
  SetUpLogging(options.verbose, ParseLogFormat(options.log_format));
  if (options.devices.empty()) options.devices.push_back("cpu");
  LogLibrariesQuietly();
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
