// What short runs of a range do without: zeros that nobody meets, and steps.
#include <gmock/gmock.h>

#include <algorithm>
#include <vector>

#include "compiler/runtime/plan.h"
#include "include/temper/model.h"

namespace {

using ::testing::ElementsAre;

// Rows that are a range, copied from the input to the output by the only step.
class ShortRuns : public ::testing::Test {
 protected:
  static constexpr int64_t kRows = 3, kColumns = 2, kBytes = kRows * kColumns * 4;

  void SetUp() override {
    step_.kind = TEMPER_STEP_COPY;
    step_.args = args_;
    step_.num_args = 2;
    step_.bytes = kBytes;
    variant_.num_inputs = 2;
    variant_.inputs = inputs_;
    variant_.num_given = variant_.num_outputs = variant_.num_results = 1;
    variant_.outputs = &output_;
    variant_.num_sequences = 1;
    variant_.sequences = &sequence_;
    plan_.version = TEMPER_PLAN_VERSION;
    plan_.num_variants = 1;
    plan_.variants = &variant_;
    plan_.caller_alignment = 64;
    ASSERT_EQ(temper_model_create_from_plan(&plan_, "", 1, &model_), TEMPER_OK) << temper_model_error(nullptr);
  }
  void TearDown() override { temper_model_destroy(model_); }

  // The output, which holds zeros before, after a run of so many rows of the number.
  std::vector<float> Run(int64_t rows, float number) {
    // Not where kernels take it: an input of all rows is copied, too.
    alignas(64) float x[kRows * kColumns + 1];
    std::fill(std::begin(x), std::end(x), number);
    alignas(64) float y[kRows * kColumns] = {};
    const temper_tensor in = {x + 1, rows * kColumns * 4, 1, 2, {rows, kColumns}};
    temper_tensor out = {y, kBytes, 0, 0, {}};
    EXPECT_EQ(temper_model_run_shaped(model_, &in, &out), TEMPER_OK) << temper_model_error(model_);
    return {std::begin(y), std::end(y)};
  }

  const int64_t most_[2] = {kRows, kColumns}, least_[2] = {1, kColumns};
  const temper_extent extent_ = {0, 1};
  temper_io inputs_[2] = {{"x", 1, 2, most_, kBytes, least_, 1, &extent_, 0}, {"rows", 7, 0, nullptr, 8}};
  const temper_io output_ = {"y", 1, 2, most_, kBytes};
  const temper_arg args_[2] = {{TEMPER_ARG_INPUT, 0, 0, 0}, {TEMPER_ARG_OUTPUT, 0, 0, 0}};
  temper_step step_ = {};
  const temper_sequence sequence_ = {1, &step_};
  temper_variant variant_ = {};
  temper_plan plan_ = {};
  temper_model* model_ = nullptr;
};

TEST_F(ShortRuns, FindZerosBehindTheEnd) {
  Run(3, 5);
  EXPECT_THAT(Run(1, 7), ElementsAre(7, 7, 0, 0, 0, 0));
}

TEST_F(ShortRuns, LeaveWhatNobodyReadsAsItIs) {
  inputs_[0].unread = 1;
  Run(3, 5);
  EXPECT_THAT(Run(1, 7), ElementsAre(7, 7, 5, 5, 5, 5));
}

TEST_F(ShortRuns, LeaveOutAStepThatOnlyLongerOnesNeed) {
  step_.extent = 1;
  step_.least = 2;
  EXPECT_THAT(Run(2, 7), ElementsAre(7, 7, 7, 7, 0, 0));
  EXPECT_THAT(Run(1, 7), ElementsAre(0, 0, 0, 0, 0, 0));
}

}  // namespace
