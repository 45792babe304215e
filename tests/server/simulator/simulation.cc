#include "tests/server/simulator/simulation.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/graph/graph_json.h"
#include "compiler/graph/pipeline.h"
#include "proto/convert.h"
#include "tests/server/simulator/disk.h"
#include "tests/server/simulator/network.h"
#include "tests/server/simulator/promises.h"
#include "tests/server/simulator/sim_server.h"
#include "tests/server/simulator/sim_worker.h"
#include "tests/server/simulator/world.h"
#include "tests/server/toys.h"

namespace temper::simulator {
namespace {

constexpr int kJobs = 3, kWorkers = 6;
constexpr absl::Duration kHorizon = absl::Hours(3);      // in which all jobs end
constexpr absl::Duration kPatience = absl::Minutes(20);  // without a word for a job
constexpr char kTooBig[] = "enormous";

CoreOptions Options() {
  CoreOptions options;
  options.dispatch.keep_lost = absl::Minutes(1);
  options.forget_after = absl::Minutes(3);  // nobody is silent for longer
  options.loop.largest_batch = 6;           // many leases for few trials
  return options;
}

std::string ModelOf(int job, bool too_big) {
  Graph graph;
  graph.name = absl::StrCat("model-", job);
  const ValueId input = graph.AddValue({.name = "x", .type = {DType::kF32, {4}, {}}});
  graph.inputs = {input};
  ValueId last = input;
  for (const char* name : {"a", "b", "c"}) {
    const std::string unique = absl::StrCat(name, job, too_big && *name == 'b' ? kTooBig : "");
    last = *graph.AddNode("toy", ToyWorkload(unique, 40).calls[0].attrs, {last});
  }
  graph.outputs = {last};
  const absl::Status optimized = Optimize(graph, Target{});
  return optimized.ok() ? ToJson(graph) : std::string(optimized.message());
}

class Simulation {
 public:
  Simulation(uint64_t seed, const Faults& faults)
      : faults_(faults),
        world_(seed),
        network_(world_, faults_, [this] { return server_.up(); }),
        promises_(world_),
        disk_(world_, faults_, promises_),
        server_(world_, faults_, disk_, promises_, Options()) {}

  RunResult Run(uint64_t seed) {
    server_.Boot();
    StartWorkers();
    for (int job = 0; job < kJobs; ++job) StartClient(job);
    PlanFaults();
    Play([this] { return ended_ == kJobs && !promises_.JobsLive(); }, kHorizon);
    if (!promises_.broken() && ended_ < kJobs) promises_.Broken("P5", absl::StrCat("only ", ended_, " jobs ended"));
    for (auto& worker : workers_) worker->Leave();
    const absl::Duration forgotten = world_.Monotonic() + absl::Minutes(5);
    Play([&] { return world_.Monotonic() > forgotten; }, kHorizon);
    if (!promises_.broken()) promises_.CheckRest(*disk_.Jobs({}), server_.TakeCensus(), Options().dispatch.remembered);
    RunResult result{.trace_hash = world_.trace_hash(), .events = world_.steps(), .jobs_done = done_};
    if (promises_.broken()) {
      result.broken =
          absl::StrCat("seed ", seed, ": ", promises_.what_broke(), "\nthe last events:\n", world_.LastNotes());
    }
    return result;
  }

 private:
  template <typename Ended>
  void Play(Ended ended, absl::Duration horizon) {
    const absl::Duration until = world_.Monotonic() + horizon;
    while (!promises_.broken() && !ended() && world_.Monotonic() < until && world_.Step()) server_.Check();
  }

  void StartWorkers() {
    std::vector<Role> roles;
    const std::pair<bool, Role> odd[] = {{faults_.slow, Role::kSlow},
                                         {faults_.broken, Role::kBroken},
                                         {faults_.flapping, Role::kFlapping},
                                         {faults_.hoarder, Role::kHoarder},
                                         {faults_.greedy, Role::kGreedy},
                                         {faults_.zero_threads, Role::kZeroThreads},
                                         {faults_.not_finite, Role::kNotFinite},
                                         {faults_.verbose, Role::kVerbose}};
    for (const auto& [there, role] : odd) {
      if (there) roles.push_back(role);
    }
    // Two honest ones are always there; of the odd ones another choice with each seed.
    for (size_t i = roles.size(); i > 1; --i)
      std::swap(roles[i - 1], roles[world_.rng().Below(static_cast<int64_t>(i))]);
    roles.resize(kWorkers - 2, Role::kHonest);
    roles.insert(roles.end(), 2, Role::kHonest);
    for (size_t i = 0; i < roles.size(); ++i) {
      const bool twin = faults_.twins && i >= roles.size() - 2;
      workers_.push_back(std::make_unique<SimWorker>(world_, network_, server_, promises_,
                                                     twin ? "host:1" : absl::StrCat("w", i), roles[i]));
      if (faults_.unfit) workers_.back()->SetTooBig(kTooBig);
      world_.After(world_.Between(absl::ZeroDuration(), absl::Seconds(3)), [w = workers_.back().get()] { w->Start(); });
    }
  }

  // --- a client: submits its job until it is accepted ---

  void StartClient(int job) {
    world_.After(world_.Between(absl::ZeroDuration(), absl::Seconds(faults_.early_calls ? 0.4 : 10)),
                 [this, job] { SubmitJob(job); });
  }
  void SubmitJob(int job) {
    v1::SubmitJobRequest request;
    request.set_model(absl::StrCat("model-", job));
    request.set_graph_json(ModelOf(job, faults_.unfit && job == 0));
    request.set_device_key("toy-device");
    request.set_tuner("random");
    request.set_trials(40);
    request.set_seed(static_cast<uint64_t>(job));
    request.set_wait_for_device_ms(300'000);
    request.set_no_booster(true);
    network_.Call<int64_t>(
        absl::Seconds(10),
        [this, job, request](auto reply) { server_.SubmitJob(job == 0 ? "alice" : "bob", request, reply); },
        [this, job](const absl::StatusOr<int64_t>& id) {
          if (id.ok()) {
            if (faults_.meddling) Meddle(*id);
            return Watch(job, *id);
          }
          world_.After(world_.Between(absl::Milliseconds(100), absl::Seconds(2)), [this, job] { SubmitJob(job); });
        });
  }
  void Watch(int job, int64_t id) {
    const absl::StatusOr<JobRow> row = disk_.GetJob(id);
    const std::string state = row.ok() ? row->state : "";
    if (IsFinalJobState(state)) {
      ++ended_;
      if (state == "done") ++done_;
      return;
    }
    world_.After(absl::Seconds(5), [this, job, id] { Watch(job, id); });
    promises_.CheckProgress(kPatience);
  }

  // Somebody who changes a job's priority now and then, until the job is over.
  void Meddle(int64_t id) {
    world_.After(world_.Between(absl::Milliseconds(200), absl::Seconds(8)), [this, id] {
      if (IsFinalJobState(disk_.GetJob(id)->state)) return;
      const int priority = static_cast<int>(world_.rng().Below(7)) - 3;
      network_.Call<bool>(
          absl::Seconds(10),
          [this, id, priority](auto reply) {
            server_.SetPriority(id, priority, [reply](const absl::Status& stored) { reply(stored.ok()); });
          },
          [this, id](const absl::StatusOr<bool>&) { Meddle(id); });
    });
  }

  // --- what goes wrong, and when ---

  void PlanFaults() {
    if (faults_.crash) {
      world_.After(world_.Between(absl::Seconds(1), absl::Seconds(25)), [this] {
        server_.Crash();
        network_.BreakAll();
        world_.After(world_.Between(absl::Milliseconds(500), absl::Seconds(8)), [this] { server_.Boot(); });
      });
    }
    if (faults_.freeze) {
      world_.After(world_.Between(absl::Seconds(1), absl::Seconds(30)),
                   [this] { server_.StandStill(world_.Between(absl::Seconds(5), absl::Seconds(90))); });
    }
    if (faults_.wall_jumps) {
      world_.After(world_.Between(absl::ZeroDuration(), absl::Seconds(10)),
                   [this] { world_.JumpWall(absl::Hours(24) * (world_.Chance(0.5) ? 1 : -1)); });
    }
  }

  const Faults faults_;
  World world_;
  Network network_;
  Promises promises_;
  Disk disk_;
  SimServer server_;
  std::vector<std::unique_ptr<SimWorker>> workers_;
  int ended_ = 0, done_ = 0;
};

}  // namespace

RunResult RunSimulation(uint64_t seed, const Faults& faults) { return Simulation(seed, faults).Run(seed); }

}  // namespace temper::simulator
