// A server of a simulated world: the real core and the real jobs, their threads and loops played by events. It crashes,
// stands still and comes back over the same disk.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "temper/v1/tuning.pb.h"
#include "tests/server/simulator/disk.h"
#include "tests/server/simulator/faults.h"
#include "tests/server/simulator/promises.h"
#include "tests/server/simulator/world.h"
#include "tuner_server/service/core_state.h"

namespace temper::simulator {

class SimServer {
 public:
  SimServer(World& world, const Faults& faults, Disk& disk, Promises& promises, CoreOptions options);
  ~SimServer();

  void Boot();
  void Crash();
  void StandStill(absl::Duration duration);
  bool up() const { return life_ != nullptr; }

  // Calls as the handlers make them. Where the server is down they are not answered: the caller's connection breaks.
  using Registered = std::function<void(absl::StatusOr<std::string>)>;
  void Register(const WorkerInfo& info, Registered done);
  // `cut`: the connection breaks after so long.
  void Sync(SyncCall call, std::optional<absl::Duration> cut,
            std::function<void(absl::StatusOr<Dispatcher::SyncOutcome>)> done);
  void SubmitResults(std::vector<ItemResult> results, std::function<void(absl::StatusOr<std::vector<bool>>)> done);
  void SubmitJob(const std::string& owner, v1::SubmitJobRequest request,
                 std::function<void(absl::StatusOr<int64_t>)> done);
  void CancelJob(int64_t id);
  void SetPriority(int64_t id, int priority, std::function<void(absl::Status)> done);

  // After every event.
  void Check();
  CoreState::Census TakeCensus() const;

 private:
  class Life;
  // Runs what the outside world sends: at once, once it moves again, or never.
  void Arrive(std::function<void(Life&)> event);

  World& world_;
  const Faults& faults_;
  Disk& disk_;
  Promises& promises_;
  const CoreOptions options_;
  absl::Duration still_until_;
  int lives_ = 0;
  std::unique_ptr<Life> life_;
};

}  // namespace temper::simulator
