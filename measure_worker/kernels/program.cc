#include "measure_worker/kernels/program.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace temper::worker {
namespace {

constexpr uint8_t kFloatPoison = 0xff;  // NaN in every float
constexpr uint8_t kIntPoison = 0xa5;    // for integers, where all bits set is -1 and may be right

absl::Status CheckEdges(std::string_view whose, const Block& block) {
  const absl::Status status = block.CheckEdges();
  if (!absl::IsDataLoss(status)) return status;
  return absl::DataLossError(absl::StrCat(std::string(whose), ": ", status.message()));
}

class DeviceProgram : public Program {
 public:
  DeviceProgram(LoadedKernel code, std::shared_ptr<WorkloadState> state, const CachePlan& cache)
      : code_(std::move(code)), state_(std::move(state)), cache_(cache), device_(*state_->device) {}

  absl::StatusOr<double> Verify() override {
    if (args_.empty()) TEMPER_RETURN_IF_ERROR(SetUp());
    TEMPER_ASSIGN_OR_RETURN(const std::unique_ptr<Block> scratch,
                            device_.AllocateGuarded({{code_.main->scratch_bytes}}));
    TEMPER_RETURN_IF_ERROR(state_->output->Fill(IsFloat(state_->reference.dtype()) ? kFloatPoison : kIntPoison));
    TEMPER_RETURN_IF_ERROR(ForgetTimedAnswer());
    TEMPER_RETURN_IF_ERROR(scratch->Fill(kFloatPoison));
    TEMPER_ASSIGN_OR_RETURN(const double seconds, device_.Launch(*code_.main, checked_args_, scratch->address(0)));
    const absl::Status operands = CheckOperands();  // whatever else is wrong, the next candidate finds them whole
    TEMPER_RETURN_IF_ERROR(CheckEdges("scratch", *scratch));
    TEMPER_RETURN_IF_ERROR(CheckEdges("output", *state_->output));
    TEMPER_RETURN_IF_ERROR(state_->CheckAnswer(*state_->output, 0, code_.tolerance));
    TEMPER_RETURN_IF_ERROR(operands);
    return seconds;
  }

  double Time(int64_t calls) override {
    const absl::StatusOr<double> seconds = TimeUnderPolicy(calls);
    timed_.Update(seconds.status());
    return seconds.value_or(static_cast<double>(calls));  // long, so that nobody asks for many more
  }

  absl::Status CheckAfterwards() override {
    TEMPER_RETURN_IF_ERROR(std::exchange(timed_, absl::OkStatus()));
    const bool was_last = state_->last_writer == this;
    // Stand-ins gave no answer: once more, with the constants.
    if (was_last && constants_->stand_ins != nullptr)
      TEMPER_RETURN_IF_ERROR(device_.Launch(*code_.main, answering_args_, state_->timed_scratch()).status());
    TEMPER_RETURN_IF_ERROR(CheckOperands());
    if (!was_last) return absl::OkStatus();
    return state_->CheckAnswer(*state_->timed, state_->timed_output(), code_.tolerance);
  }

 private:
  absl::StatusOr<double> TimeUnderPolicy(int64_t calls) {
    state_->last_writer = this;
    if (cache_.policy == CachePlan::Policy::kFlushed) return TimeEach(calls, [&] { device_.Evict(); });
    if (state_->latest_constants != constants_.get()) constants_->Fetch(device_);
    state_->latest_constants = constants_.get();
    return cache_.handed_over ? TimeEach(calls, [&] { device_.HandOver(*state_->timed, handed_over_); })
                              : TimeInTurn(calls);
  }

  // Whoever was timed before left the right answer, which is not this one's.
  absl::Status ForgetTimedAnswer() {
    state_->last_writer = nullptr;
    TEMPER_ASSIGN_OR_RETURN(const void* poison, state_->output->Read(0));
    return state_->timed->Write(state_->timed_output(), poison);
  }

  absl::StatusOr<double> TimeInTurn(int64_t calls) {
    size_t next = constants_->Next(device_);
    const absl::StatusOr<double> seconds = device_.Time(*code_.main, args_, next, state_->timed_scratch(), calls);
    constants_->SetNext(device_, next);
    return seconds;
  }

  template <typename Before>
  absl::StatusOr<double> TimeEach(int64_t calls, const Before& before) {
    double seconds = 0;
    for (int64_t i = 0; i < calls; ++i) {
      before();
      TEMPER_ASSIGN_OR_RETURN(const double call_s, TimeInTurn(1));
      seconds += call_s;
    }
    return seconds;
  }

  // Those that the kernel can reach: what was packed, it never saw.
  absl::Status CheckOperands() {
    absl::Status first;
    for (size_t i = 0; i < state_->operands.size(); ++i) {
      if (checked_args_[i] == state_->operands[i]->address(0)) first.Update(state_->CheckOperand(i));
    }
    return first;
  }

  // Constants are packed outside the clock.
  absl::Status SetUp() {
    TEMPER_ASSIGN_OR_RETURN(constants_, FindConstants(*state_, code_, cache_));
    TEMPER_RETURN_IF_ERROR(state_->ProvideScratch(code_.main->scratch_bytes));
    checked_args_ = constants_->first;
    for (size_t i = 0; i < checked_args_.size(); ++i) {
      if (checked_args_[i] == nullptr) checked_args_[i] = state_->operands[i]->address(0);
    }
    checked_args_.push_back(state_->output->address(0));
    answering_args_ = WithTimed(constants_->real);
    for (const Arguments& constants : constants_->timed) args_.push_back(WithTimed(constants));
    for (size_t i = 0; i < state_->inputs.size(); ++i) {
      if (!state_->workload.inputs[i].constant) handed_over_.push_back(state_->in_timed[i]);
    }
    handed_over_.push_back(state_->timed_output());
    return absl::OkStatus();
  }

  // Whatever is no constant, and the output, where it is timed.
  Arguments WithTimed(Arguments args) const {
    for (size_t i = 0; i < args.size(); ++i) {
      if (args[i] == nullptr) args[i] = state_->TimedOperand(i);
    }
    args.push_back(state_->timed->address(state_->timed_output()));
    return args;
  }

  const LoadedKernel code_;
  const std::shared_ptr<WorkloadState> state_;
  const CachePlan cache_;
  Device& device_;
  absl::Status timed_;  // the first error since the latest check
  std::shared_ptr<PackedConstants> constants_;
  Arguments checked_args_;
  Arguments answering_args_;         // where it is timed, with the constants themselves
  std::vector<Arguments> args_;      // where it is timed, by place in the rotation
  std::vector<size_t> handed_over_;  // of the timed arrays, those that other kernels of a model write and read
};

}  // namespace

std::unique_ptr<Program> NewProgram(LoadedKernel code, std::shared_ptr<WorkloadState> state, const CachePlan& cache) {
  return std::make_unique<DeviceProgram>(std::move(code), std::move(state), cache);
}

}  // namespace temper::worker
