#include "measure_worker/backends/cpu/guarded_buffer.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace temper::worker {
namespace {

constexpr int64_t kAlignment = 64;
constexpr int64_t kHugePage = 2 << 20;
constexpr int64_t kMostLead = 4096;
constexpr uint8_t kSlackByte = 0x5a;

int64_t RoundUp(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

}  // namespace

absl::StatusOr<GuardedBuffer> GuardedBuffer::Make(int64_t bytes) {
  const int64_t page = sysconf(_SC_PAGESIZE);
  const int64_t used = RoundUp(bytes, kAlignment);
  const int64_t whole = RoundUp(used, kHugePage);
  GuardedBuffer b;
  b.mapped_ = static_cast<size_t>(whole + 2 * page + kHugePage);
  void* base = mmap(nullptr, b.mapped_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED)
    return absl::ResourceExhaustedError(absl::StrCat("no memory for ", bytes, " bytes: ", strerror(errno)));
  b.base_ = static_cast<char*>(base);
  char* begin = reinterpret_cast<char*>(RoundUp(reinterpret_cast<int64_t>(b.base_) + page, kHugePage));
  if (whole > 0 && mprotect(begin, static_cast<size_t>(whole), PROT_READ | PROT_WRITE) != 0) {
    return absl::ResourceExhaustedError(absl::StrCat("no memory for ", bytes, " bytes: ", strerror(errno)));
  }
  madvise(begin, static_cast<size_t>(whole), MADV_HUGEPAGE);
  b.begin_ = begin;
  b.room_ = whole;
  b.Place(bytes);
  return b;
}

void GuardedBuffer::Place(int64_t bytes) {
  const int64_t used = RoundUp(bytes, kAlignment);
  data_ = begin_ + room_ - used;
  bytes_ = bytes;
  lead_ = std::min(room_ - used, kMostLead);
  slack_ = used - bytes;
  std::memset(data_ - lead_, kSlackByte, static_cast<size_t>(lead_));
  std::memset(data_ + bytes, kSlackByte, static_cast<size_t>(slack_));
}

bool GuardedBuffer::Holds(int64_t bytes) const {
  const int64_t needed = RoundUp(bytes, kHugePage);
  return needed <= room_ && room_ <= 2 * needed;
}

absl::Status GuardedBuffer::Refit(int64_t bytes) {
  if (mprotect(begin_, static_cast<size_t>(room_), PROT_READ | PROT_WRITE) != 0)
    return absl::ResourceExhaustedError(absl::StrCat("cannot write ", room_, " bytes again: ", strerror(errno)));
  Place(bytes);
  return absl::OkStatus();
}

GuardedBuffer::GuardedBuffer(GuardedBuffer&& other) noexcept { *this = std::move(other); }

GuardedBuffer& GuardedBuffer::operator=(GuardedBuffer&& other) noexcept {
  std::swap(base_, other.base_);
  std::swap(mapped_, other.mapped_);
  std::swap(begin_, other.begin_);
  std::swap(room_, other.room_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(lead_, other.lead_);
  std::swap(slack_, other.slack_);
  return *this;
}

GuardedBuffer::~GuardedBuffer() {
  if (base_ != nullptr) munmap(base_, mapped_);
}

void GuardedBuffer::Fill(uint8_t byte) {
  if (bytes_ > 0) std::memset(data_, byte, static_cast<size_t>(bytes_));
}

absl::Status GuardedBuffer::MakeReadOnly() {
  if (base_ == nullptr || bytes_ == 0) return absl::OkStatus();
  if (mprotect(begin_, static_cast<size_t>(room_), PROT_READ) == 0) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("cannot protect ", bytes_, " bytes: ", strerror(errno)));
}

absl::Status GuardedBuffer::CheckSlack() const {
  const auto untouched = [](const char* begin, int64_t bytes) {
    return std::all_of(begin, begin + bytes, [](char c) { return static_cast<uint8_t>(c) == kSlackByte; });
  };
  if (!untouched(data_ + bytes_, slack_)) return absl::DataLossError("bytes after its end were written");
  if (!untouched(data_ - lead_, lead_)) return absl::DataLossError("bytes before its beginning were written");
  return absl::OkStatus();
}

absl::StatusOr<GuardedBuffer> SpareBuffers::Take(int64_t bytes) {
  auto best = spare_.end();
  for (auto it = spare_.begin(); it != spare_.end(); ++it) {
    if (it->Holds(bytes) && (best == spare_.end() || it->room_ < best->room_)) best = it;
  }
  if (best == spare_.end()) return GuardedBuffer::Make(bytes);
  GuardedBuffer found = std::move(*best);
  spare_.erase(best);
  bytes_ -= found.room_;
  TEMPER_RETURN_IF_ERROR(found.Refit(bytes));
  return found;
}

void SpareBuffers::Give(GuardedBuffer buffer) {
  if (buffer.room_ == 0) return;
  bytes_ += buffer.room_;
  spare_.push_front(std::move(buffer));
  while (bytes_ > most_bytes_) {
    bytes_ -= spare_.back().room_;
    spare_.pop_back();
  }
}

}  // namespace temper::worker
