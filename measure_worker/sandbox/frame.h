// Messages between the supervisor and its child, over one stream socket: a length (4 bytes, little-endian), a kind
// (1 byte), then so many bytes of payload.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace temper::worker {

struct Frame {
  uint8_t kind = 0;
  std::string payload;
  bool operator==(const Frame&) const = default;
};

inline constexpr uint32_t kMaxPayload = 64 << 20;  // of an order: a graph
inline constexpr uint32_t kMaxAnswer = 1 << 20;

std::string EncodeFrame(const Frame& frame);
// Blocks until all is written. kUnavailable: the other side is gone.
absl::Status WriteFrame(int fd, const Frame& frame);
// Blocks for a whole frame; nothing at a clean end of the stream.
absl::StatusOr<std::optional<Frame>> ReadFrame(int fd);

// For readers that may not block: bytes in, frames out.
class FrameReader {
 public:
  explicit FrameReader(uint32_t most_payload = kMaxPayload) : most_payload_(most_payload) {}
  void Feed(std::string_view bytes);
  // The next whole frame if there is one. kInvalidArgument once the stream can not be ours; then for good.
  absl::StatusOr<std::optional<Frame>> Next();

 private:
  const uint32_t most_payload_;
  std::string buffer_;
  size_t used_ = 0;
};

}  // namespace temper::worker
