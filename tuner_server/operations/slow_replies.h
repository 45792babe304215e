// The thread of HttpListener's slow replies, with a short queue: a few pages of people may wait for each other, and
// more are told to come again. Thread-safe.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "tuner_server/operations/http.h"

namespace temper {

class SlowReplies {
 public:
  static constexpr size_t kMostWaiting = 16;  // beside the one that is being made

  // `ready` is called on the thread whenever there is something to Take.
  explicit SlowReplies(std::function<void()> ready);
  ~SlowReplies();  // waits for the reply that is being made; the others are never made

  // False: too many wait already. `connection`: whose it is; it has one at a time.
  bool Make(int64_t connection, std::function<HttpReply()> reply);
  // Nobody waits for it any more. It may have been made.
  void Drop(int64_t connection);
  // What was made since the last call, and for whom.
  std::vector<std::pair<int64_t, HttpReply>> Take();

 private:
  void Loop();

  const std::function<void()> ready_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::pair<int64_t, std::function<HttpReply()>>> waiting_;
  std::vector<std::pair<int64_t, HttpReply>> made_;
  bool closed_ = false;
  std::thread thread_;
};

}  // namespace temper
