// Packages written and loaded in this process, against the graph's own reference.
#include "compiler/package/package.h"

#include <unistd.h>

#include <filesystem>

#include "compiler/graph/pipeline.h"
#include "tests/graph/builder.h"

namespace temper {
namespace {

using testing::Builder;
using testing::RandomInputs;

class PackageTest : public ::testing::Test {
 protected:
  PackageTest() : dir_(::testing::TempDir() + "/temper_package_test_" + std::to_string(getpid())) {}
  void TearDown() override { std::filesystem::remove_all(dir_); }

  // Runs on each number of threads and compares; `kernels`, if set, is how many launches a run should take.
  void ExpectRight(Graph g, int kernels = 0) {
    const std::vector<NDArray> inputs = RandomInputs(g, 7);
    absl::StatusOr<std::vector<NDArray>> want = RunReference(g, inputs);
    ASSERT_TRUE(want.ok()) << want.status();
    ASSERT_TRUE(Optimize(g).ok());
    for (const char* name : {"host", "llvm:haswell", "llvm:nehalem"}) {
      Target target = *ParseTarget(name);
      if (!CheckRunsHere(target).ok()) continue;
      target.threads = 2;
      absl::StatusOr<PackageReport> report = WritePackage(g, target, ChooseDefault, dir_);
      ASSERT_TRUE(report.ok()) << report.status();
      if (kernels > 0) {
        EXPECT_EQ(report->kernels, kernels);
      }
      for (int threads : {1, 2, 3}) {
        absl::StatusOr<std::unique_ptr<LoadedPackage>> package = LoadPackage(dir_, threads);
        ASSERT_TRUE(package.ok()) << package.status();
        std::vector<const void*> from;
        for (const NDArray& a : inputs) from.push_back(a.data());
        std::vector<NDArray> got;
        std::vector<void*> to;
        for (const NDArray& a : *want) got.emplace_back(a.dtype(), a.shape());
        for (NDArray& a : got) to.push_back(a.MutableData());
        for (int run = 0; run < 2; ++run) ASSERT_TRUE((*package)->Run(from.data(), to.data()).ok());
        for (size_t i = 0; i < got.size(); ++i) {
          for (int64_t k = 0; k < got[i].size(); ++k)
            ASSERT_NEAR(got[i].At(k), (*want)[i].At(k), 1e-4) << name << ", " << threads << " threads, at " << k;
        }
      }
    }
  }

  std::string dir_;
};

TEST_F(PackageTest, EveryTemplateWritesItsPartOfAConcatenation) {
  Builder b;
  const ValueId x = b.Conv(b.Input({1, 8, 9, 9}), b.Random({8, 8, 1, 1}));
  const ValueId joined = b.Call(
      "concat",
      {b.Call("relu", {b.Conv(x, b.Random({20, 8, 1, 1}))}), b.Call("relu", {b.Conv(x, b.Random({3, 8, 3, 3}), 1)}),
       b.Conv(x, b.Random({8, 1, 3, 3}), 1, 8), b.Call("sigmoid", {x}), b.Conv(x, b.Random({6, 4, 3, 3}), 1, 2)},
      Builder::Int("axis", 1));
  b.Output(b.Conv(joined, b.Random({4, 45, 1, 1})));
  // A change of layout before and after, what all parts read, five parts and their reader.
  ExpectRight(std::move(b.g), 9);
}

TEST_F(PackageTest, PartsMayBeRowsAndOutputs) {
  Builder b;
  const ValueId x = b.Input({6, 16}), w = b.Random({16, 24});
  b.Output(b.Call("concat", {b.Call("matmul", {x, w}), b.Call("softmax", {b.Call("matmul", {x, b.Random({16, 24})})})},
                  Builder::Int("axis", 0)));
  b.Output(b.Call("concat", {b.Call("matmul", {x, b.Random({16, 5})}), b.Call("tanh", {x})}, Builder::Int("axis", 1)));
  ExpectRight(std::move(b.g));
}

// Squeeze and excite: the gate is multiplied where the value lies, by vectors of whole and of partial lengths.
TEST_F(PackageTest, GatesAreMultipliedInPlace) {
  for (int64_t channels : {16, 19}) {
    Builder b;
    const ValueId x = b.Call("relu", {b.Conv(b.Input({1, 8, 7, 9}), b.Random({channels, 8, 3, 3}), 1)});
    const ValueId mean = b.Call("reduce_mean", {x}, [] {
      Attrs attrs = Builder::Ints("axes", {2, 3});
      attrs.Set("keepdims", int64_t{1});
      return attrs;
    }());
    const ValueId gate = b.Call("sigmoid", {b.Conv(mean, b.Random({channels, channels, 1, 1}))});
    b.Output(b.Conv(b.Call("mul", {x, gate}), b.Random({4, channels, 1, 1})));
    ExpectRight(std::move(b.g));
  }
}

TEST_F(PackageTest, AConcatenationInTheMiddleOfTheOrderIsCopied) {
  Builder b;
  const ValueId x = b.Input({2, 4, 6});
  const ValueId joined = b.Call("concat", {b.Call("relu", {x}), b.Call("tanh", {x})}, Builder::Int("axis", 1));
  b.Output(b.Call("reduce_sum", {joined}, Builder::Ints("axes", {2})));
  ExpectRight(std::move(b.g));
}

}  // namespace
}  // namespace temper
