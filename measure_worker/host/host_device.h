// What devices share whose kernels run in this process: memory that catches who leaves it, arrays as a package holds
// them, copies.
#pragma once

#include "compiler/runtime/kernel_abi.h"
#include "measure_worker/device.h"
#include "measure_worker/host/guarded_buffer.h"

namespace temper::worker {

class HostDevice : public Device {
 public:
  int64_t memory_bytes() const override;  // MemoryLimit()
  absl::StatusOr<std::unique_ptr<Block>> AllocateGuarded(std::span<const int64_t> bytes) override;
  absl::StatusOr<std::unique_ptr<Block>> AllocatePacked(std::span<const int64_t> bytes, const Block* behind) override;
  absl::StatusOr<std::unique_ptr<Block>> AllocateStandIns(std::span<const int64_t> bytes) override;
  bool shares_stand_ins() const override { return true; }
  void Trim() override;
  absl::Status Copy(std::span<const Move> moves) override;

 protected:
  // `launcher`: whose threads write what is guarded and what is copied, and so are the first to touch it; null: the
  // caller. It must live until the next SetLauncher.
  void SetLauncher(temper_launcher* launcher) { launcher_ = launcher; }

 private:
  class GuardedBlock;
  class PackedBlock;
  class StandInBlock;
  struct Piece;
  void ForEachPiece(int64_t pieces, temper_body body, void* closure) const;

  temper_launcher* launcher_ = nullptr;
  std::shared_ptr<const GuardedBuffer> stand_ins_;  // null: none were asked for
  SpareBuffers spare_{192 << 20};                   // candidates come and go, and their memory is about the same
};

}  // namespace temper::worker
