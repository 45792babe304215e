// A few threads for what would hold up gRPC's own: reads of the store, the parsing of models. What waits for them is
// bounded, so that a flood is refused at once and costs workers nothing. Callers take turns, and none takes more room
// than it leaves to others. Thread-safe.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/status.h"
#include "tuner_server/service/fair_share.h"

namespace temper {

class WorkPool {
 public:
  struct Limits {
    int threads;
    size_t waiting;  // calls
    size_t bytes;    // what the waiting ones hold, together
  };
  explicit WorkPool(const Limits& limits);
  ~WorkPool();  // runs what waits

  // Later, on a thread of the pool. kResourceExhausted: too much waits already, and `work` is not called. `who`: whose
  // share of the pool it is (LeavesEnough).
  absl::Status Run(const std::string& who, size_t bytes, std::function<void()> work);

 private:
  struct Call {
    size_t bytes;
    std::function<void()> work;
  };
  void Loop();
  Call TakeNext();  // of who is next in turn; something waits

  std::mutex mutex_;
  std::condition_variable wake_;
  std::map<std::string, std::deque<Call>> queues_;  // by who called; none is empty
  std::string last_;                                // who had the last turn
  FairShares calls_, bytes_;                        // that wait
  bool closed_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace temper
