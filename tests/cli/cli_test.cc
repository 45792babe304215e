// The programs as a user runs them: compile, run, tune twice, and a fleet of one server and two workers.
#include <signal.h>
#include <unistd.h>

#include <map>
#include <set>

#include "storage/store.h"
#include "tests/cli/cli_fixture.h"

namespace temper::cli_test {
namespace {

// A program in the background; killed with the object.
class Background {
 public:
  explicit Background(std::vector<std::string> args) {
    pid_ = fork();
    if (pid_ != 0) return;
    std::vector<char*> argv;
    for (std::string& arg : args) argv.push_back(arg.data());
    argv.push_back(nullptr);
    execv(argv[0], argv.data());
    _exit(127);
  }
  ~Background() { End(SIGTERM); }
  int End(int signal) {
    if (pid_ <= 0) return code_;
    if (signal != 0) kill(pid_, signal);
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = 0;
    return code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
  }
  bool Running() {
    int status = 0;
    if (pid_ > 0 && waitpid(pid_, &status, WNOHANG) == pid_) {
      pid_ = 0;
      code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
    }
    return pid_ > 0;
  }
  int code() const { return code_; }

 private:
  pid_t pid_;
  int code_ = -1;
};

TEST_F(CliTest, CompilesAndTimesAModel) {
  Result compiled = Temper("compile " + model_ + " --untuned -o " + dir_ + "/package");
  ASSERT_EQ(compiled.code, 0) << compiled.out;
  for (const char* file : {"model.so", "weights.bin", "manifest.json", "model.h"})
    EXPECT_TRUE(fs::exists(dir_ + "/package/" + file)) << file;
  Result timed = Temper("bench " + dir_ + "/package --seconds 0.01 --json");
  ASSERT_EQ(timed.code, 0) << timed.out;
  ASSERT_EQ(timed.Lines().size(), 1u);
  for (const char* field :
       {"model", "target", "dtype", "threads", "tuned", "median_ms", "mean_ms", "min_ms", "std_ms", "repeats"}) {
    EXPECT_TRUE(timed.Lines()[0].contains(field)) << field;
  }
  EXPECT_EQ(timed.Lines()[0]["dtype"], "f32");
  Result profiled = Temper("bench " + dir_ + "/package --seconds 0.01 --profile --json");
  ASSERT_EQ(profiled.code, 0) << profiled.out;
  ASSERT_EQ(profiled.Lines().size(), 1u);
  const nlohmann::json profile = profiled.Lines()[0]["profile"];
  const nlohmann::json manifest = nlohmann::json::parse(std::ifstream(dir_ + "/package/manifest.json"));
  ASSERT_EQ(profile["steps"].size(), manifest["steps"].size());
  EXPECT_GT(profile["model_ms"], 0);
  std::set<std::string> whats;
  int64_t constants = 0;
  for (size_t i = 0; i < profile["steps"].size(); ++i) {
    const nlohmann::json& step = profile["steps"][i];
    EXPECT_GT(step["ms"], 0);
    EXPECT_GT(step["of_roofline"], 0);
    double parts = 0;
    for (const char* part : {"warm_ms", "memory_ms", "threads_ms", "rest_ms"}) parts += step[part].get<double>();
    EXPECT_NEAR(parts, step["ms"], 1e-9) << step;
    constants += step["constant_bytes"].get<int64_t>();
    if (i > 0) {
      EXPECT_LE(step["ms"], profile["steps"][i - 1]["ms"]);
    }
    whats.insert(step["what"]);
  }
  EXPECT_EQ(constants, manifest["weight_bytes"]) << "each constant has one reader here";
  EXPECT_EQ(profile["constant_bytes"], manifest["weight_bytes"]);
  EXPECT_TRUE(whats.contains("matmul 1x288 * 288x10 -> 1x10")) << profile.dump();
  // What a manifest says is checked before it is used.
  for (const char* field : {"model", "target", "tuned", "weight_bytes", "arena_bytes", "prefix"}) {
    nlohmann::json damaged = manifest;
    damaged[field] = nlohmann::json::array();
    std::ofstream(dir_ + "/package/manifest.json") << damaged;
    const Result refused = Temper("bench " + dir_ + "/package --seconds 0.01 --profile");
    EXPECT_EQ(refused.code, 1) << refused.out;
    EXPECT_EQ(refused.out,
              "temper: " + dir_ + "/package/manifest.json is damaged: its " + field + " is of the type array\n");
  }
  // A package is replaced, another folder is not.
  EXPECT_EQ(Temper("compile " + model_ + " --untuned -o " + dir_ + "/package").code, 0);
  EXPECT_EQ(Temper("compile " + model_ + " --untuned -o " + dir_).code, 1);
  EXPECT_TRUE(fs::exists(model_));
}

TEST_F(CliTest, TasksAccountForEveryConfig) {
  int refused = 0;
  for (const nlohmann::json& task : Temper("tasks " + model_ + " --space --json").Lines()) {
    int64_t legal = 0;
    for (const nlohmann::json& space : task["spaces"]) {
      int64_t product = space["legal"].get<int64_t>();
      legal += product;
      for (const nlohmann::json& pruned : space["pruned"]) {
        EXPECT_FALSE(pruned["why"].get<std::string>().empty());
        product += pruned["configs"].get<int64_t>();
        refused += pruned["configs"].get<int64_t>() > 0;
      }
      EXPECT_EQ(product, space["product"].get<int64_t>()) << space.dump();
    }
    EXPECT_EQ(legal, task["space_size"].get<int64_t>());
    EXPECT_EQ(task["spaces"].size(), task["templates"].size());
  }
  EXPECT_GT(refused, 0);
}

TEST_F(CliTest, BadInputIsOneLineAndAnExitCode) {
  std::ofstream(dir_ + "/empty.onnx");
  for (const std::string& arguments :
       {"compile " + dir_ + "/none.onnx -o " + dir_ + "/p", "compile " + dir_ + "/empty.onnx -o " + dir_ + "/p",
        "db list --db " + dir_ + "/none.db", "bench " + dir_, std::string("devices --server unix:") + dir_ + "/none"}) {
    Result result = Temper(arguments);
    EXPECT_EQ(result.code, 1) << arguments;
    EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 1) << arguments << ": " << result.out;
  }
  const Result for_programs = Temper("compile " + dir_ + "/none.onnx --json-errors -o " + dir_ + "/p");
  EXPECT_EQ(for_programs.code, 1);
  ASSERT_EQ(for_programs.Lines().size(), 1u) << for_programs.out;
  EXPECT_EQ(for_programs.Lines()[0]["code"], "NOT_FOUND");
  EXPECT_EQ(for_programs.Lines()[0]["error"], dir_ + "/none.onnx: no such file");
  const Result hostile = Temper("compile '" + dir_ + "/\x1b[2J.onnx' -o " + dir_ + "/p");
  EXPECT_NE(hostile.out.find("/\\x1b[2J.onnx: no such file"), std::string::npos) << hostile.out;
  EXPECT_EQ(Temper("nonsense").code, 2);
  EXPECT_EQ(Temper("compile").code, 2);
  // Nothing that is asked for by a variable that is not set is passed over.
  for (const char* options : {"--lock ''", "--lock= --untuned", "--target=", "--db ''"}) {
    const Result result = Temper("compile " + model_ + " -o " + dir_ + "/package " + options);
    EXPECT_EQ(result.code, 2) << result.out;
    EXPECT_NE(result.out.find(" is empty; see --help"), std::string::npos) << result.out;
    EXPECT_FALSE(fs::exists(dir_ + "/package"));
  }
}

TEST_F(CliTest, WhatIsMisspeltIsNamedWithWhatIsNear) {
  const auto says = [](const std::string& arguments, const std::string& line) {
    const Result result = Temper(arguments);
    EXPECT_EQ(result.code, 2) << arguments;
    EXPECT_EQ(result.out, "temper: " + line + "; see --help\n");
  };
  says("tunee m.onnx", "there is no subcommand 'tunee'; did you mean tune?");
  says("db lst", "there is no subcommand 'lst'; did you mean list?");
  says("nonsense", "there is no subcommand 'nonsense'");
  says("tune m.onnx --time-bugdet 2m", "there is no option --time-bugdet; did you mean --time-budget?");
  says("tune m.onnx --time-bugdet=2m", "there is no option --time-bugdet; did you mean --time-budget?");
  says("bench m.onnx --jsn --seconds 1", "there is no option --jsn; did you mean --json?");
  for (const std::string program : {"temper", "temper-server", "temper-worker"}) {
    std::FILE* pipe = popen((kBin + program + " --version").c_str(), "r");
    char text[200] = "";
    EXPECT_NE(std::fgets(text, sizeof text, pipe), nullptr);
    EXPECT_EQ(pclose(pipe), 0) << program;
    EXPECT_EQ(std::string(text).find(program + " 0."), 0u) << text;
  }
  EXPECT_NE(Temper("--version").out.find(", code generator "), std::string::npos);
}

TEST_F(CliTest, AnOptionTakesOneValueAndLeavesTheModelToTheCommand) {
  UseOwnRecords();
  const std::string package = dir_ + "/package";
  const Result compiled = Temper("compile --untuned --shape x=1,3,8,8 " + model_ + " -o " + package);
  EXPECT_EQ(compiled.code, 0) << compiled.out;
  // What makes packages says nothing to one that is made.
  for (const std::string option : {"--untuned", "--target host", "--shape x=1,3,8,8", "--device a", "--winograd off"}) {
    const Result refused = Temper("bench " + package + " " + option);
    EXPECT_EQ(refused.code, 1) << option;
    EXPECT_EQ(refused.out,
              "temper: " + package + " is a package: " + option.substr(0, option.find(' ')) + " is for models\n");
  }
  const Result threads = Temper("bench " + package, "TEMPER_NUM_THREADS=abc ");
  EXPECT_EQ(threads.out, "temper: TEMPER_NUM_THREADS is 'abc', not a number of threads\n");
  for (const std::string& command : {"compile " + model_ + " -o " + package, "explain " + model_}) {
    const Result none = Temper(command, "TEMPER_DB=" + dir_ + "/none.db ");
    EXPECT_EQ(none.code, 1) << none.out;
    EXPECT_EQ(none.out, Temper(command + " --db " + dir_ + "/none.db").out);
  }
  const Result no_port = Temper("jobs --server tuner");
  EXPECT_EQ(no_port.out, "temper: the server's address 'tuner' has no port: use HOST:PORT or unix:PATH\n");
  const std::string compile = "compile " + model_ + " --untuned -o " + package + " --min-coverage ";
  EXPECT_NE(Temper(compile + "90%").out.find("--min-coverage wants 90.0 %"), std::string::npos);
  EXPECT_NE(Temper(compile + "0.9").out.find("--min-coverage wants 90.0 %"), std::string::npos);
  EXPECT_NE(Temper(compile + "9").out.find("--min-coverage 9: expected a share"), std::string::npos);
}

// y = relu(flag ? x : -x) behind a past that may be empty.
void WriteCached(const std::string& path) {
  onnx::ModelProto model;
  model.set_ir_version(8);
  model.add_opset_import()->set_version(17);
  onnx::GraphProto* graph = model.mutable_graph();
  AddNode(graph, "Neg", {"x"}, "n");
  AddNode(graph, "Where", {"flag", "x", "n"}, "w");
  AddNode(graph, "Concat", {"past", "w"}, "all");
  AddNode(graph, "Relu", {"all"}, "y");
  onnx::AttributeProto* axis = graph->mutable_node(2)->add_attribute();
  axis->set_name("axis");
  axis->set_type(onnx::AttributeProto::INT);
  axis->set_i(0);
  SetValue(graph->add_input(), "past", {0, 4});
  SetValue(graph->add_input(), "x", {3, 4});
  SetValue(graph->add_input(), "flag", {1});
  graph->mutable_input(0)->mutable_type()->mutable_tensor_type()->mutable_shape()->mutable_dim(0)->set_dim_param("old");
  graph->mutable_input(1)->mutable_type()->mutable_tensor_type()->mutable_shape()->mutable_dim(0)->set_dim_param("new");
  graph->mutable_input(2)->mutable_type()->mutable_tensor_type()->set_elem_type(onnx::TensorProto::BOOL);
  SetValue(graph->add_output(), "y", {3, 4});
  std::ofstream out(path, std::ios::binary);
  ASSERT_TRUE(model.SerializeToOstream(&out));
}

TEST_F(CliTest, DimensionsByNameAndInputsThatAreConstants) {
  const std::string path = dir_ + "/cached.onnx", flags = " --dim old=0 --dim new=3 --value flag=false";
  WriteCached(path);
  const std::string package = dir_ + "/package";
  Result compiled = Temper("compile " + path + flags + " --untuned -o " + package);
  ASSERT_EQ(compiled.code, 0) << compiled.out;
  const nlohmann::json inputs = Manifest("package")["inputs"];
  ASSERT_EQ(inputs.size(), 2u) << "the flag is a constant";
  EXPECT_EQ(inputs[0]["shape"], (std::vector<int64_t>{0, 4}));
  EXPECT_EQ(inputs[1]["shape"], (std::vector<int64_t>{3, 4}));
  onnx::GraphProto tensors;
  AddTensor(&tensors, "x", {3, 4});
  std::ofstream(dir_ + "/x.pb", std::ios::binary) << tensors.initializer(0).SerializeAsString();
  // What has no elements needs no file.
  const Result ran = Temper("run --input x=" + dir_ + "/x.pb " + package + " --output-dir " + dir_);
  EXPECT_EQ(ran.code, 0) << ran.out;
  EXPECT_NE(ran.out.find("y.npy: f32[3x4]"), std::string::npos) << ran.out;
  EXPECT_EQ(Temper("bench " + package + " --seconds 0.01 --json").code, 0);
  // A lock carries them.
  const std::string lock = dir_ + "/cached.lock";
  ASSERT_EQ(Temper("lock " + path + flags + " --untuned -o " + lock).code, 0);
  EXPECT_EQ(Temper("compile " + path + " --lock " + lock + " -o " + package).code, 0);
  const auto fails = [&](const std::string& said, const std::string& why) {
    const Result failed = Temper("compile " + path + said + " --untuned -o " + package);
    EXPECT_EQ(failed.code, 1) << failed.out;
    EXPECT_NE(failed.out.find(why), std::string::npos) << failed.out;
    EXPECT_EQ(std::count(failed.out.begin(), failed.out.end(), '\n'), 1) << failed.out;
  };
  fails(" --dim new=3", "or give --dim NAME=N for old");
  fails(" --dim new=-3", "--dim new=-3: expected NAME=1, NAME=1,8 or NAME=1..8");
  for (const char* range : {"3..1", "..3", "1..", "1...3", "-1..3"})
    fails(std::string(" --dim old=0 --dim new=") + range, ": expected NAME=1, NAME=1,8 or NAME=1..8");
  fails(" --dim old=0 --dim new=3,", "--dim new=3,: expected NAME=1, NAME=1,8 or NAME=1..8");
  fails(" --dim old=0 --dim new=3,3", "--dim new has one length twice");
  fails(" --dim old=0 --dim new=3,4 --dim new=3", "--dim is given twice for new");
  fails(" --dim old=0,1,2,3,4,5,6,7 --dim new=1,2,3,4,5,6,7,8,9", "--dim asks for more than 64 variants");
  fails(" --dim new=3 --dim new=4", "--dim is given twice for new");
  fails(flags + " --dim no=3", "no such dimension, only new, old");
  fails(" --value flag=", "expected NAME=1, NAME=true or NAME=1,2,3");
  fails(" --dim old=0 --dim new=3 --value flag=2", "'2' is no bool");
}

TEST_F(CliTest, EachOutputHasItsOwnFile) {
  onnx::ModelProto model;
  model.set_ir_version(8);
  model.add_opset_import()->set_version(17);
  onnx::GraphProto* graph = model.mutable_graph();
  SetValue(graph->add_input(), "x", {2});
  AddNode(graph, "Relu", {"x"}, "a/b");
  AddNode(graph, "Neg", {"x"}, "a_b");
  for (const char* name : {"a/b", "a_b"}) SetValue(graph->add_output(), name, {2});
  const std::string path = dir_ + "/twice.onnx";
  std::ofstream(path, std::ios::binary) << model.SerializeAsString();
  const std::string npy("\x93NUMPY\1\0", 8);
  const auto write = [&](const std::string& name, const std::string& shape) {
    std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (" + shape + "), }";
    header.append(117 - header.size(), ' ');
    std::ofstream(dir_ + "/" + name, std::ios::binary) << npy << 'v' << '\0' << header << '\n' << std::string(8, '\1');
  };
  write("x.npy", "2,");
  const auto run = [&](const std::string& input) {
    return Temper("run " + path + " --untuned --input x=" + dir_ + "/" + input + " --output-dir " + dir_ + "/out");
  };
  const Result ran = run("x.npy");
  EXPECT_EQ(ran.code, 0) << ran.out;
  EXPECT_TRUE(fs::exists(dir_ + "/out/a_b.npy"));
  EXPECT_TRUE(fs::exists(dir_ + "/out/a_b-2.npy")) << ran.out;
  // A file says that it has more than it has.
  const auto fails = [&](const std::string& shape, const std::string& why) {
    write("short.npy", shape);
    const Result failed = run("short.npy");
    EXPECT_EQ(failed.code, 1) << failed.out;
    EXPECT_NE(failed.out.find(why), std::string::npos) << failed.out;
  };
  fails("17179869184,", "truncated");
  fails("17592186044416,", "a tensor of 17592186044416 is too large");
  fails("0, 4611686018427387904, 4611686018427387904", "is too large");
  fails("1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1", "a tensor of 17 dimensions");
}

TEST_F(CliTest, APackageOfSeveralLengthsHasAVariantForEach) {
  const std::string path = dir_ + "/cached.onnx", package = dir_ + "/package", db = " --db " + dir_ + "/records.db";
  const std::string flags = " --dim new=3,5 --dim old=0 --value flag=false";
  WriteCached(path);
  Result result = Temper("tune " + path + flags + db + " --trials 4");
  ASSERT_EQ(result.code, 0) << result.out;
  EXPECT_NE(result.out.find("new=3 (variant 1 of 2)"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("new=5 (variant 2 of 2)"), std::string::npos) << result.out;
  result = Temper("compile " + path + flags + db + " -o " + package);
  ASSERT_EQ(result.code, 0) << result.out;
  EXPECT_NE(result.out.find("2 variants, "), std::string::npos) << result.out;
  const nlohmann::json manifest = Manifest("package");
  ASSERT_EQ(manifest["variants"].size(), 2u);
  EXPECT_EQ(manifest["inputs"], manifest["variants"][0]["inputs"]);
  EXPECT_EQ(manifest["variants"][1]["name"], "new=5");
  EXPECT_EQ(manifest["variants"][1]["inputs"][1]["shape"], (std::vector<int64_t>{5, 4}));
  // Each input finds its own.
  for (const int64_t rows : {5, 3, 4}) {
    onnx::GraphProto tensors;
    AddTensor(&tensors, "x", {rows, 4});
    std::ofstream(dir_ + "/x.pb", std::ios::binary) << tensors.initializer(0).SerializeAsString();
    result = Temper("run --input x=" + dir_ + "/x.pb " + package + " --output-dir " + dir_);
    EXPECT_EQ(result.code, rows == 4 ? 1 : 0) << result.out;
    const std::string says = rows == 4 ? "input 'x' is f32[4x4], the model takes f32[3x4] or f32[5x4]"
                                       : "y.npy: f32[" + std::to_string(rows) + "x4]";
    EXPECT_NE(result.out.find(says), std::string::npos) << result.out;
  }
  result = Temper("bench " + package + " --seconds 0.01 --json --profile");
  ASSERT_EQ(result.code, 0) << result.out;
  ASSERT_EQ(result.Lines().size(), 2u) << result.out;
  EXPECT_EQ(result.Lines()[1]["variant"], "new=5");
  // A range takes what lies in it; a lock has it too.
  const std::string lock = dir_ + "/cached.lock";
  ASSERT_EQ(Temper("lock " + path + " --dim new=1..5 --dim old=0 --value flag=false --untuned -o " + lock).code, 0);
  result = Temper("compile " + path + " --lock " + lock + " -o " + package);
  ASSERT_EQ(result.code, 0) << result.out;
  const nlohmann::json ranged = Manifest("package")["inputs"][1];
  EXPECT_EQ(ranged["least"], (std::vector<int64_t>{1, 4}));
  EXPECT_EQ(ranged["ranges"].size(), ranged["varies"].size());
  for (const int64_t rows : {5, 3, 6}) {
    onnx::GraphProto tensors;
    AddTensor(&tensors, "x", {rows, 4});
    std::ofstream(dir_ + "/x.pb", std::ios::binary) << tensors.initializer(0).SerializeAsString();
    result = Temper("run --input x=" + dir_ + "/x.pb " + package + " --output-dir " + dir_);
    EXPECT_EQ(result.code, rows == 6 ? 1 : 0) << result.out;
    const std::string says = rows == 6 ? "input 'x' is f32[6x4], the model takes f32[1x4] to f32[5x4]"
                                       : "y.npy: f32[" + std::to_string(rows) + "x4]";
    EXPECT_NE(result.out.find(says), std::string::npos) << result.out;
  }
  result = Temper("explain " + path + flags + db);
  EXPECT_EQ(result.code, 1);
  EXPECT_NE(result.out.find("--dim new=3,5: this command takes one length"), std::string::npos) << result.out;
  result = Temper("tune " + path + flags + db + " --events");
  EXPECT_EQ(result.code, 1);
  EXPECT_NE(result.out.find("tune one variant after another"), std::string::npos) << result.out;
}

TEST_F(CliTest, APackageTakesAnyPastAndWhatComesBehindIt) {
  const std::string path = dir_ + "/cached.onnx", package = dir_ + "/package";
  WriteCached(path);
  Result result =
      Temper("compile " + path + " --dim old=0..3 --dim new=1..5 --value flag=true --untuned -o " + package);
  ASSERT_EQ(result.code, 0) << result.out;
  EXPECT_EQ(Manifest("package")["outputs"][0]["shape"], (std::vector<int64_t>{8, 4}));
  for (const auto& [old, rows] : {std::pair<int64_t, int64_t>(3, 5), {0, 4}, {2, 1}}) {
    onnx::GraphProto tensors;
    AddTensor(&tensors, "past", {old, 4});
    AddTensor(&tensors, "x", {rows, 4});
    std::ofstream(dir_ + "/past.pb", std::ios::binary) << tensors.initializer(0).SerializeAsString();
    std::ofstream(dir_ + "/x.pb", std::ios::binary) << tensors.initializer(1).SerializeAsString();
    result = Temper("run --input past=" + dir_ + "/past.pb --input x=" + dir_ + "/x.pb " + package + " --output-dir " +
                    dir_);
    EXPECT_EQ(result.code, 0) << result.out;
    EXPECT_NE(result.out.find("y.npy: f32[" + std::to_string(old + rows) + "x4]"), std::string::npos) << result.out;
  }
}

TEST_F(CliTest, CudaCodeIsMadeWithoutAGpu) {
  const std::string compile = "compile " + model_ + " -o " + dir_ + "/p --target cuda:", none = "TEMPER_NVRTC=/none ";
  const auto refused = [&](const Result& result, const std::string& word) {
    EXPECT_EQ(result.code, 1) << result.out;
    EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 1) << result.out;
    EXPECT_NE(result.out.find(word), std::string::npos) << result.out;
    EXPECT_FALSE(fs::exists(dir_ + "/p"));
  };
  refused(Temper(compile + "sm_91"), "sm_91");
  refused(Temper(compile + "sm_90", none), "no NVRTC");
  // What would be built can be told all the same.
  const Result told = Temper("explain " + model_ + " --target cuda:sm_90", none);
  EXPECT_EQ(told.code, 0) << told.out;
  EXPECT_NE(told.out.find("3 operators"), std::string::npos) << told.out;
  if (!fs::exists(std::string(TEMPER_BINARY_DIR) + "/nvrtc")) GTEST_SKIP() << "no NVRTC in the build folder";
  const Result made = Temper(compile + "sm_90");
  EXPECT_EQ(made.code, 0) << made.out;
  EXPECT_TRUE(fs::exists(dir_ + "/p"));
}

TEST_F(CliTest, ASecondTuneGoesOnAndRepeatsNothing) {
  const std::string db = dir_ + "/records.db";
  for (int run = 0; run < 2; ++run) {
    Result tuned = Temper("tune " + model_ + " --db " + db + " --trials 8 --json " + dir_ + "/report.json");
    ASSERT_EQ(tuned.code, 0) << tuned.out;
  }
  nlohmann::json report = nlohmann::json::parse(std::ifstream(dir_ + "/report.json"));
  for (const char* field : {"model", "target", "device", "trials", "seconds", "trials_per_second", "outcomes",
                            "untuned_ms", "tuned_ms", "tasks"}) {
    EXPECT_TRUE(report.contains(field)) << field;
  }
  std::set<std::string> searched;
  for (const nlohmann::json& record : Temper("db list --json --db " + db).Lines()) {
    if (record["purpose"] != "search") continue;
    EXPECT_EQ(record["outcome"], "ok") << record.dump();
    const std::string trial = record["workload"].get<std::string>() + "|" + record["template"].get<std::string>() +
                              "|" + record["config"].get<std::string>();
    EXPECT_TRUE(searched.insert(trial).second) << "measured twice: " << trial;
  }
  EXPECT_GE(searched.size(), 9u);
  Result compiled = Temper("compile " + model_ + " --db " + db + " -o " + dir_ + "/package");
  ASSERT_EQ(compiled.code, 0) << compiled.out;
  EXPECT_NE(Manifest("package")["tuned"], report["kept_default"]) << "as its end-to-end measurement said";
}

TEST_F(CliTest, ProgramsReadHowFarATuneIs) {
  const Result tuned = Temper("tune " + model_ + " --db " + dir_ + "/records.db --trials 2 --events");
  ASSERT_EQ(tuned.code, 0) << tuned.out;
  const std::vector<nlohmann::json> lines = tuned.Lines();
  EXPECT_EQ(std::count(tuned.out.begin(), tuned.out.end(), '\n'), std::ssize(lines)) << tuned.out;
  ASSERT_GE(lines.size(), 2u);
  EXPECT_EQ(lines.back()["report"]["state"], "done");
  const nlohmann::json& last = lines[lines.size() - 2];
  EXPECT_EQ(last["state"], "done");
  EXPECT_EQ(last["trials"], lines.back()["report"]["trials"]);
  EXPECT_GT(last["untuned_ms"], 0);
  EXPECT_GT(last["job"], 0);
}

TEST_F(CliTest, ATuneWithoutAnotherLimitEndsWhereLittleIsToBeGained) {
  const std::string command = "tune " + model_ + " --db " + dir_ + "/records.db --json " + dir_ + "/report.json";
  const Result unsound = Temper(command + " --min-gain 5");
  EXPECT_EQ(unsound.code, 1);
  EXPECT_NE(unsound.out.find("--min-gain 5: "), std::string::npos) << unsound.out;
  const Result tuned = Temper(command + " --min-gain 30%");
  ASSERT_EQ(tuned.code, 0) << tuned.out;
  EXPECT_NE(tuned.out.find("trials by operator: "), std::string::npos) << tuned.out;
  const nlohmann::json report = nlohmann::json::parse(std::ifstream(dir_ + "/report.json"));
  for (const nlohmann::json& task : report["tasks"]) {
    EXPECT_TRUE(task["why_done"] == "min_gain" || task["why_done"] == "exhausted") << task.dump();
  }
  int trials = 0;
  for (const auto& [op, count] : report["operators"].items()) trials += count["trials"].get<int>();
  EXPECT_EQ(trials, report["trials"].get<int>());
}

TEST_F(CliTest, AModelThatWasNoFasterTunedIsBuiltUntuned) {
  const std::string db = dir_ + "/records.db", address = "unix:" + dir_ + "/server";
  ASSERT_EQ(Temper("tune " + model_ + " --db " + db + " --trials 8").code, 0);
  for (const std::string verdict : {"default", "tuned"}) {
    {
      auto store = temper::OpenStore(db);
      ASSERT_TRUE(store.ok()) << store.status();
      temper::JobRow job = *(*store)->GetJob(1);
      EXPECT_FALSE(job.build_with.empty());
      job.build_with = verdict;
      ASSERT_TRUE((*store)->UpdateJob(job).ok());
    }
    Background server({kBin + "temper-server", "--db", db, "--listen", address});
    while (Temper("devices --server " + address).code != 0) ASSERT_TRUE(server.Running());
    for (const std::string& source : {"--server " + address, "--db " + db}) {
      const Result compiled = Temper("compile " + model_ + " " + source + " -o " + dir_ + "/package");
      ASSERT_EQ(compiled.code, 0) << compiled.out;
      EXPECT_EQ(compiled.out.find("job 1 measured") != std::string::npos, verdict == "default") << compiled.out;
      if (verdict == "default") {
        EXPECT_FALSE(Manifest("package")["tuned"].get<bool>()) << source;
      }
    }
  }
}

TEST_F(CliTest, ADatabaseThatCannotBeUsedIsOneLineAndIsLeftAlone) {
  const std::string db = dir_ + "/records.db";
  ASSERT_EQ(Temper("tune " + model_ + " --db " + db + " --trials 4").code, 0);
  ASSERT_EQ(Temper("db export " + dir_ + "/records.jsonl --db " + db).code, 0);
  const auto refused = [&](const std::string& before, const std::string& file, const std::string& says) {
    const std::string bytes = Bytes(file);
    for (const std::string& command : {"tune " + model_ + " --trials 4", "compile " + model_ + " -o " + dir_ + "/p",
                                       std::string("db list"), "db import " + dir_ + "/records.jsonl"}) {
      if (!before.empty() && !command.starts_with("tune") && !command.starts_with("db import")) continue;
      const Result result = Temper(command + " --db " + file, before);
      EXPECT_EQ(result.code, 1) << command;
      EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 1) << command << ": " << result.out;
      EXPECT_NE(result.out.find(says), std::string::npos) << command << ": " << result.out;
    }
    EXPECT_EQ(Bytes(file), bytes);
  };
  std::string bytes = Bytes(db);
  for (size_t page = 4096; page < bytes.size(); page += 4096) bytes.replace(page, 64, 64, '\xab');
  std::ofstream(dir_ + "/damaged.db", std::ios::binary) << bytes;
  refused("", dir_ + "/damaged.db", "damaged");
  bytes = Bytes(db);
  bytes.replace(60, 4, std::string("\0\0\0\x63", 4));  // user_version
  std::ofstream(dir_ + "/newer.db", std::ios::binary) << bytes;
  refused("", dir_ + "/newer.db", "newer");
  fs::copy_file(db, dir_ + "/full.db");
  refused("ulimit -f 4; ", dir_ + "/full.db", "full.db");  // as a full disk, nothing may grow
  Background server({kBin + "temper-server", "--db", db, "--listen", "unix:" + dir_ + "/server"});
  while (Temper("devices --server unix:" + dir_ + "/server").code != 0) ASSERT_TRUE(server.Running());
  const Result held = Temper("tune " + model_ + " --trials 4 --db " + db);
  EXPECT_EQ(held.code, 1);
  EXPECT_EQ(std::count(held.out.begin(), held.out.end(), '\n'), 1) << held.out;
  EXPECT_NE(held.out.find("is writing it"), std::string::npos) << held.out;
}

TEST_F(CliTest, AnImportTakesEachTrialOnceAndASnapshotIsADatabase) {
  const std::string db = dir_ + "/records.db", lines = dir_ + "/records.jsonl", copy = dir_ + "/copy.db";
  ASSERT_EQ(Temper("tune " + model_ + " --db " + db + " --trials 4").code, 0);
  ASSERT_EQ(Temper("db export " + lines + " --db " + db).code, 0);
  const size_t count = Temper("db list --json --db " + db).Lines().size();
  const std::string all = std::to_string(count);
  EXPECT_EQ(Temper("db import " + lines + " --db " + dir_ + "/new.db").out, all + " records added\n");
  EXPECT_EQ(Temper("db import " + lines + " --db " + dir_ + "/new.db").out,
            "0 records added, " + all + " were there already\n");
  EXPECT_EQ(Temper("db merge " + db + " --db " + dir_ + "/new.db").out,
            "0 records added, " + all + " were there already\n");
  for (const nlohmann::json& record : Temper("db list --json --db " + dir_ + "/new.db").Lines())
    EXPECT_EQ(record["job"], 0);
  EXPECT_EQ(Temper("db export --snapshot " + copy + " --db " + db).code, 0);
  EXPECT_EQ(Temper("db list --json --db " + copy).Lines().size(), count);
  EXPECT_EQ(Temper("db export --snapshot " + copy + " --db " + db).code, 1) << "there is one already";
  // A source that cannot be read leaves an earlier export alone.
  const std::string before = Bytes(lines);
  EXPECT_EQ(Temper("db export " + lines + " --db " + dir_ + "/none.db").code, 1);
  EXPECT_EQ(Bytes(lines), before);
}

TEST_F(CliTest, ALocalRunThatBreaksSaysWhyInOneLine) {
  const Result result = Temper("tune " + model_ + " --db " + dir_ + "/records.db --trials 4 --cores cpu:100000");
  EXPECT_EQ(result.code, 1);
  EXPECT_NE(result.out.find("temper: "), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("core"), std::string::npos) << result.out;
}

TEST_F(CliTest, RevalidatesWithoutASearch) {
  const std::string db = dir_ + "/records.db", tune = "tune " + model_ + " --db " + db;
  const Result nothing = Temper(tune + " --revalidate");
  EXPECT_EQ(nothing.code, 1);
  EXPECT_NE(nothing.out.find("nothing to measure again"), std::string::npos) << nothing.out;
  ASSERT_EQ(Temper(tune + " --trials 8").code, 0);
  const auto count = [&] {
    std::map<std::string, int> purposes;
    for (const nlohmann::json& record : Temper("db list --json --db " + db).Lines()) ++purposes[record["purpose"]];
    return purposes;
  };
  std::map<std::string, int> before = count();
  const Result again = Temper(tune + " --revalidate");
  ASSERT_EQ(again.code, 0) << again.out;
  std::map<std::string, int> after = count();
  EXPECT_GT(after["revalidate"], 0);
  EXPECT_EQ(after["search"], before["search"]);
  EXPECT_EQ(after["final"], before["final"]);
}

TEST_F(CliTest, TunesForAnotherTargetThatRunsHere) {
  const std::string db = " --db " + dir_ + "/t.db";
  const Result tuned = Temper("tune " + model_ + db + " --trials 24 --target llvm:nehalem");
  ASSERT_EQ(tuned.code, 0) << tuned.out;
  for (const nlohmann::json& record : Temper("db list --json" + db).Lines())
    EXPECT_NE(record["target"].get<std::string>().find("nehalem"), std::string::npos);
  // Others find them by the same name: with as many threads as they were measured with, or else they say so.
  for (const nlohmann::json& task : Temper("tasks " + model_ + db + " --json --target llvm:nehalem").Lines())
    EXPECT_FALSE(task["best_ms"].is_null()) << task.dump();
  const std::string compile = "compile " + model_ + db + " -o " + dir_ + "/package --target ";
  const Result found = Temper(compile + "llvm:nehalem");
  EXPECT_EQ(found.code, 0) << found.out;
  EXPECT_EQ(found.out.find("note: "), std::string::npos) << found.out;
  const Result others = Temper(compile + "llvm:nehalem --threads 99");
  EXPECT_EQ(others.code, 0) << others.out;
  EXPECT_NE(others.out.find(" threads, not for 99\n"), std::string::npos) << others.out;
  EXPECT_NE(Manifest("package")["target"].get<std::string>().find("-threads=99"), std::string::npos);
  EXPECT_NE(Temper(compile + "llvm:haswell").out.find(" for other targets, not for haswell: "), std::string::npos);
  const Result both = Temper(compile + "'llvm:nehalem -threads=3' --threads 2");
  EXPECT_EQ(both.out, "temper: --target says -threads=3 and --threads says 2: give one\n");
  const Result unknown = Temper("tune " + model_ + db + " --target llvm:nothing");
  EXPECT_NE(unknown.code, 0);
  EXPECT_NE(unknown.out.find("nothing"), std::string::npos) << unknown.out;
  EXPECT_NE(Temper("tune " + model_ + " --server unix:" + dir_ + "/none --device a --target llvm:nehalem").code, 0);
}

TEST_F(CliTest, AFleetServesKeysAndOutlivesAWorker) {
  const std::string address = "unix:" + dir_ + "/server", db = dir_ + "/fleet.db",
                    server_option = " --server " + address;
  Background server({kBin + "temper-server", "--db", db, "--listen", address});
  auto worker = [&](const std::string& key) {
    return std::vector<std::string>{kBin + "temper-worker", "--server", address, "--key", key};
  };
  auto a = std::make_unique<Background>(worker("a"));
  Background b(worker("b"));
  // Each look is a call to the server, which answers with what it knows at that moment.
  auto state_of = [&](const std::string& key) {
    for (const nlohmann::json& device : Temper("devices --json" + server_option).Lines()) {
      if (device["key"] == key) return device["state"].get<std::string>();
    }
    return std::string();
  };
  while (state_of("a").empty() || state_of("b").empty()) ASSERT_TRUE(server.Running() && a->Running() && b.Running());

  Result nobody = Temper("tune " + model_ + server_option + " --device c --trials 4 --wait-for-device 100ms");
  EXPECT_EQ(nobody.code, 1);
  EXPECT_NE(nobody.out.find("'c'"), std::string::npos) << nobody.out;

  Background tune({kBin + "temper", "tune", model_, "--server", address, "--device", "a", "--trials", "30"});
  while (tune.Running() && state_of("a") != "measuring") {
  }
  a->End(SIGKILL);
  a = std::make_unique<Background>(worker("a"));
  EXPECT_EQ(tune.End(0), 0);
  int trials = 0;
  for (const nlohmann::json& record : Temper("db list --json --db " + db).Lines()) {
    EXPECT_EQ(record["device"], "a");
    ++trials;
  }
  int there_are = 0;
  for (const nlohmann::json& task : Temper("tasks --json " + model_).Lines())
    there_are += task["space_size"].get<int>();
  EXPECT_GE(trials, std::min(30, there_are));
  Result compiled = Temper("compile " + model_ + server_option + " --device a -o " + dir_ + "/package");
  EXPECT_EQ(compiled.code, 0) << compiled.out;
  EXPECT_EQ(Temper("compile " + model_ + server_option + " --device nobody -o " + dir_ + "/package").code, 1);
  EXPECT_EQ(server.End(SIGTERM), 0);
}

}  // namespace
}  // namespace temper::cli_test
