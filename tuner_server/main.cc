// temper-server: serves tuning jobs to clients and work to workers, over one database.
#include <malloc.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "base/program.h"
#include "base/version.h"
#include "proto/channel.h"
#include "storage/store.h"
#include "tuner_server/dashboard/dashboard.h"
#include "tuner_server/directory_commands.h"
#include "base/notify.h"
#include "tuner_server/operations/operations.h"
#include "tuner_server/operations/pages.h"
#include "tuner_server/service/server.h"

namespace {

constexpr char kExample[] =
    "temper-server init DIR and temper-server renew DIR look after what an encrypted server needs.\n"
    "Example:\n"
    "  temper-server --db records.db --listen 127.0.0.1:9190\n"
    "  temper-worker --server 127.0.0.1:9190 --key laptop\n"
    "  temper tune model.onnx --server 127.0.0.1:9190 --device laptop --trials 500\n";

constexpr int64_t kMostKept = 1'000'000'000'000;

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "temper-server: %s\n", std::string(status.message()).c_str());
  return 1;
}

// Every connection is a descriptor, and gRPC goes deaf for good when it runs out of them.
void RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// What a fit of the model takes for a moment goes back to the system: by default glibc would keep blocks of a size that
// was freed once, and a server's memory would grow with the largest model it ever fitted in each thread.
void ReturnLargeBlocks() { mallopt(M_MMAP_THRESHOLD, 64 << 10); }

// gRPC 1.51 heeds the server's limit to what it reads at once (tuner_server/service/server.cc) only without this
// experiment of its own, which it looks for in the environment.
void BoundReads() { setenv("GRPC_EXPERIMENTS", "-tcp_read_chunks", /*overwrite=*/0); }

// An option whose value is a period such as 6h.
CLI::Option* AddPeriod(CLI::App& app, const std::string& name, absl::Duration& period, const std::string& help) {
  return app
      .add_option_function<std::string>(
          name, [&period](const std::string& text) { period = *temper::ParsePeriod(text); }, help)
      ->check([](const std::string& text) { return std::string(temper::ParsePeriod(text).status().message()); });
}

void AddOperationsOptions(CLI::App& app, temper::OperationsOptions& operations, temper::DashboardOptions& dashboard) {
  auto* http = app.add_option(
      "--http", operations.http,
      "HOST:PORT of the dashboard, and of the pages /metrics, /healthz, /readyz and /pending?key=KEY, for "
      "machines");
  app.add_flag("--http-insecure", operations.beyond_loopback,
               "The pages for machines may be where others reach them, without encryption and for anyone");
  app.add_option("--http-host", dashboard.hosts, "A name that the dashboard is reached by, behind a proxy")
      ->allow_extra_args(false)
      ->check([](const std::string& name) {
        return temper::IsHostName(name) ? "" : "it is a name such as tuner.example, without a port";
      })
      ->needs(http);
  auto* snapshots = app.add_option("--snapshot-dir", operations.snapshots.directory,
                                   "Folder for snapshots of the database; without it none are taken");
  AddPeriod(app, "--snapshot-every", operations.snapshots.every, "Time between snapshots")
      ->default_str("6h")
      ->needs(snapshots);
  app.add_option("--snapshot-keep", operations.snapshots.keep, "Number of snapshots to keep")
      ->check(CLI::Range(1, 10'000))
      ->needs(snapshots)
      ->capture_default_str();
  app.add_option("--keep-records", operations.retention.keep_records,
                 "Number of records to keep for each workload and target, checked once a day; 0: all")
      ->check(CLI::Range(int64_t{0}, kMostKept));
  app.add_option("--keep-jobs", operations.retention.keep_jobs, "Number of jobs to keep; 0: all")
      ->check(CLI::Range(int64_t{0}, kMostKept));
  AddPeriod(app, "--keep-audit", operations.retention.keep_audit,
            "How long to keep lines of the audit (default: for ever)");
}

// Blocks until one of these signals. Tells a service manager that watches this process that it lives, while it does.
int AwaitSignal(const sigset_t& signals, const temper::ServiceNotifier& notifier, const std::function<bool()>& lives) {
  // Thrice as often as asked, for one message may come late.
  const timespec nap = absl::ToTimespec(notifier.watchdog().value_or(absl::Hours(1)) / 3);
  for (;;) {
    if (const int signal = sigtimedwait(&signals, nullptr, &nap); signal > 0) return signal;
    if (notifier.watchdog().has_value() && lives()) notifier.Send("WATCHDOG=1");
  }
}

// Ends this process when the one that started it is gone: by the kernel's word, and by the end of stdin, which also
// covers a parent thread that ended or died before the first was asked for.
void WatchParent() {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  std::thread([] {
    char byte;
    while (read(STDIN_FILENO, &byte, 1) > 0) {
    }
    kill(getpid(), SIGTERM);
  }).detach();
}

// SQLite maps the index of its log into memory. Nothing can be read where its file ends too soon, and no other process
// could read the database if there were no such file.
void EndWithALineOnBusError() {
  struct sigaction action {};
  action.sa_flags = static_cast<int>(SA_RESETHAND);  // the second one ends the process
  action.sa_handler = [](int) {
    constexpr char kLine[] =
        "temper-server: a file that is in use was cut short, records.db-shm perhaps; what was acknowledged is kept: "
        "start it again\n";
    (void)!write(STDERR_FILENO, kLine, sizeof(kLine) - 1);
  };
  sigaction(SIGBUS, &action, nullptr);
}

// Those that end the server, which are blocked. Before any thread is made, so that all of them leave the signals to
// this one.
sigset_t TakeSignals() {
  const sigset_t ends = temper::EndSignals();
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is an error like a full disk
  return ends;
}

}  // namespace

int main(int argc, char** argv) {
  if (const std::string wrong = temper::WrongCommandLine(argc, argv); !wrong.empty()) {
    std::fprintf(stderr, "temper-server: %s\n", wrong.c_str());
    return 2;
  }
  if (int exit = 0; temper::RunDirectoryCommand(argc, argv, &exit)) return exit;
  ReturnLargeBlocks();
  CLI::App app("Serves tuning jobs to clients and work to workers, over one database.", "temper-server");
  std::string db;
  temper::ServerOptions options;
  temper::OperationsOptions operations;
  temper::DashboardOptions dashboard_options;
  std::string log_format = "text";
  bool parent_watch = false, verbose = false;
  app.add_option("--db", db, "The database: a path, or memory:; it is made if it does not exist")->required();
  app.add_option("--listen", options.listen, "HOST:PORT (port 0: one that is free) or unix:PATH")
      ->capture_default_str();
  app.add_option("--dir", options.directory,
                 "Directory of temper-server init: use encryption, and serve known callers only");
  app.add_flag("--insecure", options.insecure, "Listen on an address that other machines reach, without encryption");
  app.add_option("--jobs-per-owner", options.core.most_jobs_of_owner, "Most jobs of one user that run or wait at once")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  app.add_option("--hurry", options.hurry)->check(CLI::Range(1.0, 1000.0))->group("");  // for tests
  AddOperationsOptions(app, operations, dashboard_options);
  app.add_option("--log-format", log_format, "text, or json with one object a line")
      ->envname("TEMPER_LOG_FORMAT")
      ->check(CLI::IsMember(temper::kLogFormats))
      ->capture_default_str();
  app.add_flag("--parent-watch", parent_watch, "End when stdin is closed or the parent process dies");
  app.add_flag("-v,--verbose", verbose, "Log more");
  app.set_version_flag("--version", std::string("temper-server ") + temper::TemperVersion());
  app.footer(kExample);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    std::fprintf(stderr, "temper-server: %s; see --help\n", error.what());
    return 2;
  }
  temper::SetUpLogging(verbose, temper::ParseLogFormat(log_format));
  temper::ArmFailpoint();
  temper::LogLibrariesQuietly();
  BoundReads();

  const sigset_t ends = TakeSignals();
  RaiseDescriptorLimit();
  EndWithALineOnBusError();
  if (parent_watch) WatchParent();

  if (const absl::Status allowed = temper::CheckListenAddress(options); !allowed.ok()) {
    return Fail(allowed);
  }
  auto store = temper::OpenStore(db);
  if (!store.ok()) return Fail(store.status());
  // Read once the process ends: by then nobody writes it any more.
  absl::Status broken;
  options.core.on_broken_store = [&broken](const absl::Status& why) {
    broken = why;
    kill(getpid(), SIGTERM);
  };
  auto server = temper::Server::Start(**store, temper::Clock::System(), options);
  if (!server.ok()) return Fail(server.status());
  temper::ServerCore& core = (*server)->core();
  temper::Dashboard dashboard(core, (*server)->gate(), dashboard_options);
  auto watch = temper::Operations::Start(
      operations, db, **store, core.metrics(), [&core] { return core.Status(); }, temper::Clock::System(),
      dashboard.Routes());
  if (!watch.ok()) return Fail(watch.status());
  std::printf("temper-server listening on %s\n", (*server)->address().c_str());
  if (!(*watch)->http_address().empty()) std::printf("pages at http://%s\n", (*watch)->http_address().c_str());
  std::fflush(stdout);

  const temper::ServiceNotifier notifier = temper::ServiceNotifier::FromEnvironment();
  notifier.Send("READY=1");
  const int signal = AwaitSignal(ends, notifier, [&core] { return core.TickAge() <= temper::kLongestTickAge; });
  spdlog::info("signal {}: shutting down", signal);
  notifier.Send("STOPPING=1");
  (*server)->Shutdown();
  return broken.ok() ? 0 : Fail(broken);
}
