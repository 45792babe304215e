// Memory that catches who leaves it: the page after the end can not be touched, and the few bytes between the end and
// that page are watched, as is what lies just before the beginning. On huge pages, as the runtime's arenas are: on
// small ones it is luck which sets of a cache a buffer shares with others, and a kernel's time is a matter of luck then
// too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>

#include "base/status.h"

namespace temper::worker {

class GuardedBuffer {
 public:
  static absl::StatusOr<GuardedBuffer> Make(int64_t bytes);
  GuardedBuffer() = default;
  GuardedBuffer(GuardedBuffer&& other) noexcept;
  GuardedBuffer& operator=(GuardedBuffer&& other) noexcept;
  ~GuardedBuffer();

  // Aligned to 64 bytes, and at most 63 bytes before the untouchable page: the end is right-aligned as far as that
  // goes.
  char* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  void Fill(uint8_t byte);
  // From now on who writes here crashes.
  absl::Status MakeReadOnly();
  // kDataLoss if the bytes after the end or before the beginning were written.
  absl::Status CheckSlack() const;

 private:
  friend class SpareBuffers;
  bool Holds(int64_t bytes) const;  // without more room than twice as much
  absl::Status Refit(int64_t bytes);
  void Place(int64_t bytes);  // at the end of the room

  char* base_ = nullptr;
  size_t mapped_ = 0;
  char* begin_ = nullptr;  // of what can be touched, and how much of it there is
  int64_t room_ = 0;
  char* data_ = nullptr;
  int64_t bytes_ = 0;
  int64_t lead_ = 0, slack_ = 0;  // watched bytes before and after
};

// Buffers that were given back, for who needs some that size next: to have memory mapped and cleared takes longer than
// to fill it. What is taken holds anything, and before its beginning there may be more that can be touched; so this is
// for what kernels only read. Not thread-safe.
class SpareBuffers {
 public:
  explicit SpareBuffers(int64_t most_bytes) : most_bytes_(most_bytes) {}
  absl::StatusOr<GuardedBuffer> Take(int64_t bytes);
  void Give(GuardedBuffer buffer);

 private:
  const int64_t most_bytes_;
  int64_t bytes_ = 0;
  std::list<GuardedBuffer> spare_;  // the latest first
};

}  // namespace temper::worker
