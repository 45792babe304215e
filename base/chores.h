// Work that comes round: snapshots, retention, certificates. One thread does it, one chore at a time.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "base/clock.h"
#include "base/status.h"

namespace temper {

struct Chore {
  std::string name;                   // for the log
  absl::Duration every;               // from the end of one to the start of the next
  std::function<absl::Status()> run;  // a failure is logged, and the chore comes round as usual
  absl::Duration first_in = absl::ZeroDuration();
};

// Which chores are due, without a thread. Not thread-safe.
class ChoreList {
 public:
  ChoreList(std::vector<Chore> chores, absl::Duration now);
  void RunDue(const Clock& clock);
  absl::Duration Next() const;  // when the next one is due, monotonic; infinite: never

 private:
  struct Entry {
    Chore chore;
    absl::Duration due;
  };
  std::vector<Entry> entries_;
};

// A ChoreList in a thread of its own.
class ChoreThread {
 public:
  ChoreThread(std::vector<Chore> chores, const Clock& clock);
  ~ChoreThread();  // waits for the chore that is being done

 private:
  void Loop();

  const Clock& clock_;
  ChoreList list_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace temper
