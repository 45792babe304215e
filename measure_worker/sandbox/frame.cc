#include "measure_worker/sandbox/frame.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace temper::worker {
namespace {

constexpr size_t kHeader = 5;

uint32_t LengthOf(std::string_view header) {
  uint32_t length = 0;
  for (int i = 3; i >= 0; --i) length = length << 8 | static_cast<uint8_t>(header[i]);
  return length;
}

absl::Status TooLong(uint32_t length) {
  return absl::InvalidArgumentError(absl::StrCat("a message of ", length, " bytes is not one of ours"));
}

// Bytes read: fewer than `size` only at the end of the stream.
absl::StatusOr<size_t> ReadFully(int fd, char* data, size_t size) {
  size_t done = 0;
  while (done < size) {
    const ssize_t got = read(fd, data + done, size - done);
    if (got == 0) break;
    if (got > 0) {
      done += static_cast<size_t>(got);
    } else if (errno != EINTR) {
      return absl::UnavailableError(absl::StrCat("read: ", strerror(errno)));
    }
  }
  return done;
}

}  // namespace

std::string EncodeFrame(const Frame& frame) {
  std::string bytes;
  bytes.reserve(kHeader + frame.payload.size());
  const auto length = static_cast<uint32_t>(frame.payload.size());
  for (int i = 0; i < 4; ++i) bytes.push_back(static_cast<char>(length >> (8 * i)));
  bytes.push_back(static_cast<char>(frame.kind));
  return bytes + frame.payload;
}

absl::Status WriteFrame(int fd, const Frame& frame) {
  if (frame.payload.size() > kMaxPayload) return TooLong(static_cast<uint32_t>(frame.payload.size()));
  const std::string bytes = EncodeFrame(frame);
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t put = send(fd, bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
    if (put > 0) {
      done += static_cast<size_t>(put);
    } else if (put < 0 && errno != EINTR) {
      return absl::UnavailableError(absl::StrCat("write: ", strerror(errno)));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<Frame>> ReadFrame(int fd) {
  char header[kHeader];
  TEMPER_ASSIGN_OR_RETURN(const size_t got, ReadFully(fd, header, kHeader));
  if (got == 0) return std::nullopt;
  if (got < kHeader) return absl::UnavailableError("the stream ended inside a message");
  const uint32_t length = LengthOf({header, kHeader});
  if (length > kMaxPayload) return TooLong(length);
  Frame frame{static_cast<uint8_t>(header[4]), std::string(length, '\0')};
  TEMPER_ASSIGN_OR_RETURN(const size_t body, ReadFully(fd, frame.payload.data(), length));
  if (body < length) return absl::UnavailableError("the stream ended inside a message");
  return frame;
}

void FrameReader::Feed(std::string_view bytes) {
  buffer_.erase(0, used_);
  used_ = 0;
  buffer_.append(bytes);
}

absl::StatusOr<std::optional<Frame>> FrameReader::Next() {
  const std::string_view rest = std::string_view(buffer_).substr(used_);
  if (rest.size() < kHeader) return std::nullopt;
  const uint32_t length = LengthOf(rest);
  if (length > most_payload_) return TooLong(length);
  if (rest.size() < kHeader + length) return std::nullopt;
  Frame frame{static_cast<uint8_t>(rest[4]), std::string(rest.substr(kHeader, length))};
  used_ += kHeader + length;
  return frame;
}

}  // namespace temper::worker
