// A GPU that is lost in the measuring child, played by tests/driver/fake_cuda.h: whoever comes next finds another
// child.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "base/temporary_directory.h"
#include "measure_worker/sandbox/sandbox.h"

namespace temper::worker {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

SandboxLimits Simulated() {
  SandboxLimits limits;
  limits.simulated = true;
  return limits;
}

class LostDeviceTest : public testing::Test {
 protected:
  std::vector<std::string> Measure(const std::vector<std::string>& configs, const std::string& workload = "any") {
    BatchWork work;
    work.workload = workload;
    work.plan.race_factor = 0;
    for (const std::string& config : configs) work.candidates.push_back({.config = config});
    std::map<int, TrialResult> results;
    const absl::Status status = sandbox_.Run(work, CancelToken(), [&](int index, TrialResult result) {
      EXPECT_TRUE(results.emplace(index, std::move(result)).second) << "told twice: " << index;
    });
    EXPECT_TRUE(status.ok()) << status;
    std::vector<std::string> outcomes;
    for (const auto& [index, result] : results) {
      outcomes.emplace_back(Text(result.outcome));
      error_ = result.error;
    }
    return outcomes;
  }
  static ModelWork Model(const std::string& function) {
    return {.graph_json = std::make_shared<const std::string>("{}"), .target = function};
  }

  Sandbox sandbox_{{TEMPER_FAKE_GPU_CHILD}, Confinement{}, Simulated()};
  std::string error_;  // of the last candidate
};

TEST_F(LostDeviceTest, AModelWhoseKernelBreaksItIsToldOfAndTheNextBatchIsMeasured) {
  EXPECT_THAT(Measure({"add", "add"}), Each("ok"));
  const absl::StatusOr<ModelResult> model = sandbox_.Run(Model("leave_memory"), CancelToken());
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->outcome, Outcome::kRunCrashed);
  EXPECT_THAT(model->error, HasSubstr("a kernel left its memory"));
  EXPECT_EQ(sandbox_.child_pid(), 0) << "it left";
  EXPECT_THAT(Measure({"add", "add"}), Each("ok"));
  EXPECT_EQ(sandbox_.children_started(), 2);
}

TEST_F(LostDeviceTest, FinalistsThatBreakItAreToldOfAndTheNextModelFindsAnother) {
  FinalsWork finals{.model = Model("leave_memory"), .tasks = {{"any", {{.config = "a"}, {.config = "b"}}}}};
  std::vector<std::string> errors(2);
  ASSERT_TRUE(
      sandbox_
          .Run(finals, CancelToken(),
               [&](int index, const TrialResult& result) { errors.at(static_cast<size_t>(index)) = result.error; })
          .ok());
  EXPECT_THAT(errors, Each(HasSubstr("a kernel left its memory")));
  const absl::StatusOr<ModelResult> next = sandbox_.Run(Model("leave_memory"), CancelToken());
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_EQ(next->outcome, Outcome::kRunCrashed) << "of its own kernel, in a child of its own";
  EXPECT_EQ(sandbox_.children_started(), 2);
}

TEST_F(LostDeviceTest, AnErrorOfTheMemoryFailsNoBuild) {
  const TemporaryDirectory folder = TemporaryDirectory::Make().value();
  EXPECT_THAT(Measure({"add", "lose " + folder.path() + "/once", "add", "add"}), Each("ok"));
  EXPECT_EQ(sandbox_.children_started(), 2);
}

TEST_F(LostDeviceTest, ACandidateThatBreaksItIsBlamedAlone) {
  EXPECT_THAT(Measure({"add", "leave_memory", "add"}), ElementsAre("ok", "run_crashed", "ok"));
  EXPECT_EQ(sandbox_.children_started(), 2);
}

TEST_F(LostDeviceTest, WhereEachChildLosesItNobodyIsToBlame) {
  EXPECT_THAT(Measure({"add", "add"}, "lose"), Each("infrastructure"));
  EXPECT_THAT(error_, HasSubstr("the device is lost"));
  EXPECT_EQ(sandbox_.children_started(), 3);
}

}  // namespace
}  // namespace temper::worker
