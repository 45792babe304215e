#include "tuner_server/service/tuning_service.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/hash.h"
#include "security/rights.h"
#include "storage/check.h"
#include "tuner_server/service/calls.h"
#include "tuner_server/service/slow_reader.h"
#include "tuner_server/service/wire.h"

namespace temper {
namespace {

constexpr int64_t kRecordsAPage = 64, kBestsAPage = 256;  // of an export; a page of bests looks at them all
constexpr int kDefaultItems = 256;                        // of jobs and devices
constexpr absl::Duration kRoomAgain = absl::Milliseconds(300);

// One write at a time, of all that changed since the last: a slow watcher gets fewer events, and nothing piles up.
class WatchReactor : public grpc::ServerWriteReactor<v1::JobEvent> {
 public:
  // Who has not taken an event after `patience` is cut off.
  WatchReactor(std::shared_ptr<JobFeed> job, int64_t cursor, absl::Duration patience, SharedRoom& room,
               Callers& callers, grpc::CallbackServerContext* context, Principal caller)
      : job_(std::move(job)),
        cursor_(cursor),
        room_(room),
        who_(Sharer(caller)),
        slow_(*context, patience),
        lasting_(callers, context, std::move(caller)) {
    link_ = std::make_shared<Link>();
    link_->reactor = this;
    // A cursor of an end that was told already: tell it again.
    if (job_->over() && !job_->Since(cursor_)) cursor_ = 0;
    job_->AddWatcher(link_);
    link_->Poke();
  }

  void OnWriteDone(bool ok) override {
    std::lock_guard lock(link_->mutex);
    writing_ = false;
    const std::string state = event_.state();
    LeaveRoom();
    slow_.Taken();
    if (!ok || cancelled_) {
      End(grpc::Status::CANCELLED);
    } else if (IsFinalJobState(state)) {
      End(grpc::Status::OK);
    } else if (state == "suspended") {
      End(grpc::Status(grpc::StatusCode::UNAVAILABLE, "the server is shutting down; the job goes on with the next"));
    } else if (job_->StateChangedSince(cursor_)) {
      Continue();
    }
  }

  void OnCancel() override {
    std::lock_guard lock(link_->mutex);
    cancelled_ = true;
    if (!writing_) End(grpc::Status::CANCELLED);
  }

  void OnDone() override {
    job_->RemoveWatcher(link_);
    {
      std::lock_guard lock(link_->mutex);
      link_->reactor = nullptr;
    }
    LeaveRoom();
    delete this;
  }

 private:
  // Outlives the reactor where a poke is under way.
  struct Link : JobWatcher {
    void Poke() override {
      std::lock_guard lock(mutex);
      if (reactor != nullptr) reactor->Continue();
    }
    std::mutex mutex;
    WatchReactor* reactor = nullptr;
  };

  void Continue() {
    if (writing_ || ended_ || cancelled_) return;
    // The event, and what gRPC makes of it. One that is larger than the room waits until it is alone.
    const size_t bytes = std::min(2 * job_->BytesSince(cursor_), room_.most());
    if (bytes == 0) return;
    if (!room_.Take(who_, bytes)) {
      again_ = std::make_unique<grpc::Alarm>();
      again_->Set(absl::ToChronoTime(absl::Now() + kRoomAgain), [link = link_](bool due) {
        if (due) link->Poke();
      });
      return;
    }
    taken_ = bytes;
    event_ = ToWire(*job_->Since(cursor_));
    cursor_ = event_.cursor();
    writing_ = true;
    slow_.Given();
    StartWrite(&event_);
  }

  void End(const grpc::Status& status) {
    if (std::exchange(ended_, true)) return;
    Finish(status);
  }
  void LeaveRoom() {
    event_.Clear();
    if (const size_t bytes = std::exchange(taken_, 0); bytes > 0) room_.Leave(who_, bytes);
  }

  const std::shared_ptr<JobFeed> job_;
  std::shared_ptr<Link> link_;
  int64_t cursor_;
  v1::JobEvent event_;
  bool writing_ = false, ended_ = false, cancelled_ = false;
  SharedRoom& room_;
  const std::string who_;
  size_t taken_ = 0;                    // of the room, by the event that is being written
  std::unique_ptr<grpc::Alarm> again_;  // while there is no room
  SlowReader slow_;
  const Callers::Lasting lasting_;
};

// One event, or an error, that is looked up elsewhere.
class LastWordReactor : public grpc::ServerWriteReactor<v1::JobEvent> {
 public:
  void Tell(const absl::StatusOr<v1::JobEvent>& event) {
    if (!event.ok()) {
      Finish(ToGrpc(event.status()));
      return;
    }
    event_ = *event;
    StartWriteAndFinish(&event_, grpc::WriteOptions(), grpc::Status::OK);
  }
  void OnDone() override { delete this; }

 private:
  v1::JobEvent event_;
};

absl::StatusOr<RecordFilter> FilterOf(const v1::ExportRecordsRequest& request) {
  RecordFilter filter;
  filter.workload = request.workload();
  filter.target = request.target();
  filter.device_key = request.device_key();
  if (!request.outcome().empty()) {
    filter.outcome = ParseOutcome(request.outcome());
    if (!filter.outcome.has_value()) return absl::InvalidArgumentError("no such outcome");
  }
  filter.purpose = request.purpose();
  filter.after_id = request.after_id();
  filter.limit = request.best() ? kBestsAPage : kRecordsAPage;
  return filter;
}

// Page by page, the next when the last is written.
class ExportReactor : public grpc::ServerWriteReactor<v1::Record> {
 public:
  // Who has not taken a record after `patience` is cut off.
  ExportReactor(Store& store, WorkPool& pool, SharedRoom& exports, grpc::CallbackServerContext* context,
                absl::Duration patience)
      : store_(store), pool_(pool), exports_(exports), slow_(*context, patience) {}

  void Begin(const v1::ExportRecordsRequest& request, Callers& callers, grpc::CallbackServerContext* context,
             Principal caller) {
    absl::StatusOr<RecordFilter> filter = FilterOf(request);
    if (!filter.ok()) return Refuse(filter.status());
    const std::string who = Sharer(caller);
    if (!exports_.Take(who, 1))
      return Refuse(absl::ResourceExhaustedError("the server is busy with other exports; try again later"));
    who_ = who;
    lasting_.emplace(callers, context, std::move(caller));
    best_ = request.best();
    filter_ = *std::move(filter);
    Load();
  }
  void Refuse(const absl::Status& why) { Finish(ToGrpc(why)); }

  void OnWriteDone(bool ok) override {
    slow_.Taken();
    if (!ok)
      Finish(grpc::Status::CANCELLED);
    else if (next_ < page_.size())
      WriteNext();
    else
      Load();
  }
  void OnDone() override {
    if (who_) exports_.Leave(*who_, 1);
    delete this;
  }

 private:
  void Load() {
    const absl::Status queued = pool_.Run(*who_, 0, [this] { LoadNow(); });
    if (!queued.ok()) Finish(ToGrpc(queued));
  }
  void LoadNow() {
    page_.clear();
    next_ = 0;
    const auto keep = [this](const Record& record) { page_.push_back(ToWire(record)); };
    const absl::Status read = best_ ? store_.ScanBest(filter_, keep) : store_.Scan(filter_, keep);
    if (!read.ok() || page_.empty()) {
      Finish(ToGrpc(read));
      return;
    }
    filter_.after_id = page_.back().id();
    WriteNext();
  }
  void WriteNext() {
    slow_.Given();
    StartWrite(&page_[next_++]);
  }

  Store& store_;
  WorkPool& pool_;
  SharedRoom& exports_;
  std::optional<std::string> who_;  // has a place among them
  bool best_ = false;
  RecordFilter filter_;
  std::vector<v1::Record> page_;
  size_t next_ = 0;
  SlowReader slow_;
  std::optional<Callers::Lasting> lasting_;
};

absl::Status FillJobs(ServerCore& core, const v1::ListJobsRequest& request, v1::ListJobsReply* reply) {
  if (!request.state().empty()) TEMPER_RETURN_IF_ERROR(CheckJobState(request.state()));
  const int page = PageSize(request.limit(), kDefaultItems);
  JobFilter filter{.before_id = request.before(), .limit = page, .state = request.state()};
  TEMPER_ASSIGN_OR_RETURN(const std::vector<JobRow> rows, core.Jobs(filter));
  for (const JobRow& row : rows) *reply->add_jobs() = ToWire(row);
  if (reply->jobs_size() == page) reply->set_next_before(rows.back().id);
  return absl::OkStatus();
}

void FillDevices(ServerCore& core, const v1::ListDevicesRequest& request, v1::ListDevicesReply* reply) {
  const auto most = static_cast<size_t>(PageSize(request.limit(), kDefaultItems));
  const Dispatcher::SessionPage page = core.SessionsAfter(request.after(), most);
  const absl::Duration now = core.clock().Monotonic();
  for (const Dispatcher::SessionView& view : page.views) *reply->add_devices() = ToWire(view, now);
  reply->set_next_after(page.next);
}

absl::Status FillBest(Store& store, const v1::QueryBestRequest& request, v1::QueryBestReply* reply) {
  size_t bytes = 0;
  for (const v1::BestQuery& query : request.queries()) {
    TEMPER_ASSIGN_OR_RETURN(const std::optional<BestAnswer> answer, store.Best(FromWire(query)));
    *reply->add_answers() = ToWire(answer);
    bytes += reply->answers(reply->answers_size() - 1).ByteSizeLong();
    if (bytes > kLargestQuery) {
      return absl::ResourceExhaustedError(
          absl::StrCat("the answers have more than ", kLargestQuery, " bytes; ask for fewer at once"));
    }
  }
  return absl::OkStatus();
}

absl::Status FillVerdict(Store& store, const v1::QueryVerdictRequest& request, v1::QueryVerdictReply* reply) {
  TEMPER_ASSIGN_OR_RETURN(const std::optional<JobRow> job,
                          store.LatestVerdict(request.model_hash(), request.target(), request.device_key()));
  if (!job) return absl::OkStatus();
  reply->set_job(job->id);
  reply->set_build_with(job->build_with);
  return absl::OkStatus();
}

absl::Status Put(Store& store, const v1::PutRecordsRequest& request, v1::PutRecordsReply* reply) {
  std::vector<Record> records;
  for (const v1::Record& record : request.records()) {
    TEMPER_ASSIGN_OR_RETURN(Record value, FromWire(record));
    value.origin = request.trusted() ? "trusted" : "put";
    records.push_back(std::move(value));
  }
  TEMPER_ASSIGN_OR_RETURN(const std::vector<int64_t> ids, store.Import(records));
  reply->mutable_ids()->Add(ids.begin(), ids.end());
  return absl::OkStatus();
}

absl::Status NotLive(int64_t job) {
  return absl::NotFoundError(absl::StrCat("no job ", job, " is running or waiting"));
}

// One that is over needs no cancelling.
absl::Status CheckOver(Store& store, int64_t job) {
  TEMPER_ASSIGN_OR_RETURN(const JobRow row, store.GetJob(job));
  return IsFinalJobState(row.state) ? absl::OkStatus() : NotLive(job);
}

absl::Status Begin(ServerCore& core, const Callers& callers, const Principal& caller,
                   const v1::SubmitJobRequest& request, v1::SubmitJobReply* reply) {
  TEMPER_ASSIGN_OR_RETURN(JobSpec spec, FromWire(request));
  spec.owner = caller.owner;
  TEMPER_ASSIGN_OR_RETURN(const int64_t job, core.SubmitJob(std::move(spec), request.SerializeAsString()));
  // A revocation ends the jobs that it finds; this one may have come after it.
  if (!callers.StillStands(caller) && !callers.MaySubmit(caller.owner, request.device_key())) {
    TEMPER_RETURN_IF_ERROR(core.CancelJob(job, kNobodysJob));
    return absl::UnauthenticatedError("the token was revoked meanwhile");
  }
  reply->set_job(job);
  return absl::OkStatus();
}

}  // namespace

TuningServiceImpl::JobSubject TuningServiceImpl::SubjectOf(int64_t job) {
  JobSubject about{.subject = {.text = absl::StrCat("job ", job)}};
  if (const std::shared_ptr<JobFeed> feed = core_.FindJob(job)) {
    about.subject.owner = feed->owner();
    about.live = true;
  }
  return about;
}

grpc::ServerUnaryReactor* TuningServiceImpl::SubmitJob(grpc::CallbackServerContext* context,
                                                       const v1::SubmitJobRequest* request, v1::SubmitJobReply* reply) {
  const auto caller = Admit(callers_, *context, *request, kLargestGraph, Call::kSubmitJob,
                            {.device_key = request->device_key(), .text = request->model()});
  return AnswerFrom(submissions_, callers_, context, caller, request->ByteSizeLong(),
                    [=, this] { return Begin(core_, callers_, caller->principal, *request, reply); });
}

grpc::ServerWriteReactor<v1::JobEvent>* TuningServiceImpl::WatchJob(grpc::CallbackServerContext* context,
                                                                    const v1::WatchJobRequest* request) {
  absl::StatusOr<Admitted> caller = Admit(callers_, *context, *request, kLargestQuery, Call::kWatchJob);
  const absl::Status admitted = caller.status();
  if (admitted.ok()) {
    if (std::shared_ptr<JobFeed> job = core_.FindJob(request->job()))
      return new WatchReactor(std::move(job), request->cursor(), core_.options().longest_poll, watch_room_, callers_,
                              context, std::move(caller->principal));
  }
  auto* reactor = new LastWordReactor;
  const auto tell = [this, reactor, job = request->job()] {
    const absl::StatusOr<JobRow> row = core_.store().GetJob(job);
    reactor->Tell(row.ok() ? absl::StatusOr<v1::JobEvent>(FinalEvent(*row)) : row.status());
  };
  const absl::Status queued = admitted.ok() ? reads_.Run(Sharer(caller->principal), 0, tell) : admitted;
  if (!queued.ok()) reactor->Tell(queued);
  return reactor;
}

grpc::ServerUnaryReactor* TuningServiceImpl::CancelJob(grpc::CallbackServerContext* context,
                                                       const v1::CancelJobRequest* request, v1::CancelJobReply* reply) {
  const JobSubject about = SubjectOf(request->job());
  return AnswerFrom(reads_, callers_, context,
                    Admit(callers_, *context, *request, kLargestQuery, Call::kCancelJob, about.subject), 0, [=, this] {
                      return about.live ? core_.CancelJob(request->job(), "cancelled by request")
                                        : CheckOver(core_.store(), request->job());
                    });
}

grpc::ServerUnaryReactor* TuningServiceImpl::SetPriority(grpc::CallbackServerContext* context,
                                                         const v1::SetPriorityRequest* request,
                                                         v1::SetPriorityReply* reply) {
  const JobSubject about = SubjectOf(request->job());
  const auto admitted = Admit(callers_, *context, *request, kLargestQuery, Call::kSetPriority, about.subject);
  if (!admitted.ok()) return Answer(context, admitted.status());
  if (!about.live) return Answer(context, NotLive(request->job()));
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const std::string who = Sharer(admitted->principal);
  const absl::Status queued = reads_.Run(who, 0, [=, this, admitted = *admitted] {
    const bool audited = callers_.Audit(admitted);
    core_.SetPriority(request->job(), request->priority(), [=, this](const absl::Status& stored) {
      reactor->Finish(ToGrpc(stored));
      if (stored.ok() || !audited) return;
      // Not on the thread that commits.
      (void)reads_.Run(who, 0, [=, this] { callers_.AuditFailure(admitted, stored); });
    });
  });
  if (!queued.ok()) reactor->Finish(ToGrpc(queued));
  return reactor;
}

grpc::ServerUnaryReactor* TuningServiceImpl::ListJobs(grpc::CallbackServerContext* context,
                                                      const v1::ListJobsRequest* request, v1::ListJobsReply* reply) {
  return AnswerFrom(reads_, callers_, context, Admit(callers_, *context, *request, kLargestQuery, Call::kListJobs), 0,
                    [=, this] { return FillJobs(core_, *request, reply); });
}

grpc::ServerUnaryReactor* TuningServiceImpl::ListDevices(grpc::CallbackServerContext* context,
                                                         const v1::ListDevicesRequest* request,
                                                         v1::ListDevicesReply* reply) {
  const auto admitted = Admit(callers_, *context, *request, kLargestQuery, Call::kListDevices);
  if (!admitted.ok()) return Answer(context, admitted.status());
  // Workers may be started for who waits, so it has to be somebody who may submit.
  if (const std::string& key = request->awaited_key(); !key.empty()) {
    const absl::Status may = Allowed(admitted->principal, Call::kSubmitJob, {.device_key = key});
    if (!may.ok()) return Answer(context, may);
    core_.NoteAwaited(Sharer(admitted->principal), key);
  }
  return AnswerFrom(lists_, callers_, context, admitted, 0, [=, this] {
    FillDevices(core_, *request, reply);
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* TuningServiceImpl::QueryBest(grpc::CallbackServerContext* context,
                                                       const v1::QueryBestRequest* request, v1::QueryBestReply* reply) {
  return AnswerFrom(reads_, callers_, context, Admit(callers_, *context, *request, kLargestQuery, Call::kQueryBest),
                    request->ByteSizeLong(), [=, this] { return FillBest(core_.store(), *request, reply); });
}

grpc::ServerUnaryReactor* TuningServiceImpl::QueryVerdict(grpc::CallbackServerContext* context,
                                                          const v1::QueryVerdictRequest* request,
                                                          v1::QueryVerdictReply* reply) {
  return AnswerFrom(reads_, callers_, context, Admit(callers_, *context, *request, kLargestQuery, Call::kQueryVerdict),
                    0, [=, this] { return FillVerdict(core_.store(), *request, reply); });
}

grpc::ServerUnaryReactor* TuningServiceImpl::PutRecords(grpc::CallbackServerContext* context,
                                                        const v1::PutRecordsRequest* request,
                                                        v1::PutRecordsReply* reply) {
  const Call call = request->trusted() ? Call::kTrustRecords : Call::kPutRecords;
  const auto key_of = [&](int i) { return Subject{.device_key = request->records(i).device_key()}; };
  const Subject first = request->records_size() > 0 ? key_of(0) : Subject();
  const auto admitted = Admit(callers_, *context, *request, kLargestQuery, call, first);
  for (int i = 1; admitted.ok() && i < request->records_size(); ++i) {
    const absl::Status allowed = Allowed(admitted->principal, call, key_of(i));
    if (!allowed.ok()) return Answer(context, allowed);
  }
  return AnswerFrom(puts_, callers_, context, admitted, request->ByteSizeLong(),
                    [=, this] { return Put(core_.store(), *request, reply); });
}

grpc::ServerWriteReactor<v1::Record>* TuningServiceImpl::ExportRecords(grpc::CallbackServerContext* context,
                                                                       const v1::ExportRecordsRequest* request) {
  auto* reactor = new ExportReactor(core_.store(), pages_, exports_, context, core_.options().longest_poll);
  absl::StatusOr<Admitted> caller = Admit(callers_, *context, *request, kLargestQuery, Call::kExportRecords);
  if (!caller.ok())
    reactor->Refuse(caller.status());
  else
    reactor->Begin(*request, callers_, context, std::move(caller->principal));
  return reactor;
}

}  // namespace temper
