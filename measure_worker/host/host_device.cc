#include "measure_worker/host/host_device.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "measure_worker/memory.h"

namespace temper::worker {
namespace {

constexpr int64_t kWrittenAtOnce = 256 << 10;  // by one thread

int64_t RoomOfAll(std::span<const int64_t> arrays) {
  return std::accumulate(arrays.begin(), arrays.end(), int64_t{0},
                         [](int64_t sum, int64_t bytes) { return sum + RoomOf(bytes); });
}

// Arrays at addresses of this process.
class HostBlock : public Block {
 public:
  size_t arrays() const override { return bytes_.size(); }
  int64_t bytes(size_t array) const override { return bytes_[array]; }
  void* address(size_t array) const override { return at_[array]; }
  absl::Status Write(size_t array, const void* data) override {
    if (bytes_[array] > 0) std::memcpy(at_[array], data, static_cast<size_t>(bytes_[array]));
    return absl::OkStatus();
  }
  absl::StatusOr<const void*> Read(size_t array) const override { return at_[array]; }

 protected:
  void Add(char* at, int64_t bytes) {
    at_.push_back(at);
    bytes_.push_back(bytes);
  }

 private:
  std::vector<char*> at_;
  std::vector<int64_t> bytes_;
};

}  // namespace

class HostDevice::GuardedBlock : public HostBlock {
 public:
  GuardedBlock(HostDevice& device, GuardedBuffer buffer, std::span<const int64_t> arrays)
      : device_(device), buffer_(std::move(buffer)) {
    char* at = buffer_.data();
    for (const int64_t bytes : arrays) {
      Add(at, bytes);
      at += RoomOf(bytes);
    }
  }
  ~GuardedBlock() override { device_.spare_.Give(std::move(buffer_)); }

  absl::Status Fill(uint8_t byte) override {
    struct Order {
      const GuardedBuffer& buffer;
      uint8_t byte;
    } order{buffer_, byte};
    const auto fill = [](void* closure, int64_t begin, int64_t end, int32_t) {
      const Order& o = *static_cast<const Order*>(closure);
      const int64_t from = begin * kWrittenAtOnce, to = std::min(end * kWrittenAtOnce, o.buffer.bytes());
      if (to > from) std::memset(o.buffer.data() + from, o.byte, static_cast<size_t>(to - from));
    };
    device_.ForEachPiece((buffer_.bytes() + kWrittenAtOnce - 1) / kWrittenAtOnce, fill, &order);
    buffer_.MarkSlack();
    return absl::OkStatus();
  }
  absl::Status Write(size_t array, const void* data) override {
    buffer_.MarkSlack();
    return HostBlock::Write(array, data);
  }
  absl::Status MakeReadOnly() override { return buffer_.MakeReadOnly(); }
  absl::Status CheckEdges() const override { return buffer_.CheckSlack(); }

 private:
  HostDevice& device_;
  GuardedBuffer buffer_;
};

class HostDevice::PackedBlock : public HostBlock {
 public:
  PackedBlock(Arena arena, std::span<const int64_t> arrays) : arena_(std::move(arena)) {
    for (const int64_t bytes : arrays) Add(arena_.Place(bytes), bytes);
  }
  absl::Status Fill(uint8_t byte) override {
    for (size_t i = 0; i < arrays(); ++i) {
      if (bytes(i) > 0) std::memset(address(i), byte, static_cast<size_t>(bytes(i)));
    }
    return absl::OkStatus();
  }
  absl::Status MakeReadOnly() override { return absl::OkStatus(); }
  absl::Status CheckEdges() const override { return absl::OkStatus(); }
  const Arena& arena() const { return arena_; }

 private:
  Arena arena_;
};

class HostDevice::StandInBlock : public HostBlock {
 public:
  StandInBlock(std::shared_ptr<const GuardedBuffer> memory, std::span<const int64_t> arrays)
      : memory_(std::move(memory)) {
    char* at = memory_->data();
    for (const int64_t bytes : arrays) {
      Add(at, bytes);
      at += RoomOf(bytes);
    }
  }
  absl::Status Fill(uint8_t) override { return absl::FailedPreconditionError("stand-ins are read-only"); }
  absl::Status Write(size_t, const void*) override { return Fill(0); }
  absl::Status MakeReadOnly() override { return absl::OkStatus(); }
  absl::Status CheckEdges() const override { return absl::OkStatus(); }

 private:
  const std::shared_ptr<const GuardedBuffer> memory_;
};

struct HostDevice::Piece {
  const char* from;
  char* to;
  int64_t bytes;
};

int64_t HostDevice::memory_bytes() const { return MemoryLimit(); }

absl::StatusOr<std::unique_ptr<Block>> HostDevice::AllocateGuarded(std::span<const int64_t> bytes) {
  // Of one array, the end is watched to the byte.
  TEMPER_ASSIGN_OR_RETURN(GuardedBuffer buffer, spare_.Take(bytes.size() == 1 ? bytes[0] : RoomOfAll(bytes)));
  return std::make_unique<GuardedBlock>(*this, std::move(buffer), bytes);
}

absl::StatusOr<std::unique_ptr<Block>> HostDevice::AllocatePacked(std::span<const int64_t> bytes, const Block* behind) {
  const int64_t all = RoomOfAll(bytes);
  TEMPER_ASSIGN_OR_RETURN(Arena arena, behind == nullptr
                                           ? Arena::Make(all)
                                           : Arena::MakeBehind(static_cast<const PackedBlock*>(behind)->arena(), all));
  return std::make_unique<PackedBlock>(std::move(arena), bytes);
}

absl::StatusOr<std::unique_ptr<Block>> HostDevice::AllocateStandIns(std::span<const int64_t> bytes) {
  const int64_t all = RoomOfAll(bytes);
  if (stand_ins_ == nullptr || stand_ins_->bytes() < all) {
    stand_ins_.reset();
    TEMPER_ASSIGN_OR_RETURN(GuardedBuffer made, GuardedBuffer::Make(all));
    FillWithSmallNumbers({made.data(), static_cast<size_t>(all)});
    TEMPER_RETURN_IF_ERROR(made.MakeReadOnly());
    stand_ins_ = std::make_shared<GuardedBuffer>(std::move(made));
  }
  return std::make_unique<StandInBlock>(stand_ins_, bytes);
}

void HostDevice::Trim() {
  stand_ins_.reset();
  spare_.Clear();
}

absl::Status HostDevice::Copy(std::span<const Move> moves) {
  std::vector<Piece> pieces;
  for (const Move& m : moves) {
    const char* from = static_cast<const char*>(m.from->address(m.from_array));
    char* to = static_cast<char*>(m.to->address(m.to_array));
    const int64_t bytes = m.to->bytes(m.to_array);
    for (int64_t at = 0; at < bytes; at += kWrittenAtOnce)
      pieces.push_back({from + at, to + at, std::min(kWrittenAtOnce, bytes - at)});
  }
  const auto copy = [](void* closure, int64_t begin, int64_t end, int32_t) {
    const Piece* p = static_cast<const Piece*>(closure);
    for (int64_t i = begin; i < end; ++i) std::memcpy(p[i].to, p[i].from, static_cast<size_t>(p[i].bytes));
  };
  ForEachPiece(static_cast<int64_t>(pieces.size()), copy, pieces.data());
  return absl::OkStatus();
}

void HostDevice::ForEachPiece(int64_t pieces, temper_body body, void* closure) const {
  if (launcher_ == nullptr || pieces <= 1) {
    body(closure, 0, pieces, 0);
  } else {
    launcher_->parallel_for(launcher_, pieces, body, closure);
  }
}

}  // namespace temper::worker
