// A TCP relay between a peer and a server, that delays what it passes on or swallows what the server says.
#pragma once

#include <atomic>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "absl/time/time.h"
#include "base/descriptor.h"

namespace temper {

class Relay {
 public:
  // Each way takes `delay`.
  Relay(const std::string& server, absl::Duration delay);
  ~Relay();
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  const std::string& address() const { return address_; }
  // What the server says from now on goes nowhere, until Cut.
  void EatReplies() { eats_ = true; }
  bool has_eaten() const { return has_eaten_; }
  // Breaks all connections off; new ones are served honestly.
  void Cut();

 private:
  struct Connection {
    Descriptor peer, server;
    std::thread up, down;
  };
  void AcceptLoop();
  void Pass(int from, int to, bool replies);

  const std::string server_;
  const absl::Duration delay_;
  std::string address_;
  Descriptor listening_;
  std::atomic<bool> eats_ = false, has_eaten_ = false;
  std::mutex mutex_;
  std::list<Connection> connections_;
  std::thread accept_;
};

}  // namespace temper
