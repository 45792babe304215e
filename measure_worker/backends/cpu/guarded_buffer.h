// Memory that catches who leaves it: the page after the end can not be touched, and the few bytes between the end and
// that page are watched, as is what lies just before the beginning. On huge pages, as the runtime's arenas are: on
// small ones it is luck which sets of a cache a buffer shares with others, and a kernel's time is a matter of luck then
// too.
#pragma once

#include <cstddef>
#include <cstdint>

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
  char* base_ = nullptr;
  size_t mapped_ = 0;
  char* data_ = nullptr;
  int64_t bytes_ = 0;
  int64_t lead_ = 0, slack_ = 0;  // watched bytes before and after
};

}  // namespace temper::worker
