// Memory that catches who leaves it: the page after the end can not be touched, nor the one before the beginning, and
// the few bytes between the end and that page are watched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>

#include "base/status.h"
#include "measure_worker/device.h"

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
  // kDataLoss if the bytes after the end were written, since they were marked last.
  absl::Status CheckSlack() const;
  void MarkSlack();

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
  int64_t slack_ = 0;
};

// Arrays side by side on huge pages, as a package's arenas hold them. On small pages it is luck which sets of a cache
// an array shares with others, and where all arrays end at the end of a page they crowd into the same: a kernel's time
// would be a matter of luck too, or worse than in a package.
class Arena {
 public:
  Arena() = default;
  // `bytes`: of all that is placed, each with its RoomOf.
  static absl::StatusOr<Arena> Make(int64_t bytes);
  // One whose first place begins where `other` ends, as far as caches can tell.
  static absl::StatusOr<Arena> MakeBehind(const Arena& other, int64_t bytes);
  char* Place(int64_t bytes);  // aligned to 64 bytes
  int64_t bytes() const { return memory_.bytes(); }

 private:
  GuardedBuffer memory_;
  int64_t used_ = 0;
};

// Buffers that were given back, for who needs some that size next: to have memory mapped and cleared takes longer than
// to fill it. What is taken holds anything. Not thread-safe.
class SpareBuffers {
 public:
  explicit SpareBuffers(int64_t most_bytes) : most_bytes_(most_bytes) {}
  absl::StatusOr<GuardedBuffer> Take(int64_t bytes);
  void Give(GuardedBuffer buffer);
  void Clear();

 private:
  const int64_t most_bytes_;
  int64_t bytes_ = 0;
  std::list<GuardedBuffer> spare_;  // the latest first
};

}  // namespace temper::worker
