// temper-server: serves tuning jobs to clients and work to workers, over one database.
#include <malloc.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "storage/store.h"
#include "tuner_server/directory_commands.h"
#include "tuner_server/service/server.h"

namespace {

constexpr char kExample[] =
    "temper-server init DIR and temper-server renew DIR look after what an encrypted server needs.\n"
    "Example:\n"
    "  temper-server --db records.db --listen 127.0.0.1:9190\n"
    "  temper-worker --server 127.0.0.1:9190 --key laptop\n"
    "  temper tune model.onnx --server 127.0.0.1:9190 --device laptop --trials 500\n";

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

}  // namespace

int main(int argc, char** argv) {
  if (int exit = 0; temper::RunDirectoryCommand(argc, argv, &exit)) return exit;
  ReturnLargeBlocks();
  CLI::App app("Serves tuning jobs to clients and work to workers, over one database.", "temper-server");
  std::string db;
  temper::ServerOptions options;
  bool parent_watch = false, verbose = false;
  app.add_option("--db", db, "The database, a path or memory:; made if it is not there")->required();
  app.add_option("--listen", options.listen, "HOST:PORT (port 0: one that is free) or unix:PATH")
      ->capture_default_str();
  app.add_flag("--insecure", options.insecure, "Listen on an address that other machines reach, without encryption");
  app.add_option("--hurry", options.hurry)->check(CLI::Range(1.0, 1000.0))->group("");  // for tests
  app.add_flag("--parent-watch", parent_watch, "End when stdin is closed or the parent process dies");
  app.add_flag("-v,--verbose", verbose, "Say more");
  app.footer(kExample);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    std::fprintf(stderr, "temper-server: %s; see --help\n", error.what());
    return 2;
  }
  temper::SetUpLogging(verbose);
  temper::ArmFailpoint();
  temper::LogGrpcQuietly();

  // Before any thread is made, so that all of them leave the signals to this one.
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  sigaddset(&ends, SIGINT);
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is an error like a full disk
  RaiseDescriptorLimit();
  if (parent_watch) WatchParent();

  if (const absl::Status allowed = temper::CheckListenAddress(options.listen, options.insecure); !allowed.ok()) {
    return Fail(allowed);
  }
  auto store = temper::OpenStore(db);
  if (!store.ok()) return Fail(store.status());
  auto server = temper::Server::Start(**store, temper::Clock::System(), options);
  if (!server.ok()) return Fail(server.status());
  std::printf("temper-server listening on %s\n", (*server)->address().c_str());
  std::fflush(stdout);

  int signal = 0;
  sigwait(&ends, &signal);
  spdlog::info("signal {}: shutting down", signal);
  (*server)->Shutdown();
  return 0;
}
