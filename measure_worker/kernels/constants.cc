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

bool MayBeStoodInFor(const Workload::Operand& input) { return input.constant && IsFloat(input.type.dtype); }

// In `places` of the rotation.
absl::Status ProvideStandIns(const WorkloadState& state, const Code& main, int64_t places, PackedConstants& made) {
  const Workload& w = state.workload;
  std::vector<int64_t> sizes;
  for (int64_t place = 0; place < places; ++place) {
    for (size_t i = 0; i < w.inputs.size(); ++i) {
      if (MayBeStoodInFor(w.inputs[i])) sizes.push_back(main.parameter_bytes[i]);
    }
  }
  made.in_call = sizes.size() / static_cast<size_t>(places);
  TEMPER_ASSIGN_OR_RETURN(made.stand_ins, state.device->AllocateStandIns(sizes));
  size_t array = 0;
  for (int64_t place = 0; place < places; ++place) {
    Arguments& args = made.timed.emplace_back(made.real);
    for (size_t i = 0; i < w.inputs.size(); ++i) {
      if (MayBeStoodInFor(w.inputs[i])) args[i] = made.stand_ins->address(array++);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<PackedConstants>> MakeConstants(WorkloadState& state, const Code& main,
                                                               std::vector<std::shared_ptr<const Code>> packs,
                                                               const CachePlan& cache) {
  const Workload& w = state.workload;
  auto made = std::make_shared<PackedConstants>();
  made->packed.resize(w.inputs.size());
  made->first.resize(w.inputs.size());
  made->real.resize(w.inputs.size());
  for (size_t i = 0; i < w.inputs.size(); ++i) {
    if (!w.inputs[i].constant) continue;
    made->first[i] = state.operands[i]->address(0);
    if (packs[i] != nullptr) {
      TEMPER_ASSIGN_OR_RETURN(made->packed[i], Pack(state, *packs[i], i));
      made->first[i] = made->real[i] = made->packed[i]->address(0);
      made->packed_bytes += made->packed[i]->bytes(0);
    }
    if (MayBeStoodInFor(w.inputs[i])) made->call_bytes += RoomOf(main.parameter_bytes[i]);
  }
  made->packs = std::move(packs);
  made->cache = cache;
  const int64_t places = CountCopies(cache, made->call_bytes);
  if (places > 1) {
    TEMPER_RETURN_IF_ERROR(ProvideStandIns(state, main, places, *made));
  } else {
    made->timed = {made->real};
  }
  return made;
}

}  // namespace

size_t PackedConstants::Next(const Device& device) const {
  if (stand_ins == nullptr) return 0;
  return static_cast<size_t>((device.stand_ins_read + call_bytes - 1) / call_bytes) % timed.size();
}

void PackedConstants::SetNext(Device& device, size_t next) const {
  if (stand_ins != nullptr) device.stand_ins_read = static_cast<int64_t>(next) * call_bytes;
}

void PackedConstants::Fetch(Device& device) const {
  if (stand_ins == nullptr) {
    if (packed_bytes > cache.shared_bytes) return;
    for (const std::unique_ptr<Block>& block : packed) {
      if (block != nullptr) device.Fetch(*block, 0);
    }
  } else if (std::ssize(timed) * call_bytes <= cache.shared_bytes) {
    const size_t first = Next(device) * in_call, all = stand_ins->arrays();
    for (size_t i = 0; i < all; ++i) device.Fetch(*stand_ins, (first + i) % all);
  }
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
    bytes += (*it)->packed_bytes;
    if ((*it)->stand_ins != nullptr && !state.device->shares_stand_ins())
      bytes += std::ssize((*it)->timed) * (*it)->call_bytes;
    it = it != kept.begin() && bytes > kMostPackedBytes ? kept.erase(it) : std::next(it);
  }
  return kept.front();
}

}  // namespace temper::worker
