#include "tests/chaos/unfinished_calls.h"

#include <algorithm>

#include "tests/chaos/raw_http2.h"

namespace temper {
namespace {

constexpr size_t kFrameHeader = 9;
constexpr int64_t kFrame = 16'384;
constexpr uint8_t kAck = 1;
constexpr uint8_t kWindowUpdate = 8;
constexpr uint16_t kInitialWindow = 4;

uint32_t Number(const std::string& bytes, size_t at, size_t size) {
  uint32_t value = 0;
  for (size_t i = 0; i < size; ++i) value = value << 8 | static_cast<uint8_t>(bytes[at + i]);
  return value;
}

}  // namespace

UnfinishedCalls::UnfinishedCalls(const std::string& address, int calls, int64_t bytes_a_call)
    : socket_(IsUnixAddress(address) ? ConnectUnix(address) : ConnectTcp(address)) {
  closed_ = !socket_.valid() || !SendAll(socket_.get(), Http2Preface());
  // A gRPC message begins with its length, and is one byte short of it.
  std::string length(1, '\0');
  for (const int shift : {24, 16, 8, 0}) length += static_cast<char>((bytes_a_call + 1) >> shift & 0xFF);
  for (int i = 0; i < calls && !closed_; ++i) {
    const auto stream = static_cast<uint32_t>(2 * i + 1);
    closed_ = !SendAll(socket_.get(), Frame(Http2Frame::kHeaders, 4, stream,
                                            CallHeaders("/temper.v1.TuningService/SubmitJob", i == 0)) +
                                          Frame(Http2Frame::kData, 0, stream, length));
    window_ -= static_cast<int64_t>(length.size());
    calls_[stream] = {bytes_a_call, first_window_ - static_cast<int64_t>(length.size())};
  }
}

void UnfinishedCalls::Send(int patience_ms) {
  while (!closed_) {
    while (!closed_ && SendSome()) {
    }
    const bool all = std::ranges::all_of(calls_, [](const auto& call) { return call.second.left == 0; });
    pollfd waits{socket_.get(), POLLIN, 0};
    if (closed_ || all || poll(&waits, 1, patience_ms) != 1) return;
    Read();
  }
}

bool UnfinishedCalls::SendSome() {
  for (auto& [stream, call] : calls_) {
    const int64_t bytes = std::min({call.left, call.window, window_, kFrame});
    if (bytes <= 0) continue;
    closed_ =
        !SendAll(socket_.get(), Frame(Http2Frame::kData, 0, stream, std::string(static_cast<size_t>(bytes), 'x')));
    call.left -= bytes;
    call.window -= bytes;
    window_ -= bytes;
    sent_ += bytes;
    return true;
  }
  return false;
}

void UnfinishedCalls::Read() {
  char bytes[65536];
  const ssize_t n = recv(socket_.get(), bytes, sizeof(bytes), 0);
  if (n <= 0) {
    closed_ = true;
    return;
  }
  in_.append(bytes, static_cast<size_t>(n));
  while (in_.size() >= kFrameHeader) {
    const size_t size = Number(in_, 0, 3);
    if (in_.size() < kFrameHeader + size) return;
    Take(static_cast<uint8_t>(in_[3]), static_cast<uint8_t>(in_[4]), Number(in_, 5, 4), in_.substr(kFrameHeader, size));
    in_.erase(0, kFrameHeader + size);
  }
}

void UnfinishedCalls::Take(uint8_t type, uint8_t flags, uint32_t stream, const std::string& payload) {
  if (type == kWindowUpdate) {
    const auto call = calls_.find(stream);
    (call == calls_.end() ? window_ : call->second.window) += Number(payload, 0, 4);
  } else if (type == static_cast<uint8_t>(Http2Frame::kReset)) {
    calls_.erase(stream);
  } else if (type == static_cast<uint8_t>(Http2Frame::kPing) && flags != kAck) {
    closed_ = !SendAll(socket_.get(), Frame(Http2Frame::kPing, kAck, 0, payload));
  } else if (type == static_cast<uint8_t>(Http2Frame::kSettings) && flags != kAck) {
    for (size_t at = 0; at + 6 <= payload.size(); at += 6) {
      if (Number(payload, at, 2) != kInitialWindow) continue;
      const int64_t window = Number(payload, at + 2, 4);
      for (auto& [id, call] : calls_) call.window += window - first_window_;
      first_window_ = window;
    }
    closed_ = !SendAll(socket_.get(), Frame(Http2Frame::kSettings, kAck, 0, ""));
  }
}

}  // namespace temper
