#include "measure_worker/kernels/workload_state.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
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

// Whether a call makes whole numbers, integers or truth values of the floats of `value`: a small change of them may be
// a whole step of what it makes.
bool MakesStepsOf(const Workload& w, const Workload::Call& call, int value) {
  return IsFloat(w.TypeOf(value).dtype) && (!IsFloat(call.type.dtype) || FindOp(call.op)->steps) &&
         std::ranges::find(call.args, value) != call.args.end();
}

// Whether steps are made of the call's result.
bool BecomesSteps(const Workload& w, int call) {
  const int value = static_cast<int>(w.inputs.size()) + call;
  return std::ranges::any_of(w.calls, [&](const Workload::Call& c) { return MakesStepsOf(w, c, value); });
}

bool MakesStepsBehindAnchor(const Workload& w) {
  for (int call = w.anchor; call < static_cast<int>(w.calls.size()); ++call) {
    if (BecomesSteps(w, call)) return true;
  }
  return false;
}

// The first call whose result may be off by what makes a step of it; -1 if no element can be a step off.
int FirstOff(const Workload& w) {
  for (int call = 0; call < w.anchor; ++call) {
    if (BecomesSteps(w, call)) return call;
  }
  return MakesStepsBehindAnchor(w) ? w.anchor : -1;
}

bool IsSum(const OpDef& op) { return op.terms != nullptr || op.pattern == OpPattern::kReduction; }

// `made` by the call, with what it may be off by added, or taken away. Sums are off by what their order makes, and what
// becomes a step by the roundings of the calls before it, some of which a kernel does at once. Whole numbers of those
// are exact: they were cut to a bound, or are steps already.
NDArray Shifted(const Workload& w, int call, const NDArray& made, double sign) {
  constexpr double kOfSums = 1e-3, kOfRoundings = 1e-6;  // of the largest
  if (!IsFloat(made.dtype())) return made;
  const bool sums = call == w.anchor && IsSum(*FindOp(w.calls[call].op)) && MakesStepsBehindAnchor(w);
  if (!sums && !BecomesSteps(w, call)) return made;
  const double of_type = Info(made.dtype()).bits == 16 ? ErrorBound(made.dtype()) : 0;
  double largest = 0;
  for (int64_t i = 0; i < made.size(); ++i) {
    if (std::isfinite(made.At(i))) largest = std::max(largest, std::abs(made.At(i)));
  }
  const double off = sign * largest * std::max(of_type, sums ? kOfSums : kOfRoundings);
  NDArray shifted = made.Clone();
  for (int64_t i = 0; i < made.size(); ++i) {
    const double x = made.At(i);
    if (sums || x != std::floor(x)) shifted.Set(i, x + off);
  }
  return shifted;
}

// What comes of floats that are off by as much as they may be, either way. `values`: the inputs, and the results of the
// calls up to `first`, the first that is off.
absl::Status AddRange(WorkloadState& state, std::vector<NDArray> values, int first) {
  const Workload& w = state.workload;
  Workload behind;  // the first call, of the same values
  behind.inputs = w.inputs;
  for (int call = 0; call <= first; ++call) behind.inputs.push_back({w.calls[call].type});
  behind.calls.assign(w.calls.begin() + first + 1, w.calls.end());
  const NDArray result = values.back();
  state.least = state.reference.Clone(), state.most = state.reference.Clone();
  for (const double sign : {-1.0, 1.0}) {
    values.back() = Shifted(w, first, result, sign);
    TEMPER_ASSIGN_OR_RETURN(const NDArray logical, RunReference(behind, values, [&](int call, NDArray& made) {
                              made = Shifted(w, first + 1 + call, made, sign);
                            }));
    const NDArray shifted = ToPhysical(logical, w.output().perm);
    for (int64_t i = 0; i < shifted.size(); ++i) {
      state.least.Set(i, std::min(state.least.At(i), shifted.At(i)));
      state.most.Set(i, std::max(state.most.At(i), shifted.At(i)));
    }
  }
  return absl::OkStatus();
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
  if (IsKeptOnce(i)) return absl::OkStatus();  // read-only
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
  return IsBetween(got, least, most, tolerance) ? absl::OkStatus() : status;
}

absl::StatusOr<std::shared_ptr<WorkloadState>> MakeWorkloadState(Device& device, const Workload& w, uint64_t seed) {
  TEMPER_RETURN_IF_ERROR(CheckFits(w, device.memory_bytes()));
  auto state = std::make_shared<WorkloadState>();
  state->device = &device;
  state->workload = w;
  std::vector<NDArray> logical = MakeInputs(w, seed);
  std::vector<NDArray> values = logical;
  const int first_off = FirstOff(w);
  TEMPER_ASSIGN_OR_RETURN(const NDArray reference, RunReference(w, logical, [&](int call, NDArray& result) {
                            if (call <= first_off) values.push_back(result);
                          }));
  state->reference = ToPhysical(reference, w.output().perm);
  if (first_off >= 0) TEMPER_RETURN_IF_ERROR(AddRange(*state, std::move(values), first_off));
  values.clear();
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
  state->bytes += 2 * state->reference.bytes();
  TEMPER_RETURN_IF_ERROR(PlaceTimed(*state));
  return state;
}

}  // namespace temper::worker
