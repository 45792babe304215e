#include "measure_worker/kernels/workload_state.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "compiler/ops/rounded_products.h"
#include "compiler/package/weights.h"
#include "measure_worker/compare.h"
#include "measure_worker/inputs.h"
#include "measure_worker/memory.h"

namespace temper::worker {
namespace {

constexpr int64_t kKeptOnce = 8 << 20;  // a constant this large: it can not be written, so that one will do

// In the order of the inputs that are kept twice, the output last.
absl::Status PlaceTimed(WorkloadState& state) {
  std::vector<int64_t> sizes;
  for (size_t i = 0; i < state.inputs.size(); ++i) {
    state.in_timed.push_back(sizes.size());
    if (!state.IsKeptOnce(i)) sizes.push_back(state.inputs[i].bytes());
  }
  sizes.push_back(state.reference.bytes());
  TEMPER_ASSIGN_OR_RETURN(state.timed, state.device->AllocatePacked(sizes, nullptr));
  for (size_t i = 0; i < state.inputs.size(); ++i) {
    if (state.IsKeptOnce(i)) continue;
    TEMPER_RETURN_IF_ERROR(state.timed->Write(state.in_timed[i], state.inputs[i].data()));
  }
  for (const int64_t size : sizes) state.bytes += size;
  return absl::OkStatus();
}

// Whether the call's result is off by what its operands are, and by no more.
bool RoundsNothing(const Workload& w, const Workload::Call& call) {
  const OpDef& op = *FindOp(call.op);
  const bool widens = op.types == OpTypes::kConverts && call.args[0] >= 0 && IsFloat(call.type.dtype) &&
                      Info(call.type.dtype).bits >= Info(w.TypeOf(call.args[0]).dtype).bits;
  return op.exact || op.steps || widens || op.types == OpTypes::kMoves;
}

// By value, whether whole numbers, integers or truth values are made of it: a small change may be a step of those.
// `at_once`: of itself, not of what is computed from it.
std::vector<bool> BecomeSteps(const Workload& w, bool at_once) {
  std::vector<bool> become(w.inputs.size() + w.calls.size(), false);
  for (size_t call = w.calls.size(); call-- > 0;) {
    const Workload::Call& c = w.calls[call];
    const bool hands_on = become[w.inputs.size() + call] && (!at_once || RoundsNothing(w, c));
    for (int arg : c.args) {
      if (arg < 0 || !IsFloat(w.TypeOf(arg).dtype)) continue;
      if (hands_on || FindOp(c.op)->steps || !IsFloat(c.type.dtype)) become[arg] = true;
    }
  }
  return become;
}

bool IsSum(const OpDef& op) { return op.terms != nullptr || op.pattern == OpPattern::kReduction; }

// By call, what its result may be off by, as RelativeError has it, before steps are made of it; 0 where none are. Sums
// are off by what their order makes, narrow floats by their roundings, and what becomes a step by those of the calls
// before it, some of which a kernel does at once.
std::vector<double> MayBeOff(const Workload& w) {
  constexpr double kRoundings = 8;
  const std::vector<bool> at_once = BecomeSteps(w, true), at_last = BecomeSteps(w, false);
  std::vector<double> off(w.calls.size(), 0);
  for (int call = 0; call < std::ssize(w.calls); ++call) {
    const Workload::Call& c = w.calls[call];
    const auto is_float = [&](int arg) { return arg >= 0 && IsFloat(w.TypeOf(arg).dtype); };
    if (!IsFloat(c.type.dtype) || RoundsNothing(w, c) || std::ranges::none_of(c.args, is_float)) continue;
    const DTypeInfo& type = Info(c.type.dtype);
    const size_t value = w.inputs.size() + call;
    if (at_last[value] && call == w.anchor && IsSum(*FindOp(c.op))) {
      off[call] = std::max(type.tolerance, RoundedTolerance(c.attrs));
    } else if (at_last[value] && type.bits <= 16) {
      off[call] = type.tolerance;
    } else if (at_once[value]) {
      off[call] = std::ldexp(kRoundings, -type.mantissa_bits);
    }
  }
  return off;
}

NDArray Shifted(const NDArray& made, double off) {
  if (off == 0) return made;
  const double by = off * LargestOf(made);
  NDArray shifted = made.Clone();
  for (int64_t i = 0, size = made.size(); i < size; ++i) shifted.Set(i, made.At(i) + by);
  return shifted;
}

// What comes of floats that are off by as much as they may be, either way. `values`: the inputs, and the results of the
// calls up to `first`, the first that is off; empty where no later call reads them.
absl::Status AddRange(WorkloadState& state, std::vector<NDArray> values, const std::vector<double>& off, int first) {
  const Workload& w = state.workload;
  Workload behind;  // the first call, of the same values
  for (const NDArray& value : values) behind.inputs.push_back({{value.dtype(), value.shape(), {}}});
  behind.calls.assign(w.calls.begin() + first + 1, w.calls.end());
  const NDArray result = values.back();
  state.least = state.reference.Clone(), state.most = state.reference.Clone();
  for (const double sign : {-1.0, 1.0}) {
    values.back() = Shifted(result, sign * off[first]);
    TEMPER_ASSIGN_OR_RETURN(const NDArray logical, RunReference(behind, values, [&](int call, NDArray& made) {
                              made = Shifted(made, sign * off[first + 1 + call]);
                            }));
    const NDArray shifted = ToPhysical(logical, w.output().perm);
    for (int64_t i = 0, size = shifted.size(); i < size; ++i) {
      state.least.Set(i, std::min(state.least.At(i), shifted.At(i)));
      state.most.Set(i, std::max(state.most.At(i), shifted.At(i)));
    }
  }
  state.bytes += state.least.bytes() + state.most.bytes();
  return absl::OkStatus();
}

// The reference, and where floats become steps the range around it.
absl::Status AddReference(WorkloadState& state, const std::vector<NDArray>& inputs) {
  const Workload& w = state.workload;
  const std::vector<double> off = MayBeOff(w);
  const auto first = std::ranges::find_if(off, [](double o) { return o > 0; }) - off.begin();
  const bool is_off = first < std::ssize(off);
  const std::vector<int> last_reader = LastReaders(w);
  std::vector<NDArray> values;  // that the calls behind the first one read
  if (is_off) values = inputs;
  TEMPER_ASSIGN_OR_RETURN(const NDArray reference, RunReference(w, inputs, [&](int call, NDArray& result) {
                            if (!is_off || call > first) return;
                            const bool is_read = call == first || last_reader[values.size()] > first;
                            values.push_back(is_read ? result : NDArray());
                          }));
  state.reference = ToPhysical(reference, w.output().perm);
  state.bytes += state.reference.bytes();
  return is_off ? AddRange(state, std::move(values), off, static_cast<int>(first)) : absl::OkStatus();
}

}  // namespace

absl::Status WorkloadState::ProvideScratch(int64_t wanted) {
  const int64_t held = scratch == nullptr ? 0 : scratch->bytes(0);
  if (wanted <= held) return absl::OkStatus();
  TEMPER_ASSIGN_OR_RETURN(scratch, device->AllocatePacked({{wanted}}, timed.get()));
  bytes += wanted - held;
  return scratch->Fill(0);
}

absl::Status WorkloadState::CheckOperand(size_t i) {
  if (IsKeptOnce(i)) return absl::OkStatus();  // CPUs can not write it
  const size_t size = static_cast<size_t>(inputs[i].bytes());
  const auto same = [&](const Block& block, size_t array) -> absl::StatusOr<bool> {
    TEMPER_ASSIGN_OR_RETURN(const void* data, block.Read(array));
    return size == 0 || std::memcmp(data, inputs[i].data(), size) == 0;
  };
  TEMPER_ASSIGN_OR_RETURN(const bool checked, same(*operands[i], 0));
  TEMPER_ASSIGN_OR_RETURN(const bool timed_too, same(*timed, in_timed[i]));
  if (checked && timed_too && operands[i]->CheckEdges().ok()) return absl::OkStatus();
  TEMPER_RETURN_IF_ERROR(operands[i]->Write(0, inputs[i].data()));
  TEMPER_RETURN_IF_ERROR(timed->Write(in_timed[i], inputs[i].data()));
  return absl::DataLossError(absl::StrCat("input ", i, " was written"));
}

absl::Status WorkloadState::CheckAnswer(const Block& block, size_t array, double tolerance) const {
  TEMPER_ASSIGN_OR_RETURN(const void* got, block.Read(array));
  const absl::Status status = CheckOutput(got, reference, tolerance);
  if (status.ok() || least.data() == nullptr) return status;
  return IsBetween(got, reference, least, most, tolerance) ? absl::OkStatus() : status;
}

absl::StatusOr<std::shared_ptr<WorkloadState>> MakeWorkloadState(Device& device, const Workload& w, uint64_t seed) {
  TEMPER_RETURN_IF_ERROR(CheckFits(w, device.memory_bytes()));
  auto state = std::make_shared<WorkloadState>();
  state->device = &device;
  state->workload = w;
  std::vector<NDArray> logical = MakeInputs(w, seed);
  TEMPER_RETURN_IF_ERROR(AddReference(*state, logical));
  for (size_t i = 0; i < logical.size(); ++i) {
    NDArray& input = state->inputs.emplace_back(ToPhysical(logical[i], w.inputs[i].type.perm));
    logical[i] = NDArray();
    TEMPER_ASSIGN_OR_RETURN(std::unique_ptr<Block> operand, device.AllocateGuarded({{input.bytes()}}));
    TEMPER_RETURN_IF_ERROR(operand->Write(0, input.data()));
    state->bytes += input.bytes();
    if (w.inputs[i].constant && input.bytes() >= kKeptOnce) {
      TEMPER_RETURN_IF_ERROR(operand->MakeReadOnly());
      input = NDArray();
    } else {
      state->bytes += input.bytes();
    }
    state->operands.push_back(std::move(operand));
  }
  TEMPER_ASSIGN_OR_RETURN(state->output, device.AllocateGuarded({{state->reference.bytes()}}));
  state->bytes += state->reference.bytes();
  TEMPER_RETURN_IF_ERROR(PlaceTimed(*state));
  return state;
}

}  // namespace temper::worker
