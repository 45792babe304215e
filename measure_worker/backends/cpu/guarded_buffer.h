// Memory that catches who leaves it: the page after the end can not be touched, nor the one before the beginning, and
// the few bytes between the end and that page are watched.
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
  // kDataLoss if the bytes after the end were written.
  absl::Status CheckSlack() const;

 private:
  char* base_ = nullptr;
  size_t mapped_ = 0;
  char* data_ = nullptr;
  int64_t bytes_ = 0;
  int64_t slack_ = 0;
};

}  // namespace temper::worker
