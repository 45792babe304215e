// Backends that are no CPU, each in an exercise: kernels that it runs, through server, worker and package.
#include <cstring>

#include "tests/chaos/process.h"
#include "tests/cli/cli_fixture.h"

namespace temper::cli_test {
namespace {

struct Exercise {
  const char *device, *trials;  // what is slow to build is built less often
};

class BackendTest : public CliTest, public ::testing::WithParamInterface<Exercise> {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    x_ = dir_ + "/x.npy";
    ASSERT_TRUE(server_.Start({.db = dir_ + "/records.db"}).ok());
    ASSERT_TRUE(Serve(worker_, "slow", GetParam().device).ok());
    ASSERT_TRUE(Serve(cpu_worker_, "fast", "cpu").ok());
  }

  absl::Status Serve(Process& worker, const std::string& key, const std::string& device) {
    return worker.Start({.arguments = {kBin + "temper-worker", "--server", server_.address(), "--key", key, "--device",
                                       device, "--spool", dir_ + "/spool-" + key},
                         .environment = {"XDG_RUNTIME_DIR=" + dir_}});
  }

  // What the package makes of the input in `x_`.
  std::vector<float> Run(const std::string& package) {
    const std::string out = dir_ + "/out-" + package;
    const Result run = Temper("run " + dir_ + "/" + package + " --input x=" + x_ + " --output-dir " + out);
    EXPECT_EQ(run.code, 0) << run.out;
    std::ifstream in(out + "/y.npy", std::ios::binary);
    const std::string bytes(std::istreambuf_iterator<char>(in), {});
    std::vector<float> y(10);
    const size_t size = y.size() * sizeof(float);
    EXPECT_GT(bytes.size(), size);
    if (bytes.size() > size) std::memcpy(y.data(), bytes.data() + bytes.size() - size, size);
    return y;
  }

  std::string x_;
  ServerProcess server_;
  Process worker_, cpu_worker_;
};

// A .npy file of format 1.0 (NumPy's documentation of numpy.lib.format).
void WriteInput(const std::string& path) {
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 3, 8, 8), }";
  header.resize(128 - 10 - 1, ' ');
  header += '\n';
  std::ofstream out(path, std::ios::binary);
  out << "\x93NUMPY" << '\1' << '\0' << static_cast<char>(header.size()) << '\0' << header;
  for (int i = 0; i < 3 * 8 * 8; ++i) {
    const float x = static_cast<float>(i % 11 - 5) / 4;
    out.write(reinterpret_cast<const char*>(&x), sizeof x);
  }
}

// One server, two workers of different kinds, a job for each.
TEST_P(BackendTest, TunesAndRunsAModelThroughServerWorkerAndPackage) {
  for (const char* device : {"slow", "fast"}) {
    const std::string fleet = " --server " + server_.address() + " --device " + device;
    const Result tuned =
        Temper("tune " + model_ + fleet + " --trials " + GetParam().trials + " --no-booster --wait-for-device 60s");
    ASSERT_EQ(tuned.code, 0) << tuned.out;
    const Result compiled = Temper("compile " + model_ + fleet + " -o " + dir_ + "/" + device);
    ASSERT_EQ(compiled.code, 0) << compiled.out;
  }
  EXPECT_TRUE(Manifest("fast")["target"].get<std::string>().starts_with("llvm ")) << Manifest("fast")["target"];
  const nlohmann::json manifest = Manifest("slow");
  EXPECT_TRUE(manifest["target"].get<std::string>().starts_with(GetParam().device + std::string(" ")))
      << manifest["target"];
  EXPECT_TRUE(manifest["codegen_id"].get<std::string>().ends_with(std::string("-") + GetParam().device))
      << manifest["codegen_id"];
  WriteInput(x_);
  const std::vector<float> slow = Run("slow"), fast = Run("fast");
  for (size_t i = 0; i < slow.size(); ++i) EXPECT_NEAR(slow[i], fast[i], 1e-4) << i;
  EXPECT_NE(fast, std::vector<float>(10)) << "an answer of zeros would show nothing";
}

TEST_P(BackendTest, ALocalRunMeasuresOnTheTargetsDevice) {
  const std::string on = " --db " + dir_ + "/local.db --target " + GetParam().device;
  const Result tuned = Temper("tune " + model_ + on + " --trials " + GetParam().trials + " --no-booster");
  ASSERT_EQ(tuned.code, 0) << tuned.out;
  const Result compiled = Temper("compile " + model_ + on + " -o " + dir_ + "/local");
  ASSERT_EQ(compiled.code, 0) << compiled.out;
  // Which configs it took, the times of the model decide; that there are times of the device does not hang on them.
  const std::vector<nlohmann::json> best = Temper("db best --json --db " + dir_ + "/local.db").Lines();
  EXPECT_FALSE(best.empty());
  for (const nlohmann::json& record : best) {
    EXPECT_TRUE(record["target"].get<std::string>().starts_with(GetParam().device + std::string(" "))) << record;
    EXPECT_EQ(record["outcome"], "ok");
  }
}

TEST_F(CliTest, ALocalRunWithoutItsGpuSaysSoInOneLine) {
  const Result result =
      Temper("tune " + model_ + " --db " + dir_ + "/local.db --target cuda:sm_90", "TEMPER_CUDA=/none ");
  EXPECT_EQ(result.code, 1);
  EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 1) << result.out;
  EXPECT_NE(result.out.find("there is no NVIDIA driver here"), std::string::npos) << result.out;
}

INSTANTIATE_TEST_SUITE_P(Backends, BackendTest,
                         ::testing::Values(Exercise{"interpreter", "12"}, Exercise{"opencl", "4"}),
                         [](const auto& info) { return std::string(info.param.device); });

}  // namespace
}  // namespace temper::cli_test
