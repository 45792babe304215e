#include "measure_worker/kernels/constants.h"

#include <algorithm>

#include "measure_worker/kernels/workload_state.h"

namespace temper::worker {
namespace {

constexpr int64_t kMostPackedBytes = 256 << 20;  // of all layouts that are kept, the latest apart
constexpr uint8_t kPoison = 0xff;                // NaN in every float

std::vector<std::shared_ptr<const Code>> PacksByInput(const Workload& w, const LoadedKernel& kernel) {
  std::vector<std::shared_ptr<const Code>> packs(w.inputs.size());
  for (size_t i = 0; i < std::min(packs.size(), kernel.packs.size()); ++i) {
    if (w.inputs[i].constant) packs[i] = kernel.packs[i];
  }
  return packs;
}

// By way of the host's memory.
absl::StatusOr<std::unique_ptr<Block>> CopyTo(Device& device, const Block& from) {
  TEMPER_ASSIGN_OR_RETURN(std::unique_ptr<Block> to, device.AllocateGuarded({{from.bytes(0)}}));
  TEMPER_ASSIGN_OR_RETURN(const void* data, from.Read(0));
  TEMPER_RETURN_IF_ERROR(to->Write(0, data));
  return to;
}

absl::StatusOr<std::unique_ptr<Block>> Pack(WorkloadState& state, const Code& pack, size_t input) {
  Device& packer = state.device->packer();
  const bool elsewhere = &packer != state.device;
  std::unique_ptr<Block> brought;
  if (elsewhere) {
    TEMPER_ASSIGN_OR_RETURN(brought, CopyTo(packer, *state.operands[input]));
  }
  TEMPER_ASSIGN_OR_RETURN(std::unique_ptr<Block> packed, packer.AllocateGuarded({{pack.parameter_bytes.back()}}));
  TEMPER_RETURN_IF_ERROR(packed->Fill(kPoison));
  TEMPER_ASSIGN_OR_RETURN(const std::unique_ptr<Block> scratch, packer.AllocateGuarded({{pack.scratch_bytes}}));
  const Block& from = elsewhere ? *brought : *state.operands[input];
  TEMPER_RETURN_IF_ERROR(packer.Launch(pack, {from.address(0), packed->address(0)}, scratch->address(0)).status());
  TEMPER_RETURN_IF_ERROR(state.CheckOperand(input));
  TEMPER_RETURN_IF_ERROR(packed->CheckEdges());
  if (elsewhere) {
    TEMPER_ASSIGN_OR_RETURN(packed, CopyTo(*state.device, *packed));
  }
  TEMPER_RETURN_IF_ERROR(packed->MakeReadOnly());
  return packed;
}

// `copies` of all constants, each as `made` has it by now.
absl::Status Replicate(const WorkloadState& state, const Code& main, int64_t copies, PackedConstants& made) {
  const Workload& w = state.workload;
  std::vector<int64_t> sizes;
  for (int64_t c = 0; c < copies; ++c) {
    for (size_t i = 0; i < w.inputs.size(); ++i) {
      if (w.inputs[i].constant) sizes.push_back(main.parameter_bytes[i]);
    }
  }
  made.in_copy = sizes.size() / static_cast<size_t>(copies);
  TEMPER_ASSIGN_OR_RETURN(made.copies, state.device->AllocateGuarded(sizes));
  std::vector<Device::Move> moves;
  for (int64_t c = 0; c < copies; ++c) {
    Arguments& args = made.args.emplace_back(w.inputs.size());
    for (size_t i = 0; i < w.inputs.size(); ++i) {
      if (!w.inputs[i].constant) continue;
      const Block& from = made.packed[i] != nullptr ? *made.packed[i] : *state.operands[i];
      args[i] = made.copies->address(moves.size());
      made.bytes += RoomOf(sizes[moves.size()]);
      moves.push_back({&from, 0, made.copies.get(), moves.size()});
    }
  }
  TEMPER_RETURN_IF_ERROR(state.device->Copy(moves));
  return made.copies->MakeReadOnly();
}

absl::StatusOr<std::shared_ptr<PackedConstants>> MakeConstants(WorkloadState& state, const Code& main,
                                                               std::vector<std::shared_ptr<const Code>> packs,
                                                               const CachePlan& cache) {
  const Workload& w = state.workload;
  auto made = std::make_shared<PackedConstants>();
  made->packed.resize(w.inputs.size());
  made->first.resize(w.inputs.size());
  Arguments packed(w.inputs.size());
  int64_t constant_bytes = 0;
  for (size_t i = 0; i < w.inputs.size(); ++i) {
    if (!w.inputs[i].constant) continue;
    made->first[i] = state.operands[i]->address(0);
    if (packs[i] != nullptr) {
      TEMPER_ASSIGN_OR_RETURN(made->packed[i], Pack(state, *packs[i], i));
      made->first[i] = packed[i] = made->packed[i]->address(0);
      made->bytes += made->packed[i]->bytes(0);
    }
    constant_bytes += RoomOf(main.parameter_bytes[i]);
  }
  made->packs = std::move(packs);
  made->cache = cache;
  const int64_t copies = CountCopies(cache, constant_bytes);
  if (copies == 1) {
    made->args = {packed};
  } else {
    TEMPER_RETURN_IF_ERROR(Replicate(state, main, copies, *made));
  }
  return made;
}

}  // namespace

void PackedConstants::Fetch(Device& device) const {
  if (bytes > cache.shared_bytes) return;
  if (copies == nullptr) {
    for (const std::unique_ptr<Block>& block : packed) {
      if (block != nullptr) device.Fetch(*block, 0);
    }
    return;
  }
  for (size_t i = 0; i < copies->arrays(); ++i) device.Fetch(*copies, (next * in_copy + i) % copies->arrays());
}

absl::StatusOr<std::shared_ptr<PackedConstants>> FindConstants(WorkloadState& state, const LoadedKernel& kernel,
                                                               const CachePlan& cache) {
  auto& kept = state.constants;
  const auto packs = PacksByInput(state.workload, kernel);
  const auto known =
      std::find_if(kept.begin(), kept.end(), [&](const auto& c) { return c->packs == packs && c->cache == cache; });
  if (known != kept.end()) {
    kept.splice(kept.begin(), kept, known);
    return kept.front();
  }
  TEMPER_ASSIGN_OR_RETURN(auto made, MakeConstants(state, *kernel.main, packs, cache));
  kept.push_front(std::move(made));
  int64_t bytes = 0;
  for (auto it = kept.begin(); it != kept.end();) {
    bytes += (*it)->bytes;
    it = it != kept.begin() && bytes > kMostPackedBytes ? kept.erase(it) : std::next(it);
  }
  return kept.front();
}

}  // namespace temper::worker
