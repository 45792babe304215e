#include "tuner_server/service/tuning_service.h"

#include "tuner_server/service/calls.h"
#include "tuner_server/service/wire.h"

namespace temper {
namespace {

constexpr int64_t kRecordsAPage = 256;

// One write at a time, of all that changed since the last: a slow watcher gets fewer events, and nothing piles up.
class WatchReactor : public grpc::ServerWriteReactor<v1::JobEvent> {
 public:
  // `job` may be gone already; then `last` is all there is to say.
  WatchReactor(std::shared_ptr<JobFeed> job, int64_t cursor) : job_(std::move(job)), cursor_(cursor) {
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
    if (!ok || cancelled_) {
      End(grpc::Status::CANCELLED);
    } else if (IsFinalJobState(event_.state())) {
      End(grpc::Status::OK);
    } else if (event_.state() == "suspended") {
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
    const std::optional<JobNews> news = job_->Since(cursor_);
    if (!news) return;
    event_ = ToWire(*news);
    cursor_ = event_.cursor();
    writing_ = true;
    StartWrite(&event_);
  }

  void End(const grpc::Status& status) {
    if (std::exchange(ended_, true)) return;
    Finish(status);
  }

  const std::shared_ptr<JobFeed> job_;
  std::shared_ptr<Link> link_;
  int64_t cursor_;
  v1::JobEvent event_;
  bool writing_ = false, ended_ = false, cancelled_ = false;
};

// A job that is over and of which the store has the end; or an error.
class LastWordReactor : public grpc::ServerWriteReactor<v1::JobEvent> {
 public:
  explicit LastWordReactor(const absl::StatusOr<v1::JobEvent>& event) {
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

// Page by page, the next when the last is written.
class ExportReactor : public grpc::ServerWriteReactor<v1::Record> {
 public:
  ExportReactor(Store& store, int64_t after_id) : store_(store), after_id_(after_id) { Next(); }

  void OnWriteDone(bool ok) override {
    if (!ok) {
      Finish(grpc::Status::CANCELLED);
      return;
    }
    Next();
  }
  void OnDone() override { delete this; }

 private:
  void Next() {
    if (next_ == page_.size()) {
      page_.clear();
      next_ = 0;
      const RecordFilter filter{.after_id = after_id_, .limit = kRecordsAPage};
      const absl::Status scanned =
          store_.Scan(filter, [this](const Record& record) { page_.push_back(ToWire(record)); });
      if (!scanned.ok() || page_.empty()) {
        Finish(ToGrpc(scanned));
        return;
      }
      after_id_ = page_.back().id();
    }
    StartWrite(&page_[next_++]);
  }

  Store& store_;
  int64_t after_id_;
  std::vector<v1::Record> page_;
  size_t next_ = 0;
};

absl::Status FillJobs(ServerCore& core, v1::ListJobsReply* reply) {
  TEMPER_ASSIGN_OR_RETURN(const std::vector<JobRow> rows, core.Jobs());
  for (const JobRow& row : rows) *reply->add_jobs() = ToWire(row);
  return absl::OkStatus();
}

absl::Status FillBest(Store& store, const v1::QueryBestRequest& request, v1::QueryBestReply* reply) {
  for (const v1::BestQuery& query : request.queries()) {
    TEMPER_ASSIGN_OR_RETURN(const std::optional<BestAnswer> answer, store.Best(FromWire(query)));
    *reply->add_answers() = ToWire(answer);
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
    TEMPER_ASSIGN_OR_RETURN(records.emplace_back(), FromWire(record));
  }
  TEMPER_ASSIGN_OR_RETURN(const std::vector<int64_t> ids, store.Import(records));
  reply->mutable_ids()->Add(ids.begin(), ids.end());
  return absl::OkStatus();
}

absl::Status Begin(ServerCore& core, const v1::SubmitJobRequest& request, v1::SubmitJobReply* reply) {
  TEMPER_ASSIGN_OR_RETURN(JobSpec spec, FromWire(request));
  TEMPER_ASSIGN_OR_RETURN(const int64_t job, core.SubmitJob(std::move(spec), request.SerializeAsString()));
  reply->set_job(job);
  return absl::OkStatus();
}

}  // namespace

grpc::ServerUnaryReactor* TuningServiceImpl::SubmitJob(grpc::CallbackServerContext* context,
                                                       const v1::SubmitJobRequest* request, v1::SubmitJobReply* reply) {
  absl::Status status = Admit(*context, *request, kLargestGraph);
  if (status.ok()) status = Begin(core_, *request, reply);
  return Answer(context, status);
}

grpc::ServerWriteReactor<v1::JobEvent>* TuningServiceImpl::WatchJob(grpc::CallbackServerContext* context,
                                                                    const v1::WatchJobRequest* request) {
  if (const absl::Status admitted = Admit(*context, *request, kLargestQuery); !admitted.ok()) {
    return new LastWordReactor(admitted);
  }
  if (std::shared_ptr<JobFeed> job = core_.FindJob(request->job())) {
    return new WatchReactor(std::move(job), request->cursor());
  }
  const absl::StatusOr<JobRow> row = core_.store().GetJob(request->job());
  if (!row.ok()) return new LastWordReactor(row.status());
  return new LastWordReactor(FinalEvent(*row));
}

grpc::ServerUnaryReactor* TuningServiceImpl::CancelJob(grpc::CallbackServerContext* context,
                                                       const v1::CancelJobRequest* request, v1::CancelJobReply* reply) {
  absl::Status status = Admit(*context, *request, kLargestQuery);
  if (status.ok()) status = core_.CancelJob(request->job());
  return Answer(context, status);
}

grpc::ServerUnaryReactor* TuningServiceImpl::ListJobs(grpc::CallbackServerContext* context,
                                                      const v1::ListJobsRequest* request, v1::ListJobsReply* reply) {
  absl::Status status = Admit(*context, *request, kLargestQuery);
  if (status.ok()) status = FillJobs(core_, reply);
  return Answer(context, status);
}

grpc::ServerUnaryReactor* TuningServiceImpl::ListDevices(grpc::CallbackServerContext* context,
                                                         const v1::ListDevicesRequest* request,
                                                         v1::ListDevicesReply* reply) {
  const absl::Status status = Admit(*context, *request, kLargestQuery);
  if (status.ok()) {
    const absl::Duration now = core_.clock().Monotonic();
    for (const Dispatcher::SessionView& view : core_.Sessions())
      *reply->add_devices() = ToWire(view, now - view.last_seen);
  }
  return Answer(context, status);
}

grpc::ServerUnaryReactor* TuningServiceImpl::QueryBest(grpc::CallbackServerContext* context,
                                                       const v1::QueryBestRequest* request, v1::QueryBestReply* reply) {
  absl::Status status = Admit(*context, *request, kLargestQuery);
  if (status.ok()) status = FillBest(core_.store(), *request, reply);
  return Answer(context, status);
}

grpc::ServerUnaryReactor* TuningServiceImpl::QueryVerdict(grpc::CallbackServerContext* context,
                                                          const v1::QueryVerdictRequest* request,
                                                          v1::QueryVerdictReply* reply) {
  absl::Status status = Admit(*context, *request, kLargestQuery);
  if (status.ok()) status = FillVerdict(core_.store(), *request, reply);
  return Answer(context, status);
}

grpc::ServerUnaryReactor* TuningServiceImpl::PutRecords(grpc::CallbackServerContext* context,
                                                        const v1::PutRecordsRequest* request,
                                                        v1::PutRecordsReply* reply) {
  absl::Status status = Admit(*context, *request, kLargestQuery);
  if (status.ok()) status = Put(core_.store(), *request, reply);
  return Answer(context, status);
}

grpc::ServerWriteReactor<v1::Record>* TuningServiceImpl::ExportRecords(grpc::CallbackServerContext* context,
                                                                       const v1::ExportRecordsRequest* request) {
  return new ExportReactor(core_.store(), request->after_id());
}

}  // namespace temper
