#include "measure_worker/host/guarded_buffer.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/division.h"

namespace temper::worker {
namespace {

constexpr int64_t kHugePage = 2 << 20;
constexpr uint8_t kSlackByte = 0x5a;

}  // namespace

absl::StatusOr<GuardedBuffer> GuardedBuffer::Make(int64_t bytes) {
  const int64_t page = sysconf(_SC_PAGESIZE);
  const int64_t used = RoomOf(bytes);
  const int64_t middle = RoundUp(used, page);
  // Room to begin large buffers at a huge page, as the runtime does.
  const int64_t extra = middle >= kHugePage ? kHugePage : 0;
  GuardedBuffer b;
  b.mapped_ = static_cast<size_t>(middle + 2 * page + extra);
  void* base = mmap(nullptr, b.mapped_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED)
    return absl::ResourceExhaustedError(absl::StrCat("no memory for ", bytes, " bytes: ", strerror(errno)));
  b.base_ = static_cast<char*>(base);
  char* begin = b.base_ + page;
  if (extra > 0) begin = reinterpret_cast<char*>(RoundUp(reinterpret_cast<int64_t>(begin), kHugePage));
  if (middle > 0 && mprotect(begin, static_cast<size_t>(middle), PROT_READ | PROT_WRITE) != 0) {
    return absl::ResourceExhaustedError(absl::StrCat("no memory for ", bytes, " bytes: ", strerror(errno)));
  }
  if (extra > 0) madvise(begin, static_cast<size_t>(middle), MADV_HUGEPAGE);
  b.begin_ = begin;
  b.room_ = middle;
  b.Place(bytes);
  return b;
}

void GuardedBuffer::Place(int64_t bytes) {
  const int64_t used = RoomOf(bytes);
  data_ = begin_ + room_ - used;
  bytes_ = bytes;
  slack_ = used - bytes;
  MarkSlack();
}

void GuardedBuffer::MarkSlack() { std::memset(data_ + bytes_, kSlackByte, static_cast<size_t>(slack_)); }

bool GuardedBuffer::Holds(int64_t bytes) const {
  const int64_t needed = RoundUp(bytes, sysconf(_SC_PAGESIZE));
  // What lies on huge pages is read faster.
  return needed <= room_ && room_ <= 2 * needed && (needed >= kHugePage) == (room_ >= kHugePage);
}

absl::Status GuardedBuffer::Refit(int64_t bytes) {
  const int64_t needed = RoundUp(bytes, sysconf(_SC_PAGESIZE)), before = room_ - needed;
  const auto protect = [](char* from, int64_t size, int how) {
    return size == 0 || mprotect(from, static_cast<size_t>(size), how) == 0;
  };
  if (!protect(begin_, before, PROT_NONE) || !protect(begin_ + before, needed, PROT_READ | PROT_WRITE))
    return absl::ResourceExhaustedError(absl::StrCat("cannot guard ", bytes, " bytes: ", strerror(errno)));
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
  const int64_t page = sysconf(_SC_PAGESIZE);
  const int64_t used = RoomOf(bytes_);
  char* begin = data_ + used - RoundUp(used, page);
  if (mprotect(begin, static_cast<size_t>(RoundUp(used, page)), PROT_READ) == 0) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("cannot protect ", bytes_, " bytes: ", strerror(errno)));
}

absl::Status GuardedBuffer::CheckSlack() const {
  for (int64_t i = 0; i < slack_; ++i) {
    if (static_cast<uint8_t>(data_[bytes_ + i]) != kSlackByte)
      return absl::DataLossError("bytes after its end were written");
  }
  return absl::OkStatus();
}

absl::StatusOr<Arena> Arena::Make(int64_t bytes) {
  Arena arena;
  TEMPER_ASSIGN_OR_RETURN(arena.memory_, GuardedBuffer::Make(RoundUp(bytes, kHugePage)));
  return arena;
}

absl::StatusOr<Arena> Arena::MakeBehind(const Arena& other, int64_t bytes) {
  const int64_t before = other.used_ % kHugePage;
  TEMPER_ASSIGN_OR_RETURN(Arena arena, Make(bytes > 0 ? before + bytes : 0));
  arena.used_ = before;
  return arena;
}

char* Arena::Place(int64_t bytes) {
  char* place = memory_.data() + used_;
  used_ += RoomOf(bytes);
  return place;
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

void SpareBuffers::Clear() {
  spare_.clear();
  bytes_ = 0;
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
