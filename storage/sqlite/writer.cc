#include "storage/sqlite/writer.h"

namespace temper {

Writer::Writer(std::unique_ptr<Connection> connection, const LockFile& lock, std::function<absl::Status()> look)
    : connection_(std::move(connection)), lock_(lock), look_(std::move(look)), left_(lock.States()), thread_([this] {
        Loop();
      }) {}

Writer::~Writer() {
  {
    std::lock_guard lock(mutex_);
    closing_ = true;
  }
  asked_.notify_one();
  thread_.join();
  // The log is the truth then: who opens the file next reads it from there.
  if (!broken_.ok()) connection_->CheckpointOnClose(false);
}

absl::Status Writer::Run(size_t weight, std::function<absl::Status(Connection&)> change) {
  Request request{weight, std::move(change)};
  std::unique_lock lock(mutex_);
  queue_.push_back(&request);
  asked_.notify_one();
  answered_.wait(lock, [&] { return request.done; });
  return request.status;
}

size_t Writer::Waiting() {
  std::lock_guard lock(mutex_);
  return queue_.size();
}

void Writer::Loop() {
  while (true) {
    const std::vector<Request*> group = NextGroup();
    if (group.empty()) return;
    Commit(group);
    {
      std::lock_guard lock(mutex_);
      for (Request* request : group) request->done = true;
    }
    answered_.notify_all();
  }
}

std::vector<Writer::Request*> Writer::NextGroup() {
  std::unique_lock lock(mutex_);
  asked_.wait(lock, [&] { return closing_ || !queue_.empty(); });
  std::vector<Request*> group;
  size_t weight = 0;
  while (!queue_.empty() && (group.empty() || weight + queue_.front()->weight <= kGroupWeight)) {
    weight += queue_.front()->weight;
    group.push_back(queue_.front());
    queue_.pop_front();
  }
  return group;
}

void Writer::Commit(const std::vector<Request*>& group) {
  if (absl::Status status = Transaction(group); status.ok() || group.size() == 1 || !Broken().ok()) {
    for (Request* request : group) request->status = status;
    return;
  }
  // One that can not be written must not take its neighbours with it.
  for (Request* const& request : group) request->status = Transaction(std::span(&request, 1));
}

absl::Status Writer::Transaction(std::span<Request* const> group) {
  TEMPER_RETURN_IF_ERROR(Broken());
  TEMPER_RETURN_IF_ERROR(CheckPlace());
  LookIfOthersWrote();
  TEMPER_RETURN_IF_ERROR(Broken());
  absl::Status status = connection_->Exec("BEGIN IMMEDIATE");
  for (size_t i = 0; status.ok() && i < group.size(); ++i) status = group[i]->change(*connection_);
  if (status.ok()) status = connection_->Exec("COMMIT");
  if (!status.ok() && connection_->InTransaction()) connection_->Exec("ROLLBACK").IgnoreError();
  BreakIf(status);
  // What is committed stays so, whether or not the log could be shortened.
  if (status.ok()) BreakIf(connection_->ShortenLog());
  left_ = lock_.States();
  return status;
}

absl::Status Writer::CheckPlace() {
  const absl::Status there = lock_.CheckDatabase();
  // What is acknowledged goes along with the file, wherever it is now, and no log stays behind that SQLite would take
  // for that of another file by its name.
  if (!there.ok()) connection_->EmptyLog().IgnoreError();
  BreakIf(there);
  return there;
}

void Writer::LookIfOthersWrote() {
  constexpr int kPause = 10;  // times as long as the look took, for a file system that tells of every write late
  others_wrote_ |= lock_.States() != left_;
  const auto began = std::chrono::steady_clock::now();
  if (!others_wrote_ || began < next_look_) return;
  BreakIf(look_());
  others_wrote_ = false;
  const auto ended = std::chrono::steady_clock::now();
  next_look_ = ended + kPause * (ended - began);
}

void Writer::BreakIf(const absl::Status& status) {
  std::lock_guard lock(mutex_);
  if (absl::IsDataLoss(status) && broken_.ok()) broken_ = status;
}

absl::Status Writer::Broken() {
  std::lock_guard lock(mutex_);
  return broken_;
}

}  // namespace temper
