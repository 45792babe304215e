// The tree's rules, checked on its sources: who may include whom, how long a file may be, which tests are built.
#include <gtest/gtest.h>

#include <algorithm>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "tests/tree/sources.h"

namespace {

using namespace temper::tree;

std::vector<std::string> Includes(const std::string& file) {
  static const std::regex kInclude(R"re(^\s*#\s*include\s*["<]([^">]+)[">])re", std::regex::multiline);
  std::vector<std::string> result;
  const std::string text = Read(kRoot / file);
  for (std::sregex_iterator it(text.begin(), text.end(), kInclude), end; it != end; ++it) result.push_back((*it)[1]);
  return result;
}

// A folder and what its files may include of the tree. The longest matching folder counts.
struct Layer {
  std::string folder;
  std::vector<std::string> may;
};
const std::vector<Layer> kLayers = {
    {"base/", {"base/"}},
    {"compiler/ir/", {"compiler/ir/", "base/"}},
    {"compiler/target/", {"compiler/target/", "base/"}},
    {"compiler/schedule/", {"compiler/schedule/", "compiler/ir/", "compiler/target/", "base/"}},
    {"compiler/ops/", {"compiler/ops/", "compiler/schedule/", "compiler/ir/", "compiler/target/", "base/"}},
    {"compiler/graph/", {"compiler/graph/", "compiler/ops/", "compiler/schedule/", "compiler/target/", "base/"}},
    {"compiler/frontend/", {"compiler/frontend/", "compiler/graph/", "compiler/ops/", "base/"}},
    {"compiler/driver/", {"compiler/driver/", "base/"}},
    {"compiler/codegen/",
     {"compiler/codegen/", "compiler/driver/", "compiler/ir/", "compiler/target/", "compiler/runtime/",
      "include/temper/model.h", "base/"}},
    {"compiler/runtime/", {"compiler/runtime/", "include/temper/model.h", "base/"}},
    {"compiler/timing/", {"compiler/timing/", "compiler/runtime/kernel_abi.h", "base/"}},
    {"compiler/package/", {"compiler/", "include/temper/model.h", "base/"}},
    // What others compile against stands alone.
    {"include/", {}},
    {"include/temper/operator.h", {"compiler/"}},
    {"cost_model/", {"cost_model/", "compiler/ops/", "compiler/schedule/", "compiler/target/", "base/"}},
    {"trial/", {"trial/", "base/"}},
    {"lock/", {"lock/", "compiler/", "security/secret.h", "security/files.h", "base/"}},
    {"storage/", {"storage/", "trial/", "base/"}},
    {"security/", {"security/", "storage/access.h", "base/"}},
    {"proto/", {"proto/", "temper/v1/", "storage/", "security/", "trial/", "base/"}},
    {"client/",
     {"client/", "include/temper/tuning.h", "proto/", "temper/v1/", "storage/", "security/", "trial/", "base/"}},
    {"tuner_server/search/",
     {"tuner_server/search/", "cost_model/", "compiler/ops/", "compiler/schedule/", "compiler/target/", "base/"}},
    {"tuner_server/operations/", {"tuner_server/operations/", "storage/", "base/"}},
    {"tuner_server/dispatch/", {"tuner_server/dispatch/", "trial/", "base/"}},
    {"tuner_server/",
     {"tuner_server/", "proto/", "temper/v1/", "storage/", "security/", "trial/", "cost_model/", "compiler/graph/",
      "compiler/ops/", "compiler/schedule/", "compiler/target/", "base/"}},
    {"measure_worker/", {"measure_worker/", "proto/", "temper/v1/", "security/", "trial/", "compiler/", "base/"}},
    // A backend knows nobody who measures on it, and who measures knows no backend.
    {"measure_worker/host/",
     {"measure_worker/host/", "measure_worker/backend.h", "measure_worker/device.h", "measure_worker/memory.h",
      "compiler/runtime/", "base/"}},
    {"measure_worker/backends/",
     {"measure_worker/backends/", "measure_worker/host/", "measure_worker/launches/", "measure_worker/backend.h",
      "measure_worker/device.h", "measure_worker/sandbox/launch.h", "trial/", "compiler/", "base/"}},
    {"measure_worker/launches/",
     {"measure_worker/launches/", "measure_worker/host/", "measure_worker/backends/cpu/cpu_device.h",
      "measure_worker/backend.h", "measure_worker/device.h", "compiler/", "base/"}},
    {"measure_worker/kernels/",
     {"measure_worker/kernels/", "measure_worker/sandbox/canary.h", "measure_worker/backend.h",
      "measure_worker/device.h", "measure_worker/compare.h", "measure_worker/inputs.h", "measure_worker/memory.h",
      "measure_worker/sampling.h", "trial/", "compiler/", "base/"}},
    {"measure_worker/models/",
     {"measure_worker/models/", "measure_worker/kernels/kernel_bench.h", "measure_worker/backend.h",
      "measure_worker/compare.h", "measure_worker/inputs.h", "measure_worker/memory.h", "measure_worker/sampling.h",
      "trial/", "compiler/", "base/"}},
    {"cli/",
     {"cli/", "client/", "cost_model/", "lock/", "proto/", "temper/v1/", "compiler/", "storage/", "security/", "trial/",
      "tuner_server/search/tuner.h", "base/"}},
};

bool IsOurs(const std::string& include) {
  static const std::vector<std::string> kTop = {
      "include/", "base/",      "trial/",  "compiler/",     "cost_model/",     "lock/", "storage/", "security/",
      "proto/",   "temper/v1/", "client/", "tuner_server/", "measure_worker/", "cli/",  "tests/"};
  for (const std::string& top : kTop) {
    if (StartsWith(include, top)) return true;
  }
  return false;
}

// The breaches of one file, each one line.
std::vector<std::string> Breaches(const std::string& file, const std::vector<std::string>& includes) {
  const Layer* layer = nullptr;
  for (const Layer& l : kLayers) {
    if (StartsWith(file, l.folder) && (layer == nullptr || l.folder.size() > layer->folder.size())) layer = &l;
  }
  std::vector<std::string> result;
  for (const std::string& include : includes) {
    const bool ours = IsOurs(include);
    bool allowed = layer == nullptr || !ours;
    for (size_t i = 0; !allowed && i < layer->may.size(); ++i) allowed = StartsWith(include, layer->may[i]);
    if (!allowed) result.push_back(file + " includes " + include);
    const bool llvm = StartsWith(include, "llvm/") || StartsWith(include, "lld/");
    if (llvm && !StartsWith(file, "compiler/codegen/llvm/") && !StartsWith(file, "tests/"))
      result.push_back(file + " includes LLVM's " + include);
    if (StartsWith(include, "openssl/") && !StartsWith(file, "security/") && !StartsWith(file, "tests/"))
      result.push_back(file + " includes " + include);
    if (Contains(include, "sqlite3.h") && !StartsWith(file, "storage/") && !StartsWith(file, "tests/"))
      result.push_back(file + " includes " + include);
    const bool wire = StartsWith(include, "temper/v1/") || StartsWith(include, "grpc");
    if (wire && !StartsWith(file, "proto/") && !StartsWith(file, "client/") && !StartsWith(file, "tests/") &&
        !StartsWith(file, "cli/") && !Contains(file, "/service/")) {
      result.push_back(file + " includes the wire's " + include);
    }
  }
  return result;
}

TEST(TreeTest, IncludesFollowTheAllowedDirections) {
  for (const std::string& file : Sources({".cc", ".h", ".c"})) {
    for (const std::string& breach : Breaches(file, Includes(file))) ADD_FAILURE() << breach;
  }
}

TEST(TreeTest, TheCheckFindsEachKindOfBreach) {
  EXPECT_EQ(Breaches("tuner_server/main.cc", {"compiler/codegen/codegen.h"}).size(), 1u);
  EXPECT_EQ(Breaches("measure_worker/main.cc", {"storage/store.h"}).size(), 1u);
  EXPECT_EQ(Breaches("measure_worker/kernels/program.cc", {"measure_worker/backends/cpu/cpu_device.h"}).size(), 1u);
  EXPECT_EQ(Breaches("measure_worker/backends/cpu/cpu_device.cc", {"measure_worker/models/model_bench.h"}).size(), 1u);
  EXPECT_EQ(Breaches("compiler/ops/op.cc", {"llvm/IR/Module.h"}).size(), 1u);
  EXPECT_EQ(Breaches("compiler/ir/expr.cc", {"compiler/ops/op.h"}).size(), 1u);
  EXPECT_EQ(Breaches("cli/commands/db.cc", {"sqlite3.h"}).size(), 1u);
  EXPECT_EQ(Breaches("client/tuner_client.cc", {"openssl/ssl.h"}).size(), 1u);
  EXPECT_EQ(Breaches("security/gate.cc", {"storage/store.h"}).size(), 1u);
  EXPECT_EQ(Breaches("security/gate.cc", {"grpcpp/grpcpp.h"}).size(), 1u);
  EXPECT_EQ(Breaches("tuner_server/tuning/job.cc", {"temper/v1/tuning.pb.h"}).size(), 1u);
  EXPECT_TRUE(Breaches("tuner_server/service/tuning_service.cc", {"temper/v1/tuning.pb.h", "vector"}).empty());
}

TEST(TreeTest, NoSourceFileIsLongerThan800Lines) {
  for (const std::string& file : Sources({".cc", ".h", ".c", ".py"})) {
    const std::string text = Read(kRoot / file);
    EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 800) << file;
  }
}

TEST(TreeTest, EveryTestFileIsBuilt) {
  for (const std::string& file : Sources({".cc"})) {
    if (!StartsWith(file, "tests/") || !Contains(file, "_test.cc")) continue;
    const fs::path path = kRoot / file;
    const fs::path folder = path.parent_path();
    const bool own = Contains(Read(folder / "CMakeLists.txt"), path.filename().string());
    const std::string below = (folder.filename() / path.filename()).string();
    EXPECT_TRUE(own || Contains(Read(folder.parent_path() / "CMakeLists.txt"), below))
        << file << " is in no CMakeLists.txt";
  }
}

// "Suite.Name" of every test in the tree, as it is written.
std::set<std::string> AllTests() {
  static const std::regex kTest(R"re(^TEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\))re", std::regex::multiline);
  std::set<std::string> tests;
  for (const std::string& file : Sources({".cc"})) {
    if (!StartsWith(file, "tests/")) continue;
    const std::string text = Read(kRoot / file);
    for (std::sregex_iterator it(text.begin(), text.end(), kTest), end; it != end; ++it) {
      tests.insert((*it)[1].str() + "." + (*it)[2].str());
    }
  }
  return tests;
}

TEST(TreeTest, PromisesNameTestsThatExistAndLeaveNoRowOut) {
  const std::string text = Read(kRoot / "docs/promises.md");
  const std::set<std::string> tests = AllTests();
  static const std::regex kNamed(R"re(`(\w+\.\w+)`)re");
  size_t named = 0;
  for (std::sregex_iterator it(text.begin(), text.end(), kNamed), end; it != end; ++it, ++named) {
    EXPECT_TRUE(tests.contains((*it)[1])) << "docs/promises.md names " << (*it)[1] << ", which is no test";
  }
  EXPECT_GT(named, 40u);
  for (int i = 1; i <= 5; ++i) EXPECT_TRUE(Contains(text, "| P" + std::to_string(i) + ": ")) << i;
  for (int i = 1; i <= 40; ++i) EXPECT_TRUE(Contains(text, "\n| " + std::to_string(i) + " | ")) << i;
}

}  // namespace
