// Lock files as a user meets them: what they pin, that nothing else decides, and what is said where they do not fit.
#include <algorithm>
#include <functional>
#include <map>

#include "lock/lock.h"
#include "storage/store.h"
#include "tests/chaos/process.h"
#include "tests/cli/cli_fixture.h"
#include "tests/lock/other_record.h"

namespace temper::cli_test {
namespace {

using nlohmann::json;

// Every file of a package.
std::map<std::string, std::string> Contents(const std::string& dir) {
  std::map<std::string, std::string> files;
  for (const auto& file : fs::directory_iterator(dir)) files[file.path().filename()] = Bytes(file.path());
  return files;
}

class LockTest : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    UseOwnRecords();
    db_ = dir_ + "/records.db";
    lock_ = dir_ + "/tiny.lock";
  }

  void MakeLock(const std::string& options, const std::string& lock) {
    const Result made = Temper("lock " + model_ + " " + options + " -o " + lock);
    ASSERT_EQ(made.code, 0) << made.out;
  }
  void MakeLock(const std::string& options = "") { MakeLock(options, lock_); }

  Result Compile(const std::string& options = "", const std::string& before = "") {
    return Temper("compile " + model_ + " --lock " + lock_ + " " + options + " -o " + dir_ + "/package", before);
  }
  // It fails, in one line besides the table of kernels, which says `says`.
  void Refuses(const Result& result, const std::string& says) {
    EXPECT_EQ(result.code, 1) << says << ": " << result.out;
    EXPECT_NE(result.out.find(says), std::string::npos) << result.out;
    const size_t line = result.out.find("temper: ");
    ASSERT_NE(line, std::string::npos) << result.out;
    EXPECT_EQ(result.out.find('\n', line), result.out.size() - 1) << result.out;
    EXPECT_FALSE(fs::exists(dir_ + "/package")) << says;
  }

  Record RecordOfAnotherConfig(const std::string& device, double ms) {
    const absl::StatusOr<Record> record = temper::RecordOfAnotherConfig(lock_, device, ms * 1e-3);
    EXPECT_TRUE(record.ok()) << record.status();
    return *record;
  }
  void Store(const Record& record) {
    auto store = OpenStore(db_);
    ASSERT_TRUE(store.ok()) << store.status();
    ASSERT_TRUE((*store)->Append(std::span(&record, 1)).ok());
  }

  // The file as JSON, changed and written back: as a hand or a bad disk would.
  void Edit(const std::function<void(json&)>& change) {
    json lock = json::parse(std::ifstream(lock_));
    change(lock);
    std::ofstream(lock_) << lock.dump(1);
  }
  // Its pins changed, with a digest that fits: as another build of temper would have written it.
  void Rewrite(const std::function<void(LockPins&)>& change) {
    absl::StatusOr<Lock> lock = ReadLock(lock_);
    ASSERT_TRUE(lock.ok()) << lock.status();
    LockEntry entry = lock->entries[0];
    lock->entries.clear();
    change(entry.pins);
    PutEntry(*lock, MakeEntry(entry.pins, entry.evidence));
    ASSERT_TRUE(WriteLock(*lock, lock_).ok());
  }

  std::string db_, lock_;
};

TEST_F(LockTest, TheSameLockGivesTheSameBytesWhateverTheDatabaseHolds) {
  MakeLock("--untuned");
  const Record record = RecordOfAnotherConfig("here", 0.01);
  Store(record);
  MakeLock("--device here --db " + db_);
  std::vector<std::map<std::string, std::string>> packages;
  for (const std::string folder : {"/a", "/b/deeper"}) {
    fs::create_directories(dir_ + folder);
    // The second time there are no records, and who asks for some fails.
    const std::string before =
        folder == "/a" ? "" : "cd " + dir_ + folder + "; export TEMPER_DB=/nowhere/x.db TEMPER_SERVER=unix:/nowhere; ";
    if (folder != "/a") fs::remove(db_);
    const std::string package = dir_ + folder + "/package";
    const Result compiled = Temper("compile " + model_ + " --lock " + lock_ + " -o " + package, before);
    ASSERT_EQ(compiled.code, 0) << compiled.out;
    packages.push_back(Contents(package));
  }
  EXPECT_EQ(packages[0].size(), 4u);
  EXPECT_EQ(packages[0], packages[1]);
  int from_record = 0;
  const json manifest = Manifest("a/package");
  for (const json& kernel : manifest["kernels"]) {
    if (kernel["workload"] == record.workload) {
      ++from_record;
      EXPECT_EQ(kernel["config"], record.config);
      EXPECT_EQ(kernel["level"], "locked");
    } else {
      EXPECT_EQ(kernel["level"], "default");
    }
  }
  EXPECT_EQ(from_record, 1);
}

TEST_F(LockTest, ALockOfSeveralLengthsIsOfAllVariants) {
  onnx::ModelProto model;
  std::ifstream file(model_, std::ios::binary);
  ASSERT_TRUE(model.ParseFromIstream(&file));
  for (onnx::ValueInfoProto* value :
       {model.mutable_graph()->mutable_input(0), model.mutable_graph()->mutable_output(0)})
    value->mutable_type()->mutable_tensor_type()->mutable_shape()->mutable_dim(0)->set_dim_param("batch");
  std::ofstream(model_, std::ios::binary | std::ios::trunc) << model.SerializeAsString();
  MakeLock("--untuned --dim batch=2,1");
  ASSERT_EQ(Compile().code, 0);
  const std::map<std::string, std::string> locked = Contents(dir_ + "/package");
  ASSERT_EQ(Manifest("package")["variants"].size(), 2u);
  EXPECT_EQ(Manifest("package")["variants"][0]["name"], "batch=2");
  ASSERT_EQ(Compile("--dim batch=2,1").code, 0);
  EXPECT_EQ(Contents(dir_ + "/package"), locked);
  const Result verified = Temper("verify " + dir_ + "/package --lock " + lock_ + " --model " + model_);
  EXPECT_EQ(verified.code, 0) << verified.out;
  EXPECT_NE(verified.out.find("and every byte"), std::string::npos) << verified.out;
  fs::remove_all(dir_ + "/package");
  Refuses(Compile("--dim batch=1"), "was made with other dimensions than --dim gives");
  // A kernel of the second variant alone.
  Rewrite([](LockPins& pins) { pins.kernels.pop_back(); });
  Refuses(Compile(), "choices were removed from it");
}

// A server that runs, with a worker of the device and the database's records.
TEST_F(LockTest, ALockFromAServerPinsWhatOneFromTheDatabasePins) {
  MakeLock("--untuned");
  const Record record = RecordOfAnotherConfig("board", 0.01);
  Store(record);
  MakeLock("--device board --db " + db_);
  ASSERT_EQ(Compile().code, 0);
  const auto package = Contents(dir_ + "/package");

  ServerProcess server;
  ASSERT_TRUE(server.Start({.db = "memory:"}).ok()) << server.Errors();
  const std::string there = " --server " + server.address();
  ASSERT_EQ(Temper("db export " + dir_ + "/records.jsonl --db " + db_).code, 0);
  const Result put = Temper("db import " + dir_ + "/records.jsonl" + there);
  ASSERT_EQ(put.code, 0) << put.out;
  const Result unknown = Temper("lock " + model_ + " --device nobody" + there + " -o " + dir_ + "/none.lock");
  EXPECT_NE(unknown.out.find("the server knows no device 'nobody'"), std::string::npos) << unknown.out;
  // Without a worker of the device, its records say what its target is.
  const Result from_records = Temper("lock " + model_ + " --device board" + there + " -o " + dir_ + "/records.lock");
  EXPECT_EQ(from_records.code, 0) << from_records.out;
  EXPECT_EQ(ReadLock(dir_ + "/records.lock")->entries.at(0).pins.target, record.target);
  WorkerProcess worker;
  ASSERT_TRUE(worker.Start(server.address(), "board", dir_ + "/worker").ok());
  while (Temper("devices --json" + there).Lines().empty())
    ASSERT_FALSE(worker.EndsWithin(absl::ZeroDuration())) << worker.Errors();

  lock_ = dir_ + "/from_server.lock";
  MakeLock("--device board" + there);
  server.KillAndWait();
  fs::remove(db_);
  fs::remove_all(dir_ + "/package");
  const Result compiled = Compile("", "export TEMPER_DB=/nowhere/x.db TEMPER_SERVER=unix:/nowhere; ");
  ASSERT_EQ(compiled.code, 0) << compiled.out;
  EXPECT_TRUE(Contents(dir_ + "/package") == package);
  bool of_record = false;
  const json manifest = Manifest("package");
  for (const json& kernel : manifest["kernels"])
    of_record |= kernel["workload"] == record.workload && kernel["config"] == record.config;
  EXPECT_TRUE(of_record);
  const absl::StatusOr<Lock> here = ReadLock(dir_ + "/tiny.lock"), away = ReadLock(lock_);
  ASSERT_TRUE(here.ok() && away.ok());
  // The untuned lock before was of the same target, so each file has one entry.
  EXPECT_TRUE(here->entries.at(0).pins == away->entries.at(0).pins);
}

// On an emulated CPU without AVX and FMA. What could tell it: the packing of filters, which runs on the building
// machine (Winograd's computes), and the folding of constants by references and the C library.
TEST_F(LockTest, AnotherCpuMakesTheSameLockAndTheSameBytes) {
  const std::string emulator = "qemu-x86_64 -cpu Nehalem ";
  if (std::system("qemu-x86_64 --version >/dev/null 2>&1") != 0) GTEST_SKIP() << "qemu-user is not installed";
  onnx::ModelProto model;
  {
    std::ifstream file(model_, std::ios::binary);
    ASSERT_TRUE(model.ParseFromIstream(&file));
  }
  onnx::GraphProto* graph = model.mutable_graph();
  graph->Clear();
  AddTensor(graph, "w", {64, 64, 3, 3});
  AddTensor(graph, "a", {64, 14, 40});
  AddTensor(graph, "b", {64, 40, 14});
  AddNode(graph, "Conv", {"x", "w"}, "c");
  AddNode(graph, "MatMul", {"a", "b"}, "m");
  AddNode(graph, "Exp", {"m"}, "e");
  AddNode(graph, "Add", {"c", "e"}, "y");
  SetValue(graph->add_input(), "x", {1, 64, 16, 16});
  SetValue(graph->add_output(), "y", {1, 64, 14, 14});
  {
    std::ofstream file(model_, std::ios::binary);
    ASSERT_TRUE(model.SerializeToOstream(&file));
  }
  std::vector<std::string> locks;
  std::vector<std::map<std::string, std::string>> packages;
  for (const std::string& cpu : {std::string(), emulator}) {
    const Result locked = Temper("lock " + model_ + " --untuned --target llvm:haswell -o " + lock_, cpu);
    ASSERT_EQ(locked.code, 0) << locked.out;
    const Result compiled = Compile("", cpu);
    ASSERT_EQ(compiled.code, 0) << compiled.out;
    locks.push_back(Bytes(lock_));
    packages.push_back(Contents(dir_ + "/package"));
    fs::remove(lock_);
  }
  EXPECT_EQ(locks[0], locks[1]);
  EXPECT_NE(locks[0].find("conv2d.winograd"), std::string::npos) << "no filter is transformed by the building machine";
  EXPECT_EQ(packages[0].size(), 4u);
  EXPECT_TRUE(packages[0] == packages[1]);
}

// What is known of a choice is no part of it.
TEST_F(LockTest, SaysForProgramsWhatWasLocked) {
  const Result said = Temper("lock " + model_ + " --untuned --json -o " + lock_);
  ASSERT_EQ(said.Lines().size(), 1u) << said.out;
  const absl::StatusOr<Lock> lock = ReadLock(lock_);
  ASSERT_TRUE(lock.ok()) << lock.status();
  EXPECT_EQ(said.Lines()[0]["digest"], lock->entries.at(0).digest);
  EXPECT_EQ(said.Lines()[0]["kernels"], lock->entries.at(0).pins.kernels.size());
  EXPECT_EQ(said.Lines()[0]["coverage"], 0);
}

TEST_F(LockTest, EvidenceChangesNoByte) {
  MakeLock("--untuned");
  Record record = RecordOfAnotherConfig("here", 2);
  record.codegen_id = "of-old";
  Store(record);
  MakeLock("--db " + db_);
  ASSERT_EQ(Compile().code, 0);
  const auto package = Contents(dir_ + "/package");
  Edit([](json& lock) {
    json& evidence = lock["entries"][0]["evidence"];
    evidence["device"] = "another";
    for (json& kernel : evidence["kernels"]) {
      kernel["record"] = 99;
      kernel["source"] = "other_device";
      kernel["device"] = "there";
      kernel["ms"] = 1.5;
      kernel["stale"] = !kernel["stale"].get<bool>();
    }
  });
  ASSERT_EQ(Compile().code, 0);
  EXPECT_TRUE(Contents(dir_ + "/package") == package);
  Edit([](json& lock) { lock["entries"][0]["evidence"]["kernels"] = json::object(); });
  ASSERT_EQ(Compile().code, 0) << "evidence may be gone";
  EXPECT_TRUE(Contents(dir_ + "/package") == package);
  fs::remove_all(dir_ + "/package");
  Refuses(Compile("--min-coverage 0.01"), "--min-coverage wants 1.0 %");
}

TEST_F(LockTest, SeveralTargetsShareOneFile) {
  MakeLock();
  const std::string one = Bytes(lock_);
  MakeLock();
  EXPECT_EQ(Bytes(lock_), one) << "the same lock is the same text";
  MakeLock("--target llvm:haswell");
  MakeLock();
  const json lock = json::parse(std::ifstream(lock_));
  ASSERT_EQ(lock["entries"].size(), 2u);
  Refuses(Compile(), "entries for several targets");
  Refuses(Compile("--target llvm:nehalem"), "no entry for target");
  for (const json& entry : lock["entries"]) {
    const std::string target = entry["target"];
    const Result compiled = Compile("--target '" + target + "'");
    ASSERT_EQ(compiled.code, 0) << compiled.out;
    EXPECT_EQ(Manifest("package")["target"], target);
    EXPECT_EQ(Manifest("package")["lock"], entry["digest"]);
  }
  EXPECT_EQ(Compile("--target llvm:haswell").code, 0);
  // For a number of threads that another machine has.
  MakeLock("--target llvm:haswell --threads 99");
  fs::remove_all(dir_ + "/package");
  Refuses(Compile("--target llvm:haswell"), "several entries for target llvm:haswell: choose by");
  EXPECT_EQ(Compile("--target llvm:haswell --threads 99").code, 0);
  EXPECT_NE(Manifest("package")["target"].get<std::string>().find("-threads=99"), std::string::npos);
}

TEST_F(LockTest, EachThingThatDoesNotFitIsToldApart) {
  MakeLock("--untuned");
  const std::string whole = Bytes(lock_);
  const auto with = [&](const std::function<void(json&)>& change, const std::string& says) {
    std::ofstream(lock_) << whole;
    Edit(change);
    Refuses(Compile(), says);
  };
  with([](json& lock) { lock["entries"][0]["pins"]["kernels"][0]["config"] = "vectors=1"; }, "was changed since");
  with([](json& lock) { lock["entries"][0]["pins"]["kernels"].erase(0); }, "some were removed or added since");
  with([](json& lock) { lock["temper_lock"] = kLockFormat + 1; }, "a newer temper wrote it");
  with([](json& lock) { lock["entries"][0].erase("pins"); }, "is damaged, or no lock file");
  with([](json& lock) { lock["entries"][0]["pins"]["kernels"] = 3; }, "is damaged, or no lock file");
  with([](json& lock) { lock = json::array(); }, "is damaged, or no lock file");
  std::ofstream(lock_) << whole.substr(0, whole.size() / 2);
  Refuses(Compile(), "is not JSON");
  fs::remove(lock_);
  Refuses(Compile(), "there is no such file");

  const auto rewritten = [&](const std::function<void(LockPins&)>& change, const std::string& says) {
    std::ofstream(lock_) << whole;
    Rewrite(change);
    Refuses(Compile(), says);
  };
  rewritten([](LockPins& pins) { ++pins.kernels[0].template_version; }, "tune and lock again");
  rewritten([](LockPins& pins) { pins.kernels[0].template_name = "none.such"; }, "wants the template none.such");
  rewritten([](LockPins& pins) { pins.codegen_id = "0-llvm1"; }, "was made with code generator 0-llvm1");
  rewritten([](LockPins& pins) { pins.tools = "LLVM 1.0.0"; }, "LLVM 1.0.0");
  rewritten([](LockPins& pins) { pins.kernels[0].config = "vectors=99"; }, "is not legal in this build");
  rewritten([](LockPins& pins) { pins.kernels.pop_back(); }, "choices were removed from it");
  std::ofstream(lock_) << whole;
  Refuses(Compile("--shape x=2,3,8,8"), "other shapes");
  Refuses(Compile("--dim n=2"), "other dimensions than --dim");
  Refuses(Compile("--value x=2"), "other values than --value");
  Refuses(Compile("--winograd off"), "--winograd on, not off");
  Refuses(Compile("--tf32 on"), "--tf32 off, not on");
  Refuses(Compile("--bf16 on"), "--bf16 off, not on");
  EXPECT_EQ(Compile("--untuned").code, 2) << "a lock is the only source";
  EXPECT_EQ(Compile("--db " + db_).code, 2);
  EXPECT_EQ(Compile().code, 0);
}

// Both ways: what was measured with TF32 is for no model without it, nor the reverse.
TEST_F(LockTest, ARecordIsForModelsThatAllowTf32OrForTheOthers) {
  const std::string target = "--target cuda:sm_80", with[] = {target, target + " --tf32 on"};
  const auto evidence = [&](const std::string& options) {
    const std::string path = dir_ + "/of_records.lock";
    fs::remove(path);
    MakeLock(options + " --device gpu --db " + db_, path);
    const Lock lock = ReadLock(path).value();
    int from_records = 0;
    for (const auto& [id, kernel] : lock.entries[0].evidence.kernels) from_records += kernel.record > 0 ? 1 : 0;
    return from_records;
  };
  for (const bool tf32 : {false, true}) {
    fs::remove(db_);
    fs::remove(lock_);
    MakeLock(with[tf32] + " --untuned");
    EXPECT_EQ(ReadLock(lock_)->entries[0].pins.tf32, tf32 ? "on" : "off");
    Rewrite([](LockPins& pins) {
      std::erase_if(pins.kernels,
                    [](const LockedKernel& k) { return k.workload.find("matmul(") == std::string::npos; });
    });
    Store(RecordOfAnotherConfig("gpu", 0.01));
    EXPECT_EQ(evidence(with[tf32]), 1);
    EXPECT_EQ(evidence(with[!tf32]), 0) << "of " << with[tf32];
  }
  for (const char* none : {"cuda:sm_75", "opencl"})
    Refuses(Temper("lock " + model_ + " --untuned --tf32 on --target " + none + " -o " + lock_),
            "multiplies nothing in TF32");
}

TEST_F(LockTest, ALockSaysThatProductsMayBeOfBf16) {
  MakeLock("--untuned --bf16 on --target llvm:sapphirerapids");
  EXPECT_EQ(ReadLock(lock_)->entries[0].pins.bf16, "on");
  Refuses(Temper("lock " + model_ + " --untuned --bf16 on --target llvm:haswell -o " + lock_),
          "multiplies no f32 in bf16");
}

TEST_F(LockTest, AModelThatIsAnotherOrHasChangedGetsATableOfWhatIsMissing) {
  MakeLock("--untuned");
  onnx::ModelProto model;
  {
    std::ifstream file(model_, std::ios::binary);
    ASSERT_TRUE(model.ParseFromIstream(&file));
  }
  const auto write = [&] {
    std::ofstream file(model_, std::ios::binary);
    ASSERT_TRUE(model.SerializeToOstream(&file));
  };
  // Of other weights it is the same model.
  model.mutable_graph()->mutable_initializer(0)->set_float_data(0, 2.5f);
  write();
  EXPECT_EQ(Compile().code, 0);
  fs::remove_all(dir_ + "/package");
  AddNode(model.mutable_graph(), "Sigmoid", {"y"}, "s");
  SetValue(model.mutable_graph()->mutable_output(0), "s", {1, 10});
  write();
  const Result changed = Compile();
  Refuses(changed, "has changed since");
  EXPECT_NE(changed.out.find("\n  matmul+sigmoid "), std::string::npos) << changed.out;
  EXPECT_NE(changed.out.find("temper tune " + model_), std::string::npos) << changed.out;
  EXPECT_NE(changed.out.find("temper lock " + model_), std::string::npos) << changed.out;
  onnx::GraphProto* graph = model.mutable_graph();
  graph->Clear();
  AddNode(graph, "Sigmoid", {"x"}, "y");
  SetValue(graph->add_input(), "x", {1, 10});
  SetValue(graph->add_output(), "y", {1, 10});
  write();
  Refuses(Compile(), "is the lock of another model");
  fs::rename(model_, dir_ + "/other.onnx");
  model_ = dir_ + "/other.onnx";
  const std::string before = Bytes(lock_);
  Refuses(Temper("lock " + model_ + " -o " + lock_), "is the lock of tiny, not of other");
  EXPECT_EQ(Bytes(lock_), before);
}

TEST_F(LockTest, CoverageIsReportedAndIsAGate) {
  MakeLock("--untuned");
  const auto report = [&](const std::string& options) {
    const std::string file = dir_ + "/report.json";
    const Result compiled =
        Temper("compile " + model_ + " " + options + " --report " + file + " -o " + dir_ + "/package");
    EXPECT_EQ(compiled.code, 0) << compiled.out;
    return json::parse(std::ifstream(file));
  };
  const auto sources = [](const json& told) {
    std::map<std::string, int> count;
    double share = 0, least = 1;
    for (const json& kernel : told["kernels"]) {
      ++count[kernel["source"]];
      EXPECT_LE(kernel["share"], least) << "the largest comes first";
      share += least = kernel["share"];
    }
    EXPECT_NEAR(share, 1, 1e-9);
    return count;
  };
  const json none = report("");
  const int kernels = static_cast<int>(none["kernels"].size());
  EXPECT_EQ(none["coverage"], 0);
  EXPECT_EQ(sources(none), (std::map<std::string, int>{{"default", kernels}}));
  Store(RecordOfAnotherConfig("there", 1));
  const json any = report("--db " + db_);
  EXPECT_EQ(sources(any), (std::map<std::string, int>{{"default", kernels - 1}, {"exact", 1}}));
  const json other = report("--db " + db_ + " --device here --target host");
  EXPECT_EQ(sources(other), (std::map<std::string, int>{{"default", kernels - 1}, {"other_device", 1}}))
      << other.dump();
  EXPECT_GT(any["coverage"], 0);
  EXPECT_LT(any["coverage"], 1);
  // The lock remembers.
  MakeLock("--db " + db_);
  const json locked = report("--lock " + lock_);
  EXPECT_EQ(sources(locked), sources(any));
  EXPECT_NEAR(locked["coverage"].get<double>(), any["coverage"].get<double>(), 1e-9);
  fs::remove_all(dir_ + "/package");
  Refuses(Compile("--min-coverage 0.999"), "--min-coverage wants 99.9 %");
  EXPECT_EQ(Temper("lock " + model_ + " --min-coverage 0.999 -o " + dir_ + "/n.lock --db " + db_).code, 1);
  EXPECT_FALSE(fs::exists(dir_ + "/n.lock"));
  const std::string reached = std::to_string(any["coverage"].get<double>() - 1e-3);
  EXPECT_EQ(Compile("--min-coverage " + reached).code, 0);
}

TEST_F(LockTest, DiffSaysWhichKernelsChangeWhyAndTheGain) {
  const std::string a = dir_ + "/a.lock", b = dir_ + "/b.lock", c = dir_ + "/c.lock";
  MakeLock("--untuned");
  Record record = RecordOfAnotherConfig("here", 2);
  MakeLock("--untuned", a);
  Store(record);
  MakeLock("--db " + db_, b);
  EXPECT_EQ(Temper("diff " + b + " " + b).out, "the same code for every target\n");
  std::vector<json> diff = Temper("diff --json " + a + " " + b).Lines();
  ASSERT_EQ(diff.size(), 1u);
  ASSERT_EQ(diff[0]["kernels"].size(), 1u);
  EXPECT_EQ(diff[0]["kernels"][0]["workload"], record.workload);
  EXPECT_EQ(diff[0]["kernels"][0]["why"], "choice from: default -> exact");
  // A faster record of what the default was.
  record.config = ReadLock(a)->entries[0].pins.kernels.back().config;
  record.costs_s = {0.5e-3, 0.5e-3, 0.5e-3};
  Store(record);
  MakeLock("--db " + db_, c);
  diff = Temper("diff --json " + b + " " + c).Lines();
  ASSERT_EQ(diff.size(), 1u);
  EXPECT_EQ(diff[0]["kernels"][0]["why"], "a faster record");
  EXPECT_NEAR(diff[0]["before_ms"].get<double>() / diff[0]["after_ms"].get<double>(), 4, 1e-6);
  const Result told = Temper("diff " + b + " " + c);
  EXPECT_NE(told.out.find("4.00x"), std::string::npos) << told.out;
  EXPECT_EQ(Temper("diff " + a + " " + dir_ + "/none.lock").code, 1);
}

// Whatever else it holds: other versions may say other things.
TEST_F(LockTest, VerifyTellsAPackageOfAnotherVersion) {
  MakeLock("--untuned");
  ASSERT_EQ(Compile().code, 0);
  const json manifest = Manifest("package");
  const int64_t version = manifest["version"].get<int64_t>();
  for (const int64_t other : {version - 1, version + 1}) {
    json changed = manifest;
    changed["version"] = other;
    for (const json& package : {changed, json{{"version", other}}}) {
      std::ofstream(dir_ + "/package/manifest.json") << package.dump(1);
      const Result result = Temper("verify " + dir_ + "/package --lock " + lock_);
      EXPECT_EQ(result.code, 1) << result.out;
      EXPECT_EQ(result.out, "temper: " + dir_ + "/package is a package of version " + std::to_string(other) +
                                ", this program reads " + std::to_string(version) + ": compile the model again\n");
    }
  }
}

TEST_F(LockTest, VerifyProvesWhatAPackageWasBuiltFrom) {
  MakeLock("--untuned");
  ASSERT_EQ(Compile("--prefix tiny").code, 0);
  const std::string verify = "verify " + dir_ + "/package --lock " + lock_;
  EXPECT_EQ(Temper(verify).code, 0) << Temper(verify).out;
  const Result proved = Temper(verify + " --model " + model_);
  EXPECT_EQ(proved.code, 0) << proved.out;
  const auto refused = [&](const std::string& says) {
    const Result result = Temper(verify + " --model " + model_);
    EXPECT_EQ(result.code, 1) << result.out;
    EXPECT_NE(result.out.find(says), std::string::npos) << result.out;
    EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 1) << result.out;
  };
  const std::string header = dir_ + "/package/model.h", weights = dir_ + "/package/weights.bin";
  std::ofstream(header, std::ios::app) << "\n";
  refused("makes another model.h");
  const std::string bytes = Bytes(weights);
  std::ofstream(weights, std::ios::binary) << std::string(bytes.size(), 'x');
  refused("weights.bin was changed since");
  std::ofstream(weights, std::ios::binary) << bytes;
  Store(RecordOfAnotherConfig("here", 2));
  MakeLock("--db " + db_);
  refused("its lock's digest is");
  ASSERT_EQ(Temper("compile " + model_ + " --untuned -o " + dir_ + "/package").code, 0);
  refused("it was built without a lock");
}

}  // namespace
}  // namespace temper::cli_test
