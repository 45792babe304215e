#include "tuner_server/dispatch/suspects.h"

#include "absl/strings/str_cat.h"

namespace temper {
namespace {

constexpr absl::Duration kMemory = absl::Hours(1);

// A machine keeps its name from one process of a worker to the next: "host:process" without the process. Whoever takes
// another's name fails under what it proved to have itself.
std::string MachineOf(const WorkerInfo& worker) {
  return absl::StrCat(worker.device_key, "\n", worker.fingerprint, "\n", worker.holder, "\n",
                      worker.name.substr(0, worker.name.rfind(':')));
}

}  // namespace

Suspects::Machine& Suspects::At(const WorkerInfo& worker, absl::Duration now) {
  Machine& machine = machines_[MachineOf(worker)];
  machine.last = now;
  return machine;
}

std::string Suspects::Sentenced(Machine& machine, std::string why, absl::Duration now) const {
  machine.failures.clear();
  machine.losses = 0;
  machine.sentence = std::move(why);
  machine.until = now + options_.drained_for;
  return machine.sentence;
}

std::string Suspects::OnFailure(const WorkerInfo& worker, const std::string& workload, const std::string& error,
                                absl::Duration now) {
  Workload& failed = failed_at_[workload];
  failed.machines.insert(MachineOf(worker));
  failed.last = now;
  if (failed.machines.size() > 1) {
    // No worker is worse than another for it, and none was before.
    for (const std::string& name : failed.machines) {
      if (const auto machine = machines_.find(name); machine != machines_.end())
        machine->second.failures.erase(workload);
    }
    return "";
  }
  Machine& machine = At(worker, now);
  machine.failures.insert(workload);
  if (static_cast<int>(machine.failures.size()) < options_.most_failures) return "";
  return Sentenced(machine, absl::StrCat("could not measure ", options_.most_failures, " workloads in a row: ", error),
                   now);
}

std::string Suspects::OnLoss(const WorkerInfo& worker, const std::string& why, absl::Duration now) {
  Machine& machine = At(worker, now);
  if (++machine.losses < options_.most_losses) return "";
  return Sentenced(machine, absl::StrCat("lost ", options_.most_losses, " leases in a row: ", why), now);
}

void Suspects::OnSuccess(const WorkerInfo& worker) {
  const auto machine = machines_.find(MachineOf(worker));
  if (machine == machines_.end()) return;
  machine->second.failures.clear();
  machine->second.losses = 0;
}

void Suspects::Forgive(const WorkerInfo& worker) { machines_.erase(MachineOf(worker)); }

std::string Suspects::Sentence(const WorkerInfo& worker, absl::Duration now) const {
  const auto machine = machines_.find(MachineOf(worker));
  return machine == machines_.end() || now >= machine->second.until ? "" : machine->second.sentence;
}

void Suspects::Forget(absl::Duration now) {
  std::erase_if(machines_, [&](const auto& entry) { return now - entry.second.last > kMemory; });
  std::erase_if(failed_at_, [&](const auto& entry) { return now - entry.second.last > kMemory; });
}

}  // namespace temper
