#include "tests/server/simulator/sim_worker.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "tests/server/toys.h"

namespace temper::simulator {
namespace {

constexpr absl::Duration kCallDeadline = absl::Seconds(10);
constexpr int kGreed = 100;
constexpr absl::Duration kNoSilence = absl::Seconds(4);  // nobody is taken to be dead after so short a time

}  // namespace

SimWorker::SimWorker(World& world, Network& network, SimServer& server, Promises& promises, std::string name, Role role)
    : world_(world),
      network_(network),
      server_(server),
      promises_(promises),
      name_(std::move(name)),
      role_(role),
      instance_(world.rng().Next()) {}

WorkerInfo SimWorker::Info() const {
  return {.device_key = "toy-device",
          .fingerprint = "toy",
          .target = ToyTarget(),
          .codegen_id = "c1",
          .name = name_,
          .instance = absl::StrCat(absl::Hex(instance_)),
          .threads = role_ == Role::kZeroThreads ? 0 : 1,
          .slots = 1};
}

void SimWorker::After(absl::Duration delay, std::function<void()> event) {
  world_.After(delay, [this, life = life_, event = std::move(event)]() mutable {
    if (life != life_) return;
    const absl::Duration still = still_until_ - world_.Monotonic();
    if (still > absl::ZeroDuration()) return After(still, std::move(event));
    event();
  });
}

absl::Duration SimWorker::BackOff(int failures) {
  const double seconds = std::min(30.0, 0.2 * std::pow(2.0, std::min(failures, 16)));
  return absl::Seconds(seconds) * world_.rng().Uniform();
}

void SimWorker::Start() { Register(); }

void SimWorker::Leave() {
  ++life_;
  held_.clear();
}

void SimWorker::Die() {
  instance_ = world_.rng().Next();
  world_.Note(absl::StrCat(name_, " dies"));
  Leave();
  session_.clear();
  to_measure_.clear();
  outbox_.clear();
  syncs_.clear();
  measuring_ = submitting_ = false;
  After(world_.Between(absl::Seconds(1), absl::Seconds(5)), [this] { Register(); });
}

// --- control ---

void SimWorker::Register() {
  network_.Call<std::string>(
      kCallDeadline, [this, info = Info()](auto reply) { server_.Register(info, reply); },
      [this, life = life_](const absl::StatusOr<std::string>& session) {
        if (life != life_) return;
        if (!session.ok()) {
          After(BackOff(register_failures_++), [this] { Register(); });
          return;
        }
        register_failures_ = sync_failures_ = 0;
        session_ = *session;
        answered_at_ = world_.Monotonic();
        SyncIfDue();
      });
}

int SimWorker::FreeSlots() const {
  const auto busy = std::count_if(held_.begin(), held_.end(), [](const auto& h) { return !h.second.measured; });
  return role_ == Role::kGreedy ? kGreed : std::max(0, 1 - static_cast<int>(busy));
}

void SimWorker::SyncIfDue() {
  const int free_slots = FreeSlots();
  if (session_.empty() || (!syncs_.empty() && !(syncs_.rbegin()->second == 0 && free_slots > 0))) return;
  SyncCall call;
  call.session = session_;
  for (const auto& [lease, held] : held_) call.held.push_back(lease);
  call.free_slots = free_slots;
  call.wait = held_.empty() ? world_.Between(absl::Seconds(20), absl::Seconds(30))
                            : world_.Between(absl::Seconds(8), absl::Seconds(12));
  const int64_t number = next_sync_++;
  syncs_[number] = free_slots;
  std::optional<absl::Duration> cut;
  if (network_.Cut()) cut = world_.Between(absl::ZeroDuration(), call.wait);
  network_.Call<Dispatcher::SyncOutcome>(
      call.wait + kCallDeadline, [this, call, cut](auto reply) { server_.Sync(call, cut, reply); },
      [this, life = life_, number, session = session_](absl::StatusOr<Dispatcher::SyncOutcome> outcome) {
        if (life != life_) return;
        // What is said of a session before this one is no news.
        if (outcome.ok() && session != session_) outcome->unknown_session = false;
        OnSync(number, outcome);
      });
}

void SimWorker::OnSync(int64_t call, const absl::StatusOr<Dispatcher::SyncOutcome>& outcome) {
  syncs_.erase(call);
  if (!outcome.ok()) {
    if (syncs_.empty()) After(BackOff(sync_failures_++), [this] { SyncIfDue(); });
    return;
  }
  sync_failures_ = 0;
  const absl::Duration silent = world_.Monotonic() - answered_at_;
  answered_at_ = world_.Monotonic();
  if (!outcome->unknown_session) evictions_ = 0;
  for (const Dispatcher::Grant& grant : outcome->grants) Take(grant);
  for (const int64_t lease : outcome->cancels) {
    // One that has not begun is dropped; what is being measured ends by itself.
    if (std::erase(to_measure_, lease) > 0) held_.erase(lease);
  }
  if (role_ == Role::kFlapping && !outcome->grants.empty() && world_.Chance(0.7)) return Die();
  MeasureNext();
  if (outcome->unknown_session && syncs_.empty()) {
    // A request that was sent twice and came late does so: it registers again, and all is well.
    if (silent < kNoSilence && ++evictions_ > 3 && role_ == Role::kHonest) promises_.Evicted(name_, silent);
    session_.clear();
    Register();
    return;
  }
  if (!outcome->unknown_session) SyncIfDue();
}

void SimWorker::Take(const Dispatcher::Grant& grant) {
  if (held_.contains(grant.lease)) return;
  world_.Note(absl::StrCat(name_, " takes lease ", grant.lease, " of job ", grant.work->job, ": items ",
                           grant.work->items.front().id, " to ", grant.work->items.back().id, ", attempt ",
                           grant.work->items.front().attempt));
  held_[grant.lease].grant = grant;
  to_measure_.push_back(grant.lease);
}

// --- measuring ---

absl::Duration SimWorker::TimeFor(const Dispatcher::Grant& grant) {
  const auto items = static_cast<double>(grant.work->items.size());
  const absl::Duration each = role_ == Role::kSlow ? absl::Seconds(2) : absl::Milliseconds(200);
  absl::Duration time = items * each * (0.5 + world_.rng().Uniform());
  if (role_ == Role::kBroken) time += world_.Between(absl::ZeroDuration(), absl::Seconds(20));
  return time;
}

void SimWorker::MeasureNext() {
  if (measuring_ || to_measure_.empty()) return;
  if (role_ == Role::kHoarder || role_ == Role::kGreedy) return;
  measuring_ = true;
  const int64_t lease = to_measure_.front();
  to_measure_.pop_front();
  // A slow machine is suspended now and then, for longer than a lease lasts.
  if ((role_ == Role::kSlow || role_ == Role::kBroken) && world_.Chance(0.3)) {
    still_until_ = world_.Monotonic() + world_.Between(absl::Seconds(60), absl::Seconds(100));
    world_.Note(absl::StrCat(name_, " stands still"));
  }
  After(TimeFor(held_.at(lease).grant), [this, lease] {
    measuring_ = false;
    Held& held = held_.at(lease);
    held.measured = true;
    outbox_.push_back({lease, held.grant.work->kind == WorkKind::kBatch, Measure(held.grant)});
    SubmitNext();
    SyncIfDue();
    MeasureNext();
  });
}

bool SimWorker::TooBig(const Work& work) const {
  if (too_big_.empty()) return false;
  if (work.kind == WorkKind::kBatch) return absl::StrContains(work.workload, too_big_);
  return absl::StrContains(*work.model.graph_json, too_big_);
}

std::vector<ItemResult> SimWorker::Measure(const Dispatcher::Grant& grant) {
  if (grant.work->kind == WorkKind::kModel) return {MeasureModel(grant)};
  std::vector<ItemResult> results;
  for (const WorkItem& item : grant.work->items) results.push_back(MeasureItem(grant, item));
  return results;
}

ItemResult SimWorker::MeasureItem(const Dispatcher::Grant& grant, const WorkItem& item) {
  const std::string& workload = grant.work->kind == WorkKind::kFinals ? item.workload : grant.work->workload;
  ItemResult result{.lease = grant.lease, .instance = Info().instance, .item = item.id, .attempt = item.attempt};
  TrialResult& trial = result.trial;
  if (TooBig(*grant.work)) {
    trial = {.outcome = Outcome::kUnfit, .error = "the operands do not fit the device"};
  } else if (role_ == Role::kBroken && world_.Chance(0.2)) {
    trial = {.outcome = Outcome::kInfrastructure, .error = "no memory left"};
  } else if (world_.Chance(0.05)) {
    trial = {.outcome = Outcome::kRunCrashed, .error = "signal 11"};
  } else {
    trial.outcome = Outcome::kOk;
    const double seconds = 1e-3 * (0.2 + static_cast<double>(StableHash(workload + item.config) % 1000) / 1000);
    const int samples = role_ == Role::kVerbose ? 5000 : 3;
    for (int k = 0; k < samples; ++k) trial.costs_s.push_back(seconds * (1 + 0.01 * world_.rng().Uniform()));
  }
  return result;
}

ItemResult SimWorker::MeasureModel(const Dispatcher::Grant& grant) {
  ItemResult result{.lease = grant.lease, .instance = Info().instance, .model = ModelResult{.outcome = Outcome::kOk}};
  ModelResult& model = *result.model;
  if (TooBig(*grant.work)) {
    model = {.outcome = Outcome::kUnfit, .error = "the model does not fit the device"};
    return result;
  }
  const bool numbers = role_ != Role::kNotFinite;
  for (int k = 0; k < 3; ++k) {
    model.tuned_s.push_back(1e-3 * (1 + 0.01 * world_.rng().Uniform()));
    model.untuned_s.push_back(numbers ? 2e-3 : std::numeric_limits<double>::quiet_NaN());
  }
  return result;
}

// --- handing in ---

void SimWorker::SubmitNext() {
  if (submitting_ || outbox_.empty()) return;
  submitting_ = true;
  const std::vector<ItemResult> results = outbox_.front().results;
  network_.Call<std::vector<bool>>(
      kCallDeadline, [this, results](auto reply) { server_.SubmitResults(results, reply); },
      [this, life = life_](const absl::StatusOr<std::vector<bool>>& acks) {
        if (life == life_) OnAcks(acks);
      });
}

void SimWorker::OnAcks(const absl::StatusOr<std::vector<bool>>& acks) {
  submitting_ = false;
  if (!acks.ok() && !absl::IsInvalidArgument(acks.status())) {
    After(BackOff(submit_failures_++), [this] { SubmitNext(); });
    return;
  }
  submit_failures_ = 0;
  const Outgoing& sent = outbox_.front();
  for (size_t i = 0; acks.ok() && i < sent.results.size(); ++i) {
    const ItemResult& result = sent.results[i];
    const bool kept = sent.batch && result.outcome() != Outcome::kInfrastructure && role_ != Role::kVerbose;
    if ((*acks)[i] && kept) promises_.Acknowledged(name_, {result.item, result.attempt});
  }
  held_.erase(outbox_.front().lease);
  outbox_.pop_front();
  SyncIfDue();
  SubmitNext();
}

}  // namespace temper::simulator
