#include "cli/local_fleet.h"

#include <pthread.h>
#include <signal.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace temper {

Interrupts::Interrupts(std::function<void()> on_signal) {
  sigemptyset(&set_);
  sigaddset(&set_, SIGINT);
  sigaddset(&set_, SIGTERM);
  sigaddset(&set_, SIGUSR1);  // ends the thread
  pthread_sigmask(SIG_BLOCK, &set_, &old_);
  thread_ = std::thread([this, on_signal] {
    for (int signal = 0; sigwait(&set_, &signal) == 0 && signal != SIGUSR1;) {
      interrupted_ = true;
      on_signal();
    }
  });
}

Interrupts::~Interrupts() {
  pthread_kill(thread_.native_handle(), SIGUSR1);
  thread_.join();
  pthread_sigmask(SIG_SETMASK, &old_, nullptr);
}

std::string LocalFleet::Broken() {
  if (server != nullptr && !server->Running()) return server->WhyEnded();
  return worker != nullptr ? worker->GivenUp() : "";
}

absl::StatusOr<Target> StartLocal(const RecordOptions& records, std::string device, LocalFleet* fleet,
                                  std::unique_ptr<TunerClient>* client, const std::function<void()>& on_broken) {
  // Now, in one line, rather than by a worker that does not start.
  RecordOptions asked = records;
  if (asked.target.empty()) asked.target = "host";
  TEMPER_ASSIGN_OR_RETURN(Target target, NamedTarget(asked));
  const bool compiled = target.generator == "llvm";
  if (compiled) TEMPER_RETURN_IF_ERROR(CheckRunsHere(target));
  if (!compiled && device.empty()) device = target.generator;
  TEMPER_ASSIGN_OR_RETURN(fleet->dir, TemporaryDirectory::Make());
  const std::string address = absl::StrCat("unix:", fleet->dir.path(), "/server");
  TEMPER_ASSIGN_OR_RETURN(fleet->server,
                          Child::Start("temper-server", {"--db", DatabasePath(records), "--listen", address}));
  ClientOptions options;
  options.connect_timeout = absl::Seconds(10);
  TEMPER_ASSIGN_OR_RETURN(*client, TunerClient::Connect(address, options));
  for (absl::Time give_up = absl::Now() + absl::Seconds(10);
       !(*client)->WaitUntilReady(absl::Milliseconds(200)).ok();) {
    if (!fleet->server->Running()) return absl::UnavailableError(fleet->server->WhyEnded());
    if (absl::Now() > give_up) return absl::DeadlineExceededError("the tuning server did not answer within 10 s");
  }
  std::vector<std::string> worker = {"--server", address, "--key", records.device, "--shares-server-cores"};
  worker.insert(worker.end(), {"--spool", fleet->dir.path() + "/spool"});  // nobody asks for it after this job
  if (!device.empty()) worker.insert(worker.end(), {"--device", device});
  if (!records.target.empty()) worker.insert(worker.end(), {"--target", records.target});
  TEMPER_ASSIGN_OR_RETURN(fleet->worker, KeptChild::Start("temper-worker", worker, on_broken));
  return target;
}

}  // namespace temper
