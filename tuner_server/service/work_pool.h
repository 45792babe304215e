// A few threads for what would hold up gRPC's own: reads of the store, the parsing of models. What waits for them is
// bounded, so that a flood is refused at once and costs workers nothing. Thread-safe.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "base/status.h"

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

  // Later, on a thread of the pool. kResourceExhausted: too much waits already, and `work` is not called.
  absl::Status Run(size_t bytes, std::function<void()> work);

 private:
  struct Call {
    size_t bytes;
    std::function<void()> work;
  };
  void Loop();

  const Limits limits_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Call> calls_;
  size_t bytes_ = 0;
  bool closed_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace temper
