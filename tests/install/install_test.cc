// What is installed, as a project outside the tree uses it: find_package, two models in one program, its own install.
#include <map>
#include <set>

#include "storage/store.h"
#include "tests/chaos/process.h"
#include "tests/cli/cli_fixture.h"
#include "tests/lock/other_record.h"

namespace temper::cli_test {
namespace {

Result Shell(const std::string& command) {
  std::FILE* pipe = popen(("(" + command + ") 2>&1").c_str(), "r");
  Result result{-1, ""};
  std::array<char, 4096> buffer;
  for (size_t n; (n = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) result.out.append(buffer.data(), n);
  result.code = WEXITSTATUS(pclose(pipe));
  return result;
}

void Must(const std::string& command) {
  const Result result = Shell(command);
  ASSERT_EQ(result.code, 0) << command << "\n" << result.out;
}

std::string Bytes(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// y = x times a constant, over four floats.
void WriteScale(const std::string& path, float factor, bool fixed) {
  onnx::ModelProto model;
  model.set_ir_version(8);
  model.add_opset_import()->set_version(17);
  onnx::GraphProto* graph = model.mutable_graph();
  AddTensor(graph, "w", {4});
  for (int i = 0; i < 4; ++i) graph->mutable_initializer(0)->set_float_data(i, factor);
  AddNode(graph, "Mul", {"x", "w"}, "y");
  SetValue(graph->add_input(), "x", {1, 4});
  SetValue(graph->add_output(), "y", {1, 4});
  if (!fixed) {
    auto* shape = graph->mutable_input(0)->mutable_type()->mutable_tensor_type()->mutable_shape();
    shape->mutable_dim(0)->set_dim_param("n");
  }
  std::ofstream out(path, std::ios::binary);
  ASSERT_TRUE(model.SerializeToOstream(&out));
}

class InstallTest : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    for (const char* name : {"TEMPER_DB", "TEMPER_SERVER"}) unsetenv(name);
    setenv("XDG_DATA_HOME", dir_.c_str(), 1);
    prefix_ = dir_ + "/prefix";
    for (const char* component : {"tools", "devices", "headers", "libraries", "cmake"})
      Must(std::string(CMAKE_COMMAND) + " --install " TEMPER_BINARY_DIR " --prefix " + prefix_ + " --component " +
           component);
  }
  // The consumer's sources and models in a folder.
  void MakeProject(const std::string& folder) {
    fs::create_directories(folder);
    for (const char* file : {"CMakeLists.txt", "main.cc"})
      fs::copy_file(fs::path(TEMPER_SOURCE_DIR) / "tests/install/consumer" / file, folder + "/" + file);
    WriteScale(folder + "/twice.onnx", 2, true);
    WriteScale(folder + "/thrice.onnx", 3, false);
    Must(prefix_ + "/bin/temper lock " + folder + "/twice.onnx --untuned -o " + folder + "/twice.lock");
  }
  // A project of one call.
  static void WriteLists(const std::string& folder, const std::string& call) {
    std::ofstream(folder + "/CMakeLists.txt")
        << "cmake_minimum_required(VERSION 3.25)\nproject(one LANGUAGES CXX)\nfind_package(Temper REQUIRED)\n"
        << call << "\n";
  }
  std::string Configure(const std::string& folder) const {
    return std::string(CMAKE_COMMAND) + " -G Ninja -S " + folder + " -B " + folder +
           "/build -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH=" + prefix_;
  }
  static std::string Build(const std::string& folder) {
    return std::string(CMAKE_COMMAND) + " --build " + folder + "/build -j1";
  }

  std::string prefix_;
};

TEST_F(InstallTest, AProjectOutsideTheTreeLinksTwoModels) {
  // Away from all networks, where this machine lets us.
  const std::string alone = Shell("unshare -n true").code == 0    ? "unshare -n "
                            : Shell("unshare -rn true").code == 0 ? "unshare -rn "
                                                                  : "";
  std::map<std::string, std::string> files[2];
  for (int i = 0; i < 2; ++i) {
    const std::string folder = dir_ + (i == 0 ? "/here" : "/some/where/else");
    MakeProject(folder);
    Must((i == 0 ? "" : alone) + Configure(folder));
    Must((i == 0 ? "" : alone) + Build(folder));
    const Result again = Shell(Build(folder));
    EXPECT_NE(again.out.find("no work to do"), std::string::npos) << again.out;
    const Result ran = Shell(folder + "/build/app");
    EXPECT_EQ(ran.code, 0);
    EXPECT_EQ(ran.out, "x: 20 and 30\ncode 2\n");
    for (const std::string model : {"twice", "thrice"}) {
      for (const auto& file : fs::directory_iterator(folder + "/build/temper/" + model + "/" + model))
        files[i][model + "/" + file.path().filename().string()] = Bytes(file.path());
    }
  }
  EXPECT_EQ(files[0].size(), 8u);
  EXPECT_TRUE(files[0] == files[1]) << "a package's bytes depend on the folder that it is built in";
  EXPECT_TRUE(fs::exists(dir_ + "/here/build/thrice.json"));

  // Installed, moved, and without its build.
  const std::string here = dir_ + "/here";
  Must(std::string(CMAKE_COMMAND) + " --install " + here + "/build --prefix " + dir_ + "/product");
  fs::rename(dir_ + "/product", dir_ + "/moved");
  fs::remove_all(dir_ + "/some");
  fs::rename(here + "/build/temper", here + "/build/gone");
  EXPECT_EQ(Shell(dir_ + "/moved/bin/app").out, "x: 20 and 30\ncode 2\n");
  fs::rename(here + "/build/gone", here + "/build/temper");

  // A model or a lock that changes is built again, and only that.
  WriteScale(here + "/twice.onnx", 5, true);
  const Result rebuilt = Shell(Build(here));
  EXPECT_NE(rebuilt.out.find("Compiling twice"), std::string::npos) << rebuilt.out;
  EXPECT_EQ(rebuilt.out.find("Compiling thrice"), std::string::npos) << rebuilt.out;
  EXPECT_EQ(Shell(here + "/build/app").out, "x: 50 and 30\ncode 2\n");
  fs::last_write_time(prefix_ + "/bin/temper", fs::file_time_type::clock::now());
  const Result by_another = Shell(Build(here));
  EXPECT_NE(by_another.out.find("Compiling twice"), std::string::npos) << by_another.out;
  EXPECT_NE(by_another.out.find("Compiling thrice"), std::string::npos) << by_another.out;
  std::ofstream(here + "/twice.lock") << "{}";
  const Result broken = Shell(Build(here));
  EXPECT_NE(broken.code, 0);
  EXPECT_NE(broken.out.find("twice.lock is damaged, or no lock file"), std::string::npos) << broken.out;
}

// What was compiled, by a build of a project whose records are asked each time.
TEST_F(InstallTest, ABuildFollowsTheRecordsOfItsDatabaseOrServer) {
  const std::string lock = dir_ + "/default.lock", lines = dir_ + "/records.jsonl";
  Must(prefix_ + "/bin/temper lock " + model_ + " --untuned -o " + lock);
  ServerProcess server;
  ASSERT_TRUE(server.Start({.db = "memory:"}).ok()) << server.Errors();
  // Puts a record of another config in, by way of lines that any database and server takes.
  const auto put = [&](const std::string& where, double seconds, const std::string& target = "") {
    absl::StatusOr<Record> record = RecordOfAnotherConfig(lock, "board", seconds);
    ASSERT_TRUE(record.ok()) << record.status();
    if (!target.empty()) record->target = target;
    const std::string db = dir_ + "/one.db";
    fs::remove(db);
    {
      auto store = OpenStore(db);
      ASSERT_TRUE(store.ok() && (*store)->Append(std::span(&*record, 1)).ok());
    }
    Must(prefix_ + "/bin/temper db export " + lines + " --db " + db);
    Must(prefix_ + "/bin/temper db import " + lines + " " + where);
  };
  for (const bool by_server : {false, true}) {
    const std::string folder = dir_ + (by_server ? "/server" : "/db"), db = folder + "/records.db";
    const std::string where = by_server ? "--server " + server.address() : "--db " + db;
    fs::create_directories(folder);
    put(where, 1, "llvm -mcpu=nehalem -threads=1");  // the database is there, and knows nothing of this target
    WriteLists(folder, "temper_add_model(TARGET tiny MODEL " + model_ + " REPORT tiny.json " +
                           (by_server ? "SERVER " + server.address() : "DB records.db") +
                           ")\nadd_custom_target(it ALL)\nadd_dependencies(it tiny)");
    Must(Configure(folder));
    const auto compiles = [&] {
      const Result built = Shell(Build(folder));
      EXPECT_EQ(built.code, 0) << built.out;
      EXPECT_NE(built.out.find("Asking for the best configs of tiny"), std::string::npos) << built.out;
      return built.out.find("Compiling tiny") != std::string::npos;
    };
    const auto from_records = [&] {
      int count = 0;
      const nlohmann::json report = nlohmann::json::parse(std::ifstream(folder + "/build/tiny.json"));
      for (const nlohmann::json& kernel : report["kernels"]) count += kernel["source"] == "exact" ? 1 : 0;
      return count;
    };
    EXPECT_TRUE(compiles());
    EXPECT_EQ(from_records(), 0);
    EXPECT_FALSE(compiles());
    put(where, 1e-9, "llvm -mcpu=nehalem -threads=1");
    EXPECT_FALSE(compiles()) << "a record of another target";
    put(where, 1e-9);
    EXPECT_TRUE(compiles());
    EXPECT_EQ(from_records(), 1);
    EXPECT_FALSE(compiles());
    Must(prefix_ + "/bin/temper verify " + folder + "/build/temper/tiny/tiny --lock " + folder +
         "/build/temper/tiny/tiny.lock --model " + model_);
  }
  server.KillAndWait();
  const Result alone = Shell(Build(dir_ + "/server"));
  EXPECT_NE(alone.code, 0);
  EXPECT_NE(alone.out.find("no answer from temper-server at " + server.address()), std::string::npos) << alone.out;
}

TEST_F(InstallTest, AModelThatIsDeclaredWronglyEndsTheConfiguration) {
  const std::string folder = dir_ + "/wrong";
  MakeProject(folder);
  const auto refused = [&](const std::string& call, const std::string& says) {
    WriteLists(folder, call);
    const Result result = Shell(Configure(folder));
    EXPECT_NE(result.code, 0) << call;
    EXPECT_NE(result.out.find(says), std::string::npos) << result.out;
  };
  refused("temper_add_model(TARGET twice MODEL twice.onnx LOCK twice.lock DB records.db)", "give one of LOCK, DB");
  refused("temper_add_model(TARGET Twice MODEL twice.onnx)", "a C identifier in lower case");
  refused("temper_add_model(TARGET twice MODEL twice.onnx LOK twice.lock)", "what is 'LOK;twice.lock'?");
  // Nothing that is asked for and not there becomes a build without records.
  refused("temper_add_model(TARGET twice MODEL twice.onnx LOCK)", "'LOCK' is given without a value");
  refused("temper_add_model(TARGET twice MODEL twice.onnx LOCK \"${nobody_set_it}\")", "an argument is empty");
  refused("temper_add_model(TARGET twice MODEL twice.onnx DEVICE board)", "DEVICE is of a LOCK, a DB or a SERVER");
  refused("temper_add_model(TARGET twice MODEL twice.onnx DB d.db TOKEN_FILE t)", "CA and TOKEN_FILE are of a SERVER");
  refused("temper_install_model(TARGET twice)", "is no target of temper_add_model");
}

TEST_F(InstallTest, ABuildThatDoesNotGetWhatItAskedForFailsAndSaysWhy) {
  const std::string folder = dir_ + "/strict";
  MakeProject(folder);
  const auto fails = [&](const std::string& source, const std::string& says) {
    WriteLists(folder, "temper_add_model(TARGET twice MODEL twice.onnx " + source +
                           ")\nadd_custom_target(it ALL)\nadd_dependencies(it twice)");
    Must(Configure(folder));
    const Result result = Shell(Build(folder));
    EXPECT_NE(result.code, 0) << source;
    EXPECT_NE(result.out.find(says), std::string::npos) << source << ": " << result.out;
  };
  fails("LOCK twice.lock MIN_COVERAGE 0.9", "--min-coverage wants 90.0 %");
  fails("LOCK twice.lock FOR llvm:haswell", "has no entry for target");
  fails("LOCK twice.lock DEVICE none", "no entry for device 'none'");
  fails("LOCK twice.lock SHAPES x=2,4", "other shapes");
  fails("LOCK twice.lock DIMS n=2", "other dimensions than --dim");
  fails("LOCK twice.lock VALUES x=true", "other values than --value");
  fails("DB none.db", folder + "/none.db");
  fails("SERVER unix:/nowhere/none DEVICE board", "/nowhere/none");
}

TEST_F(InstallTest, ProgramsOutsideTheTreeAddOperatorsAndTalkToAServer) {
  const std::string folder = dir_ + "/programs", server = "unix:" + dir_ + "/socket";
  fs::create_directories(folder);
  for (const char* file :
       {"tests/install/programs/CMakeLists.txt", "tests/install/programs/client.cc", "examples/custom_operator.cc"})
    fs::copy_file(fs::path(TEMPER_SOURCE_DIR) / file, fs::path(folder) / fs::path(file).filename());
  Must(Configure(folder));
  Must(Build(folder));
  const Result tried = Shell(folder + "/build/custom_operator");
  EXPECT_EQ(tried.code, 0) << tried.out;
  EXPECT_NE(tried.out.find("squared_relu_sum.rows vectors=8: error"), std::string::npos) << tried.out;

  const std::string nobody = Shell(folder + "/build/client " + server).out;
  EXPECT_NE(nobody.find("refused: no answer from temper-server at " + server), std::string::npos) << nobody;
  const Result asked =
      Shell("mkfifo " + dir_ + "/told; (exec " + prefix_ + "/bin/temper-server --db memory: --listen " + server + " >" +
            dir_ + "/told) & read line <" + dir_ + "/told; " + folder + "/build/client " + server + "; kill $!");
  EXPECT_EQ(asked.out.substr(0, asked.out.find("refused")),
            "board waiting_for_device\ncancelled, priority 3 of 1\n0 devices, 0 configs\n")
      << asked.out;
  EXPECT_NE(asked.out.find("refused: "), std::string::npos) << asked.out;
}

TEST_F(InstallTest, ThePartsAreThereAndPkgConfigFindsThem) {
  for (const char* file :
       {"bin/temper", "bin/temper-server", "bin/temper-worker", "include/temper/model.h", "include/temper/model.hpp"})
    EXPECT_TRUE(fs::exists(prefix_ + "/" + file)) << file;
  EXPECT_TRUE(std::ranges::any_of(fs::recursive_directory_iterator(prefix_), [](const auto& file) {
    return file.path().filename().string().starts_with("libtemper-devices.so.");
  }));
  if (Shell("pkg-config --version").code != 0) GTEST_SKIP() << "pkg-config is not installed";
  std::string folder;
  for (const auto& file : fs::recursive_directory_iterator(prefix_)) {
    if (file.path().filename() == "temper.pc") folder = file.path().parent_path().string();
  }
  const Result flags = Shell("PKG_CONFIG_PATH=" + folder + " pkg-config --cflags temper");
  EXPECT_EQ(flags.code, 0) << flags.out;
  const std::string include = flags.out.substr(flags.out.find("-I") + 2, flags.out.find_last_not_of(" \n") - 1);
  EXPECT_TRUE(fs::exists(fs::path(include) / "temper/model.h")) << flags.out;
}

TEST_F(InstallTest, ADebianPackageHoldsAllOfItAndNamesWhatItNeeds) {
  if (Shell("dpkg-deb --version").code != 0) GTEST_SKIP() << "this is no Debian";
  const std::string cpack = (fs::path(CMAKE_COMMAND).parent_path() / "cpack").string();
  Must(cpack + " --config " TEMPER_BINARY_DIR "/CPackConfig.cmake -B " + dir_ + "/deb");
  std::string package;
  for (const auto& file : fs::directory_iterator(dir_ + "/deb")) {
    if (file.path().extension() == ".deb") package = file.path();
  }
  ASSERT_FALSE(package.empty());
  const Result needs = Shell("dpkg-deb --field " + package + " Depends");
  EXPECT_NE(needs.out.find("libllvm19, libgrpc++1.51"), std::string::npos) << needs.out;
  Must("dpkg-deb --extract " + package + " " + dir_ + "/root");
  const Result help = Shell(dir_ + "/root/usr/bin/temper lock --help");
  EXPECT_EQ(help.code, 0) << help.out;
  for (const char* file :
       {"include/temper/model.hpp", "lib/cmake/Temper/TemperModels.cmake", "lib/pkgconfig/temper.pc"})
    EXPECT_TRUE(fs::exists(dir_ + "/root/usr/" + file)) << file;
}

}  // namespace
}  // namespace temper::cli_test
