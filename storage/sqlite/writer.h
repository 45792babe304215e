// The one thread that writes. Changes of several callers share a transaction, and so one sync of the disk.
//
// A group is what queued up while the one before was being synced, up to kGroupWeight results; nobody waits for company
// that may not come. Under load groups fill by themselves, and a lone caller pays one sync and no delay.
//
// A write that the disk or the file fails (kDataLoss) is the last one: after a sync that failed nobody knows what the
// disk holds of what the system believes to be written, so each later write is answered with that error. So it is once
// the file is gone from its place, or whoever reads it found it damaged. Where somebody else has written the files,
// they are looked at before the next commit: a foreign program may write them in SQLite's way, but not overwrite them.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>
#include <vector>

#include "storage/sqlite/connection.h"
#include "storage/sqlite/lock_file.h"

namespace temper {

class Writer {
 public:
  // `lock` holds the database. `look`: whether that is sound still; kDataLoss: it is not.
  Writer(std::unique_ptr<Connection> connection, const LockFile& lock, std::function<absl::Status()> look);
  ~Writer();  // finishes what was asked, then closes the connection

  // Runs `change` inside a transaction on the writer's thread; returns once that is durable, or was undone. `change`
  // may run twice (a group that fails is taken again one by one), so it starts by forgetting what it gathered before.
  // `weight`: how many results it carries.
  absl::Status Run(size_t weight, std::function<absl::Status(Connection&)> change);
  size_t Waiting();  // callers not yet in a group
  // Nothing is written any more once `status` is kDataLoss.
  void BreakIf(const absl::Status& status);
  absl::Status Broken();  // OK: not

 private:
  static constexpr size_t kGroupWeight = 64;
  struct Request {
    size_t weight;
    std::function<absl::Status(Connection&)> change;
    absl::Status status;
    bool done = false;
  };

  void Loop();
  std::vector<Request*> NextGroup();  // empty: closing and nothing left
  void Commit(const std::vector<Request*>& group);
  absl::Status Transaction(std::span<Request* const> group);
  absl::Status CheckPlace();  // of the file
  void LookIfOthersWrote();

  std::unique_ptr<Connection> connection_;
  const LockFile& lock_;
  const std::function<absl::Status()> look_;
  // Of the writing thread: what this process left of the files, and when it may look at them again.
  std::vector<LockFile::FileState> left_;
  bool others_wrote_ = false;
  std::chrono::steady_clock::time_point next_look_;
  std::mutex mutex_;
  absl::Status broken_;
  std::condition_variable asked_, answered_;
  std::deque<Request*> queue_;
  bool closing_ = false;
  std::thread thread_;
};

}  // namespace temper
