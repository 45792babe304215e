// A peer that keeps calls open whose requests never end, so that what it sent stays in the server's memory.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/descriptor.h"

namespace temper {

// One connection. Heeds the windows of HTTP/2, as a peer has to that wants to be listened to.
class UnfinishedCalls {
 public:
  // To "127.0.0.1:PORT" or "unix:PATH".
  UnfinishedCalls(const std::string& address, int calls, int64_t bytes_a_call);

  // Sends until all is sent, the server closed the connection, or it gave leave to send no more for `patience_ms`.
  void Send(int patience_ms);
  bool closed() const { return closed_; }
  int64_t sent() const { return sent_; }

 private:
  struct Call {
    int64_t left;
    int64_t window;
  };
  bool SendSome();
  void Read();
  void Take(uint8_t type, uint8_t flags, uint32_t stream, const std::string& payload);

  Descriptor socket_;
  std::map<uint32_t, Call> calls_;  // by stream
  int64_t window_ = 65'535;         // of the connection
  int64_t first_window_ = 65'535;   // of each call
  std::string in_;
  int64_t sent_ = 0;
  bool closed_ = false;
};

}  // namespace temper
