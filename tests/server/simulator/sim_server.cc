#include "tests/server/simulator/sim_server.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "tuner_server/service/job_steps.h"
#include "tuner_server/service/left_behind.h"
#include "tuner_server/service/results.h"
#include "tuner_server/service/unknown_results.h"
#include "tuner_server/service/wire.h"

namespace temper::simulator {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(100);
constexpr absl::Duration kLookingThrough = absl::Milliseconds(200);  // what a dead server left

}  // namespace

// One life of the server: what a crash takes along.
class SimServer::Life : public JobHost {
 public:
  Life(SimServer& server, int number) : server_(server), number_(number), state_(WithFirstId()) {}

  void Begin() {
    if (server_.faults_.early_calls) {
      After(kLookingThrough, [this] { TakeUp(); });
    } else {
      TakeUp();
    }
    After(kTick, [this] { Tick(); });
  }

  CoreState& state() { return state_; }

  template <typename Change>
  auto Locked(Change change) {
    Actions actions;
    if constexpr (std::is_void_v<decltype(change(actions))>) {
      change(actions);
      for (auto& action : actions) action();
      Commit();
    } else {
      auto result = change(actions);
      for (auto& action : actions) action();
      Commit();
      return result;
    }
  }

  absl::StatusOr<int64_t> SubmitJob(const std::string& owner, const v1::SubmitJobRequest& request);
  void Begin(JobPlan plan);

  void Check() {
    static const CoreState::CommitPlan kNone;
    server_.promises_.Check(state_.TakeCensus(), plan_ ? *plan_ : kNone);
  }

  // JobHost
  const Clock& clock() const override { return server_.world_; }
  Store& store() override { return server_.disk_; }
  std::vector<int64_t> Submit(Work work) override {
    const int64_t job = work.job;
    server_.world_.Note(
        absl::StrCat("server: job ", job, " queues ", work.items.size(), " of kind ", static_cast<int>(work.kind)));
    // They are queued before the call that grants them ends.
    Actions actions;
    std::vector<int64_t> ids = state_.AddWork(std::move(work), Now(), actions);
    server_.promises_.Queued(job, ids);
    for (auto& action : actions) action();
    return ids;
  }
  void Withdraw(const std::vector<int64_t>& items) override {
    server_.promises_.Withdrawn(items);
    Locked([&](Actions& actions) { state_.Withdraw(items, Now(), actions); });
  }
  std::optional<WorkerInfo> FindWorker(const DeviceKind& kind) override { return state_.FindWorker(kind); }
  int Slots(const DeviceKind& kind) override { return state_.Slots(kind); }
  std::string WhyNoWorker(const DeviceKind& kind) override { return state_.WhyNoWorker(kind); }
  std::vector<WorkItem> Unsettled(int64_t job) override { return state_.Unsettled(job); }
  bool TryBeginJob(int64_t job) override { return state_.TryBeginJob(job); }
  void LeavePlace(int64_t job) override { state_.LeavePlace(job); }
  absl::Duration GrantedAt(const std::vector<int64_t>& items) override { return state_.GrantedAt(items); }
  bool TryBeginSearch(int64_t job) override { return state_.TryBeginSearch(job); }
  void EndSearch(int64_t job) override {
    Locked([&](Actions& actions) { state_.EndSearch(job, Now(), actions); });
  }
  void JobOver(int64_t job) override {
    server_.promises_.JobOver(*server_.disk_.GetJob(job));
    Locked([&](Actions& actions) { state_.JobOver(job, Now(), actions); });
  }

  // In this life only, and not while the server stands still.
  void After(absl::Duration delay, std::function<void()> event) {
    server_.world_.After(delay, [this, &server = server_, number = number_, event = std::move(event)]() mutable {
      if (!server.up() || server.lives_ != number) return;
      const absl::Duration still = server.still_until_ - server.world_.Monotonic();
      if (still > absl::ZeroDuration()) return After(still, std::move(event));
      event();
    });
  }

 private:
  class Job;

  CoreOptions WithFirstId() const {
    CoreOptions options = server_.options_;
    options.dispatch.random = [this] { return server_.world_.rng().Next(); };
    options.dispatch.first_id = absl::ToUnixMillis(server_.world_.Wall()) << 20 | 1;
    return options;
  }
  // What a life before this one left, as ServerCore takes it up.
  void TakeUp() {
    absl::StatusOr<LeftBehind> left = ReadLeftBehind(server_.disk_, state_.options().loop, server_.world_.Wall());
    if (!left.ok()) {
      server_.world_.Note(absl::StrCat("server: cannot start: ", left.status().message()));
      After(absl::Milliseconds(500), [this] { TakeUp(); });
      return;
    }
    state_.GoOnFrom(*left, Now());
    for (const LeftBehind::Lease& lease : left->leases) server_.promises_.Restored(lease.id, lease.work);
    for (JobPlan& plan : left->plans) {
      server_.world_.Note(absl::StrCat("server: job ", plan.row.id, " goes on at priority ", plan.row.priority));
      server_.promises_.GoesOn(plan.row.id, plan.row.priority);
      server_.promises_.Ranked(plan.row.id, plan.spec.owner, plan.row.priority);
      Begin(std::move(plan));
    }
    state_.Open();
  }
  void Tick() {
    Locked([&](Actions& actions) { state_.Tick(Now(), actions); });
    state_.TakeRetired();
    After(kTick, [this] { Tick(); });
  }

  // The committer: judges, stores, and finishes, with time between for anything else.
  void Commit() {
    if (plan_ || committing_ || !state_.CommitWaits()) return;
    committing_ = true;
    After(Soon(), [this] {
      plan_ = state_.JudgeGroup(server_.world_.Wall());
      After(Soon(), [this] { StorePlan(); });
    });
  }
  void StorePlan() {
    absl::Status stored = JudgeUnknown(server_.disk_, *plan_);
    const Changes changes = plan_->changes();
    if (stored.ok() && changes.size() > 0) stored = server_.disk_.Commit(changes).status();
    server_.world_.Note(absl::StrCat("server: ", plan_->records.size(), " records: ", stored.message()));
    if (stored.ok()) server_.promises_.Stored(plan_->records);
    After(Soon(), [this, stored] {
      CoreState::CommitPlan plan = *std::exchange(plan_, std::nullopt);
      committing_ = false;
      Locked([&](Actions& actions) { state_.FinishGroup(std::move(plan), stored, Now(), actions); });
    });
  }

  absl::Duration Soon() { return server_.world_.Between(absl::Microseconds(100), absl::Milliseconds(4)); }
  absl::Duration Now() const { return server_.world_.Monotonic(); }

  SimServer& server_;
  const int number_;
  CoreState state_;
  std::optional<CoreState::CommitPlan> plan_;  // judged and not finished
  bool committing_ = false;
};

// A job's thread.
class SimServer::Life::Job : public JobPort, public std::enable_shared_from_this<Job> {
 public:
  Job(Life& life, JobPlan plan)
      : life_(life),
        steps_(life, std::move(plan)),
        feed_(std::make_shared<JobFeed>(life.clock(), steps_.started(), steps_.view(), steps_.row())) {}

  void Deliver(const ItemResult& result) override {
    life_.server_.promises_.Delivered(spec().id, result.item);
    input_.results.push_back(result);
    Wake();
  }
  void Wake() override {
    if (!std::exchange(woken_, true)) StepAfter(absl::Microseconds(50));
  }
  void Stop(const std::string& state, const std::string& reason) override {
    input_.Stop(state, reason);
    Wake();
  }
  void SetPriority(int priority) override {
    input_.priority = priority;
    Wake();
  }
  const JobSpec& spec() const override { return steps_.spec(); }
  const std::shared_ptr<JobFeed>& feed() const override { return feed_; }

 private:
  // The newest of the appointments counts.
  void StepAfter(absl::Duration delay) {
    if (delay == absl::InfiniteDuration()) return;
    life_.After(delay, [job = weak_from_this(), number = ++appointment_] {
      const std::shared_ptr<Job> self = job.lock();
      if (self != nullptr && number == self->appointment_ && !self->steps_.over()) self->Step();
    });
  }
  void Step() {
    woken_ = false;
    JobInput input = input_;
    input_.results.clear();
    const absl::Duration now = life_.clock().Monotonic();
    const absl::Duration due = steps_.Step(input, now);
    feed_->Publish(steps_.view(), steps_.row(), steps_.TakeChangedTasks());
    if (steps_.over()) return life_.JobOver(spec().id);
    if (!woken_) StepAfter(due - now);
  }

  Life& life_;
  JobSteps steps_;
  const std::shared_ptr<JobFeed> feed_;
  JobInput input_;
  bool woken_ = false;
  int64_t appointment_ = 0;
};

void SimServer::Life::Begin(JobPlan plan) {
  const int64_t id = plan.row.id;
  const size_t bytes = RequestBytes(plan.spec);
  server_.promises_.Accepted(id);
  const auto job = std::make_shared<Job>(*this, std::move(plan));
  state_.AddJob(id, bytes, job);
  job->Wake();
}

absl::StatusOr<int64_t> SimServer::Life::SubmitJob(const std::string& owner, const v1::SubmitJobRequest& request) {
  TEMPER_ASSIGN_OR_RETURN(JobSpec spec, FromWire(request));
  spec.owner = owner;
  TEMPER_RETURN_IF_ERROR(state_.ReservePlace(owner, 0));
  state_.GiveBackPlace(owner, 0);
  TEMPER_ASSIGN_OR_RETURN(JobPlan plan, PlanJob(std::move(spec), state_.options().loop, server_.world_.Wall()));
  plan.row.request = request.SerializeAsString();
  TEMPER_ASSIGN_OR_RETURN(const int64_t id, server_.disk_.CreateJob(plan.row));
  plan.row.request.clear();
  plan.spec.id = plan.row.id = id;
  server_.world_.Note(absl::StrCat("server: job ", id, " of ", owner, " is accepted"));
  server_.promises_.Ranked(id, owner, plan.spec.priority);
  Begin(std::move(plan));
  return id;
}

SimServer::SimServer(World& world, const Faults& faults, Disk& disk, Promises& promises, CoreOptions options)
    : world_(world), faults_(faults), disk_(disk), promises_(promises), options_(std::move(options)) {}

SimServer::~SimServer() = default;

void SimServer::Boot() {
  world_.Note("server: starts");
  promises_.ServerIsUp();
  ++lives_;
  life_ = std::make_unique<Life>(*this, lives_);
  life_->Begin();
}

void SimServer::Crash() {
  world_.Note("server: killed");
  promises_.ServerIsGone();
  life_.reset();
}

void SimServer::StandStill(absl::Duration duration) {
  world_.Note(absl::StrCat("server: stands still for ", absl::FormatDuration(duration)));
  still_until_ = world_.Monotonic() + duration;
}

void SimServer::Arrive(std::function<void(Life&)> event) {
  if (up()) life_->After(absl::ZeroDuration(), [this, event = std::move(event)] { event(*life_); });
}

void SimServer::Register(const WorkerInfo& info, Registered done) {
  Arrive([this, info, done = std::move(done)](Life& life) {
    const absl::StatusOr<std::string> session =
        life.Locked([&](Actions&) { return life.state().Register(info, world_.Monotonic()); });
    world_.Note(absl::StrCat("server: ", info.name, " registers: ", session.value_or(session.status().ToString())));
    done(session);
  });
}

void SimServer::Sync(SyncCall call, std::optional<absl::Duration> cut,
                     std::function<void(absl::StatusOr<Dispatcher::SyncOutcome>)> done) {
  Arrive([this, call = std::move(call), cut, done = std::move(done)](Life& life) mutable {
    const int64_t ticket = call.ticket = life.state().NewTicket();
    const auto broken = std::make_shared<bool>(false);
    const auto answered = [this, broken,
                           done = std::move(done)](const absl::StatusOr<Dispatcher::SyncOutcome>& outcome) {
      if (*broken) return done(absl::UnavailableError("the connection broke"));
      if (outcome.ok()) {
        for (const Dispatcher::Grant& grant : outcome->grants) promises_.Granted(grant, options_.dispatch.max_attempts);
      }
      done(outcome);
    };
    life.Locked([&](Actions& actions) { life.state().Sync(std::move(call), answered, world_.Monotonic(), actions); });
    if (!cut) return;
    life.After(*cut, [this, &life, ticket, broken] {
      *broken = true;
      life.Locked([&](Actions& actions) { life.state().BreakSync(ticket, world_.Monotonic(), actions); });
    });
  });
}

void SimServer::SubmitResults(std::vector<ItemResult> results,
                              std::function<void(absl::StatusOr<std::vector<bool>>)> done) {
  Arrive([results = std::move(results), done = std::move(done)](Life& life) {
    std::vector<ItemResult> checked;
    for (const ItemResult& result : results) checked.push_back(Checked(result));
    life.Locked([&](Actions& actions) {
      life.state().Submit(
          std::move(checked), [done](const auto& acks) { done(acks); }, actions);
    });
  });
}

void SimServer::SubmitJob(const std::string& owner, v1::SubmitJobRequest request,
                          std::function<void(absl::StatusOr<int64_t>)> done) {
  Arrive([owner, request = std::move(request), done = std::move(done)](Life& life) {
    done(life.SubmitJob(owner, request));
  });
}

void SimServer::SetPriority(int64_t id, int priority, std::function<void(absl::Status)> done) {
  Arrive([this, id, priority, done = std::move(done)](Life& life) {
    promises_.PriorityAsked(id, priority);
    const auto answered = [this, id, priority, done](const absl::Status& stored) {
      promises_.PriorityAnswered(id, priority, stored.ok());
      done(stored);
    };
    life.Locked([&](Actions& actions) { life.state().SetPriority(id, priority, answered, actions); });
  });
}

void SimServer::CancelJob(int64_t id) {
  Arrive([this, id](Life& life) {
    promises_.CancelAsked(id);
    if (const std::shared_ptr<JobPort> job = life.state().FindJob(id)) job->Stop("cancelled", "cancelled by request");
  });
}

void SimServer::Check() {
  if (up()) life_->Check();
}

CoreState::Census SimServer::TakeCensus() const { return life_->state().TakeCensus(); }

}  // namespace temper::simulator
