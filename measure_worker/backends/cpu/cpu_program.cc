#include "measure_worker/backends/cpu/cpu_program.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "compiler/package/weights.h"
#include "compiler/runtime/timing.h"
#include "measure_worker/backends/cpu/compare.h"
#include "measure_worker/backends/cpu/inputs.h"
#include "measure_worker/backends/cpu/memory.h"

namespace temper::worker {
namespace {

constexpr int64_t kMaxRotatedBytes = 64 << 20;
constexpr int64_t kMaxCopies = 512;
constexpr int64_t kMostPackedBytes = 256 << 20;  // of all layouts that are kept, the latest apart
constexpr int64_t kWrittenAtOnce = 256 << 10;    // by one thread
constexpr int64_t kKeptOnce = 8 << 20;           // a constant this large: it can not be written, so that one will do
constexpr uint8_t kPoison = 0xff;                // NaN in every float
constexpr uint8_t kIntPoison = 0xa5;             // for integers, where all bits set is -1 and may be right

class CpuProgram : public Program {
 public:
  CpuProgram(LoadedKernel code, std::shared_ptr<WorkloadState> state, CachePlan cache,
             std::shared_ptr<temper_pool> pool)
      : code_(std::move(code)),
        state_(std::move(state)),
        cache_(cache),
        pool_(std::move(pool)),
        launcher_(temper_pool_launcher(pool_.get())) {}

  absl::StatusOr<double> Verify() override {
    if (args_.empty()) TEMPER_RETURN_IF_ERROR(SetUp());
    const int64_t scratch = code_.main->WorkspaceBytes(launcher_->threads);
    TEMPER_ASSIGN_OR_RETURN(GuardedBuffer workspace, state_->spare->Take(scratch));
    state_->output.Fill(IsFloat(state_->reference.dtype()) ? kPoison : kIntPoison);
    workspace.Fill(kPoison);
    temper_pool_settle_caller(pool_.get());
    const int64_t start = MonotonicNs();
    code_.main->Call(checked_args_.data(), workspace.data(), launcher_);
    const int64_t ns = MonotonicNs() - start;
    if (absl::Status status = workspace.CheckSlack(); !status.ok()) {
      return absl::DataLossError(absl::StrCat("scratch: ", status.message()));
    }
    state_->spare->Give(std::move(workspace));
    if (absl::Status status = state_->output.CheckSlack(); !status.ok()) {
      return absl::DataLossError(absl::StrCat("output: ", status.message()));
    }
    TEMPER_RETURN_IF_ERROR(CheckOutput(state_->output.data(), state_->reference));
    TEMPER_RETURN_IF_ERROR(CheckOperands());
    return Seconds(ns);
  }

  double Time(int64_t calls) override {
    temper_pool_settle_caller(pool_.get());
    if (cache_.policy == CachePlan::Policy::kFlushed) return TimeFlushed(calls);
    if (state_->latest_constants != constants_.get()) ReadCopies();
    const int64_t start = MonotonicNs();
    for (int64_t i = 0; i < calls; ++i) {
      Call(constants_->next);
      if (++constants_->next == args_.size()) constants_->next = 0;
    }
    return Seconds(MonotonicNs() - start);
  }

  absl::Status CheckAfterwards() override {
    TEMPER_RETURN_IF_ERROR(CheckOperands());
    return state_->last_writer == this ? CheckOutput(state_->timed_output, state_->reference) : absl::OkStatus();
  }

 private:
  static double Seconds(int64_t ns) { return static_cast<double>(std::max<int64_t>(ns, 1)) * 1e-9; }

  void Call(size_t copy) {
    code_.main->Call(args_[copy].data(), state_->timed_scratch, launcher_);
    state_->last_writer = this;
    state_->latest_constants = constants_.get();
  }

  // Copies that other candidates' have pushed out of L3 since they were last read come back to it, the next one first;
  // else a candidate's time would depend on who came before it. Those that L3 can not hold come from memory anyway.
  void ReadCopies() {
    if (constants_->bytes > cache_.shared_bytes) return;
    for (size_t c = 0; c < args_.size(); ++c) {
      const std::vector<void*>& copy = constants_->args[(constants_->next + c) % args_.size()];
      for (size_t i = 0; i < copy.size(); ++i) {
        if (copy[i] != nullptr) Read(copy[i], code_.main->ParameterBytes(i));
      }
    }
  }

  static void Read(const void* data, int64_t bytes) {
    const volatile char* lines = static_cast<const char*>(data);
    for (int64_t b = 0; b < bytes; b += 64) (void)lines[b];
  }

  double TimeFlushed(int64_t calls) {
    flush_.resize(static_cast<size_t>(cache_.flush_bytes));
    int64_t ns = 0;
    for (int64_t i = 0; i < calls; ++i) {
      for (size_t b = 0; b < flush_.size(); b += 64) ++flush_[b];
      const int64_t start = MonotonicNs();
      Call(0);
      ns += MonotonicNs() - start;
    }
    return Seconds(ns);
  }

  // Those that the kernel can reach: what was packed, it never saw.
  absl::Status CheckOperands() const {
    for (size_t i = 0; i < state_->operands.size(); ++i) {
      if (checked_args_[i] == state_->operands[i].data()) TEMPER_RETURN_IF_ERROR(state_->CheckOperand(i));
    }
    return absl::OkStatus();
  }

  // Constants are packed outside the clock.
  absl::Status SetUp() {
    TEMPER_ASSIGN_OR_RETURN(constants_, FindConstants());
    TEMPER_RETURN_IF_ERROR(state_->ProvideScratch(code_.main->WorkspaceBytes(launcher_->threads)));
    checked_args_ = constants_->first;
    for (size_t i = 0; i < checked_args_.size(); ++i) {
      if (checked_args_[i] == nullptr) checked_args_[i] = state_->operands[i].data();
    }
    checked_args_.push_back(state_->output.data());
    for (const std::vector<void*>& constants : constants_->args) {
      std::vector<void*>& args = args_.emplace_back(constants);
      for (size_t i = 0; i < args.size(); ++i) {
        if (args[i] == nullptr) args[i] = state_->timed_operands[i];
      }
      args.push_back(state_->timed_output);
    }
    return absl::OkStatus();
  }

  // Packing large constants takes longer than a call, and candidates agree on few layouts: the latest are kept.
  absl::StatusOr<std::shared_ptr<PackedConstants>> FindConstants() {
    auto& kept = state_->constants;
    const auto packs = PacksByInput();
    const auto known =
        std::find_if(kept.begin(), kept.end(), [&](const auto& c) { return c->packs == packs && c->cache == cache_; });
    if (known != kept.end()) {
      kept.splice(kept.begin(), kept, known);
      return kept.front();
    }
    TEMPER_ASSIGN_OR_RETURN(auto made, MakeConstants(packs));
    kept.push_front(std::move(made));
    int64_t bytes = 0;
    for (auto it = kept.begin(); it != kept.end();) {
      bytes += (*it)->bytes;
      it = it != kept.begin() && bytes > kMostPackedBytes ? kept.erase(it) : std::next(it);
    }
    return kept.front();
  }

  std::vector<std::shared_ptr<const Code>> PacksByInput() const {
    std::vector<std::shared_ptr<const Code>> packs(state_->workload.inputs.size());
    for (size_t i = 0; i < std::min(packs.size(), code_.packs.size()); ++i) {
      if (state_->workload.inputs[i].constant) packs[i] = code_.packs[i];
    }
    return packs;
  }

  absl::StatusOr<std::shared_ptr<PackedConstants>> MakeConstants(std::vector<std::shared_ptr<const Code>> packs) {
    const Workload& w = state_->workload;
    auto made = std::make_shared<PackedConstants>(state_->spare);
    std::vector<void*> packed(w.inputs.size());
    made->first.resize(w.inputs.size());
    int64_t constant_bytes = 0;
    for (size_t i = 0; i < w.inputs.size(); ++i) {
      if (!w.inputs[i].constant) continue;
      made->first[i] = state_->operands[i].data();
      if (packs[i] != nullptr) {
        TEMPER_RETURN_IF_ERROR(Pack(*packs[i], i, made->packed.emplace_back()));
        made->first[i] = packed[i] = made->packed.back().data();
        made->bytes += made->packed.back().bytes();
      }
      constant_bytes += Arena::Room(code_.main->ParameterBytes(i));
    }
    made->packs = std::move(packs);
    made->cache = cache_;
    const int64_t copies = CountCopies(cache_, constant_bytes);
    if (copies == 1) {
      made->args = {packed};
      return made;
    }
    TEMPER_ASSIGN_OR_RETURN(made->copies, state_->spare->Take(copies * constant_bytes));
    made->bytes += made->copies.bytes();
    char* at = made->copies.data();
    std::vector<Piece> pieces;
    for (int64_t c = 0; c < copies; ++c) {
      std::vector<void*>& args = made->args.emplace_back(w.inputs.size());
      for (size_t i = 0; i < w.inputs.size(); ++i) {
        if (!w.inputs[i].constant) continue;
        const int64_t bytes = code_.main->ParameterBytes(i);
        Cut(static_cast<const char*>(made->first[i]), at, bytes, pieces);
        args[i] = at;
        at += Arena::Room(bytes);
      }
    }
    CopyAll(pieces);
    TEMPER_RETURN_IF_ERROR(made->copies.MakeReadOnly());
    return made;
  }

  struct Piece {
    const char* from;
    char* to;
    int64_t bytes;
  };
  static void Cut(const char* from, char* to, int64_t bytes, std::vector<Piece>& pieces) {
    for (int64_t at = 0; at < bytes; at += kWrittenAtOnce) {
      pieces.push_back({from + at, to + at, std::min(kWrittenAtOnce, bytes - at)});
    }
  }
  void CopyAll(std::vector<Piece>& pieces) const {
    const auto copy = [](void* closure, int64_t begin, int64_t end, int32_t) {
      const Piece* p = static_cast<const Piece*>(closure);
      for (int64_t i = begin; i < end; ++i) std::memcpy(p[i].to, p[i].from, static_cast<size_t>(p[i].bytes));
    };
    launcher_->parallel_for(launcher_, static_cast<int64_t>(pieces.size()), copy, pieces.data());
  }

  void PoisonAll(GuardedBuffer& buffer) const {
    const auto poison = [](void* closure, int64_t begin, int64_t end, int32_t) {
      const auto& b = *static_cast<const GuardedBuffer*>(closure);
      const int64_t from = begin * kWrittenAtOnce, to = std::min(end * kWrittenAtOnce, b.bytes());
      std::memset(b.data() + from, kPoison, static_cast<size_t>(to - from));
    };
    launcher_->parallel_for(launcher_, (buffer.bytes() + kWrittenAtOnce - 1) / kWrittenAtOnce, poison, &buffer);
  }

  absl::Status Pack(const Code& pack, size_t input, GuardedBuffer& packed) {
    TEMPER_ASSIGN_OR_RETURN(packed, state_->spare->Take(pack.ParameterBytes(pack.parameters() - 1)));
    PoisonAll(packed);
    TEMPER_ASSIGN_OR_RETURN(GuardedBuffer workspace, GuardedBuffer::Make(pack.WorkspaceBytes(launcher_->threads)));
    void* args[] = {state_->operands[input].data(), packed.data()};
    pack.Call(args, workspace.data(), launcher_);
    TEMPER_RETURN_IF_ERROR(state_->CheckOperand(input));
    TEMPER_RETURN_IF_ERROR(packed.CheckSlack());
    return packed.MakeReadOnly();
  }

  LoadedKernel code_;
  std::shared_ptr<WorkloadState> state_;
  const CachePlan cache_;
  std::shared_ptr<temper_pool> pool_;
  temper_launcher* const launcher_;
  std::shared_ptr<PackedConstants> constants_;
  std::vector<void*> checked_args_;
  std::vector<std::vector<void*>> args_;  // by copy, where it is timed
  std::vector<char> flush_;
};

}  // namespace

absl::Status WorkloadState::CheckOperand(size_t i) const {
  if (inputs[i].data() == nullptr) return absl::OkStatus();  // read-only
  const size_t bytes = static_cast<size_t>(inputs[i].bytes());
  const auto same = [&](const char* data) { return bytes == 0 || std::memcmp(data, inputs[i].data(), bytes) == 0; };
  if (same(operands[i].data()) && same(timed_operands[i]) && operands[i].CheckSlack().ok()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("input ", i, " was written"));
}

absl::Status WorkloadState::ProvideScratch(int64_t bytes) {
  if (bytes <= scratch_bytes) return absl::OkStatus();
  TEMPER_ASSIGN_OR_RETURN(scratch_arena, Arena::MakeBehind(arena, bytes));
  timed_scratch = scratch_arena.Place(bytes);
  std::memset(timed_scratch, 0, static_cast<size_t>(bytes));
  this->bytes += bytes - scratch_bytes;
  scratch_bytes = bytes;
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<WorkloadState>> MakeWorkloadState(const Workload& w, uint64_t seed,
                                                                 std::shared_ptr<SpareBuffers> spare) {
  TEMPER_RETURN_IF_ERROR(CheckFits(w));
  auto state = std::make_shared<WorkloadState>();
  state->spare = spare != nullptr ? std::move(spare) : std::make_shared<SpareBuffers>(kMostSpareBytes);
  state->workload = w;
  std::vector<NDArray> logical = MakeInputs(w, seed);
  TEMPER_ASSIGN_OR_RETURN(const NDArray reference, RunReference(w, logical));
  state->reference = ToPhysical(reference, w.output().perm);
  int64_t in_arena = Arena::Room(state->reference.bytes());
  for (size_t i = 0; i < logical.size(); ++i) {
    NDArray& input = state->inputs.emplace_back(ToPhysical(logical[i], w.inputs[i].type.perm));
    logical[i] = NDArray();
    TEMPER_ASSIGN_OR_RETURN(GuardedBuffer operand, GuardedBuffer::Make(input.bytes()));
    if (input.bytes() > 0) std::memcpy(operand.data(), input.data(), static_cast<size_t>(input.bytes()));
    if (w.inputs[i].constant && input.bytes() >= kKeptOnce) {
      TEMPER_RETURN_IF_ERROR(operand.MakeReadOnly());
      state->bytes += input.bytes();
      input = NDArray();
    } else {
      state->bytes += 2 * input.bytes();
      in_arena += Arena::Room(input.bytes());
    }
    state->operands.push_back(std::move(operand));
  }
  TEMPER_ASSIGN_OR_RETURN(state->output, GuardedBuffer::Make(state->reference.bytes()));
  TEMPER_ASSIGN_OR_RETURN(state->arena, Arena::Make(in_arena));
  for (size_t i = 0; i < logical.size(); ++i) {
    const NDArray& input = state->inputs[i];
    const bool kept_once = input.data() == nullptr;
    state->timed_operands.push_back(kept_once ? state->operands[i].data() : state->arena.Place(input.bytes()));
    if (!kept_once) std::memcpy(state->timed_operands.back(), input.data(), static_cast<size_t>(input.bytes()));
  }
  state->timed_output = state->arena.Place(state->reference.bytes());
  state->bytes += 2 * state->reference.bytes() + state->arena.bytes();
  return state;
}

absl::StatusOr<CachePlan> MakeCachePlan(std::string_view policy, const CpuTarget& t) {
  CachePlan plan;
  if (policy == "model") {
    plan.rotated_bytes = std::min(kMaxRotatedBytes, 2 * t.l2_bytes * t.threads);
    plan.shared_bytes = t.l3_bytes;
  } else if (policy == "warm") {
    plan.policy = CachePlan::Policy::kWarm;
  } else if (policy == "flushed") {
    plan.policy = CachePlan::Policy::kFlushed;
    plan.flush_bytes = std::max(2 * t.l2_bytes * t.threads, t.l3_bytes + t.l3_bytes / 2);
  } else {
    return absl::InvalidArgumentError(
        absl::StrCat("no cache policy '", std::string(policy), "': model, warm or flushed"));
  }
  return plan;
}

int64_t CountCopies(const CachePlan& plan, int64_t constant_bytes) {
  if (plan.policy != CachePlan::Policy::kModel || constant_bytes == 0) return 1;
  if (constant_bytes >= plan.rotated_bytes) return 1;  // no core's cache keeps them from one call to the next
  return std::clamp<int64_t>((plan.rotated_bytes + constant_bytes - 1) / constant_bytes, 2, kMaxCopies);
}

absl::StatusOr<LoadedKernel> Load(const Kernel& kernel, const Target& t) {
  LoadedKernel loaded;
  TEMPER_ASSIGN_OR_RETURN(loaded.main, CompileOnce(kernel.main, t));
  for (const ir::Func& pack : kernel.packs) {
    loaded.packs.emplace_back();
    if (pack.params.empty()) continue;
    TEMPER_ASSIGN_OR_RETURN(loaded.packs.back(), CompileOnce(pack, t));
  }
  return loaded;
}

std::unique_ptr<Program> NewCpuProgram(LoadedKernel code, std::shared_ptr<WorkloadState> state, CachePlan cache,
                                       std::shared_ptr<temper_pool> pool) {
  return std::make_unique<CpuProgram>(std::move(code), std::move(state), cache, std::move(pool));
}

}  // namespace temper::worker
