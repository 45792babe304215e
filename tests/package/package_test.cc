// Packages written and loaded in this process, against the graph's own reference.
#include "compiler/package/package.h"

#include <dlfcn.h>
#include <elf.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <regex>
#include <span>
#include <sstream>

#include "compiler/graph/alternatives.h"
#include "compiler/graph/pipeline.h"
#include "compiler/package/manifest.h"
#include "compiler/package/shared_constants.h"
#include "compiler/runtime/kernel_abi.h"
#include "include/temper/model.h"
#include "tests/graph/builder.h"

namespace temper {
namespace {

using testing::Builder;
using testing::RandomInputs;

std::string FileText(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

class PackageTest : public ::testing::Test {
 protected:
  PackageTest() : dir_(::testing::TempDir() + "/temper_package_test_" + std::to_string(getpid())) {}
  void TearDown() override { std::filesystem::remove_all(dir_); }

  // Runs on each number of threads and compares; `kernels`, if set, is how many launches a run should take.
  void ExpectRight(Graph g, int kernels = 0,
                   const std::vector<const char*>& targets = {"host", "llvm:haswell", "llvm:nehalem", "interpreter"},
                   const ChooseFn& choose = ChooseDefault) {
    const Graph given = g;
    ASSERT_TRUE(Optimize(g, Target{}).ok());
    ExpectSame(g, given, kernels, targets, choose);
  }

  // Of packages made of the optimised graph, as they are.
  void ExpectSame(const Graph& g, const Graph& given, int kernels, const std::vector<const char*>& targets,
                  const ChooseFn& choose) {
    const std::vector<NDArray> inputs = RandomInputs(given, 7);
    absl::StatusOr<std::vector<NDArray>> want = RunReference(given, inputs);
    ASSERT_TRUE(want.ok()) << want.status();
    for (const char* name : targets) {
      Target target = *ParseTarget(name);
      const bool compiled = target.generator == "llvm";
      if (compiled && !CheckRunsHere(target).ok()) continue;
      if (target.cpu() != nullptr) target.cpu()->threads = compiled ? 2 : 1;
      absl::StatusOr<PackageReport> report = WritePackage(g, target, choose, dir_);
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

TEST_F(PackageTest, WhatHasNoElementsIsComputedAllTheSame) {
  Builder b;
  const ValueId x = b.Input({4, 8}), none = b.Call("slice", {x}, [] {
    Attrs attrs = Builder::Ints("axes", {0});
    attrs.Set("starts", std::vector<int64_t>{2});
    attrs.Set("ends", std::vector<int64_t>{2});
    return attrs;
  }());
  b.Output(b.Call("add", {none, b.Random({0, 8})}));
  b.Output(b.Call("matmul", {none, b.Random({8, 3})}));
  ExpectRight(std::move(b.g));
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

// As a classifier, a segmentation and a search for the next token have them.
TEST_F(PackageTest, PlacesOfExtremes) {
  const auto along = [](int64_t axis, int64_t keepdims, int64_t last = 0) {
    Attrs attrs = Builder::Int("axis", axis);
    attrs.Set("keepdims", keepdims);
    if (last != 0) attrs.Set("select_last_index", last);
    return attrs;
  };
  Builder b;
  const ValueId x = b.Input({2, 6, 9, 11}), planes = b.Conv(x, b.Random({21, 6, 3, 3}), 1);
  b.Output(b.Call("arg_max", {planes}, along(1, 0)));
  b.Output(b.Call("arg_min", {b.Call("tanh", {planes})}, along(1, 1)));
  const ValueId logits = b.Call("matmul", {b.Reshape(x, {18, 66}), b.Random({66, 70})});
  b.Output(b.Call("arg_max", {b.Call("softmax", {logits})}, along(-1, 0)));
  Attrs to;
  to.Set("to", std::string("i32"));
  const ValueId positive = b.Call("cast", {b.Call("greater", {logits, b.Scalar(0)})}, to);
  b.Output(b.Call("cast", {b.Call("arg_max", {positive}, along(0, 0, 1))}, to));
  b.Output(b.Call("arg_min", {b.Reshape(x, {1188})}, along(0, 0)));
  ExpectRight(std::move(b.g), 0, {"host", "llvm:haswell", "llvm:nehalem", "interpreter", "opencl"});
}

// A row has 64 bytes: a device divides its memory before the first of them alone.
TEST_F(PackageTest, SlicesBeginWhereADeviceDoesNotDivideItsMemory) {
  Builder b;
  const auto rows = [&](ValueId x, int64_t first, int64_t end) {
    Attrs attrs = Builder::Ints("axes", {0});
    attrs.Set("starts", std::vector<int64_t>{first});
    attrs.Set("ends", std::vector<int64_t>{end});
    return b.Call("slice", {x}, attrs);
  };
  const ValueId x = b.Input({9, 16}), y = b.Call("relu", {b.Call("matmul", {x, b.Random({16, 16})})});
  b.Output(b.Call("matmul", {b.Call("add", {rows(y, 1, 4), rows(x, 5, 8)}), b.Random({16, 8})}));
  b.Output(b.Call("softmax", {rows(y, 8, 9)}));
  ExpectRight(std::move(b.g), 0, {"host", "opencl"});
  EXPECT_NE(FileText(dir_ + "/manifest.json").find("\"move to "), std::string::npos);
}

// One alone, and parts of a concatenation; with a workspace between their launches.
TEST_F(PackageTest, ConvolutionsByWinogradsAlgorithmRunOnADevice) {
  const TemplateDef& winograd = *FindTemplate("gpu.winograd");
  Builder b;
  const ValueId x = b.Call("relu", {b.Conv(b.Input({1, 8, 9, 7}), b.Random({19, 8, 3, 3}), 1)});
  b.Output(b.Call("concat", {b.Conv(x, b.Random({12, 19, 3, 3}), 1), b.Call("relu", {x})}, Builder::Int("axis", 1)));
  int chosen = 0;
  const auto choose = [&](const Workload& w, const Target& t) -> absl::StatusOr<KernelChoice> {
    if (!winograd.matches(w, t)) return ChooseDefault(w, t);
    TEMPER_ASSIGN_OR_RETURN(Config config, ParseConfig("m=4,ty=8,tx=4,tm=1,tn=2,bk=4,vec=1,stages=1,split=1"));
    ++chosen;
    return KernelChoice{.template_name = std::string(winograd.name), .config = std::move(config)};
  };
  ExpectRight(std::move(b.g), 0, {"opencl"}, choose);
  EXPECT_EQ(chosen, 2);
}

// Heads turned by their layout, a mask, and an alternative that is taken where its kernels are said to be faster.
TEST_F(PackageTest, AttentionRunsOnADeviceAsOneKernel) {
  constexpr int64_t kWords = 19, kWidth = 24, kHeads = 3;
  Builder b;
  const ValueId x = b.Input({1, kWords, kWidth}), mask = b.Input({1, 1, kWords, kWords});
  const auto heads = [&] {
    const ValueId y = b.Call("relu", {b.Call("matmul", {x, b.Random({kWidth, kWidth})})});
    return b.Transpose(b.Reshape(y, {1, kWords, kHeads, kWidth / kHeads}), {0, 2, 1, 3});
  };
  const ValueId scores = b.Call("matmul", {heads(), heads()}, Builder::Int("trans_b", 1));
  const ValueId masked = b.Call("add", {b.Call("mul", {scores, b.Scalar(0.1)}), mask});
  const ValueId seen = b.Call("matmul", {b.Call("softmax", {masked}, Builder::Int("axis", 3)), heads()});
  b.Output(b.Reshape(b.Transpose(seen, {0, 2, 1, 3}), {1, kWords, kWidth}));
  const Graph given = b.g;
  const TemplateDef& attention = *FindTemplate("gpu.attention");
  const Target t = ParseTarget("opencl").value();
  ASSERT_TRUE(Optimize(b.g, t).ok());
  const auto seconds = [&](const Workload& w) { return std::optional<double>(attention.matches(w, t) ? 1 : 2); };
  ASSERT_EQ(*ChooseAlternatives(b.g, seconds), 1);
  int chosen = 0;
  const auto choose = [&](const Workload& w, const Target& target) -> absl::StatusOr<KernelChoice> {
    if (!attention.matches(w, target)) return ChooseDefault(w, target);
    TEMPER_ASSIGN_OR_RETURN(Config config, ParseConfig("ty=4,tx=8,tm=2,tn=2,bk=8"));
    ++chosen;
    return KernelChoice{.template_name = std::string(attention.name), .config = std::move(config)};
  };
  ExpectSame(b.g, given, 0, {"opencl"}, choose);
  EXPECT_EQ(chosen, 1);
}

TEST_F(PackageTest, PartsMayBeCopiesOfWhatIsRenamed) {
  Builder b;
  const ValueId x = b.Input({5, 7}), y = b.Call("softmax", {b.Input({3, 5})});
  const ValueId joined =
      b.Call("concat", {b.Reshape(x, {7, 5}), y, b.Reshape(b.Call("tanh", {x}), {7, 5})}, Builder::Int("axis", 0));
  b.Output(b.Call("reduce_sum", {joined}, Builder::Ints("axes", {1})));
  b.Output(b.Call("concat", {b.Call("relu", {b.Input({15})}), b.Reshape(joined, {85})}, Builder::Int("axis", 0)));
  ExpectRight(std::move(b.g));
}

// Their kernels write no gaps: the concatenation copies what they made.
TEST_F(PackageTest, SequentialOperatorsMayBeConcatenated) {
  Builder b;
  const ValueId x = b.Input({6, 40}), z = b.Input({6, 24});
  NDArray at(DType::kI64, {6, 7});
  for (int64_t i = 0; i < at.size(); ++i) at.Set(i, static_cast<double>(i * 17 % 43));
  const ValueId scattered = b.Call("scatter", {x, b.Constant(at), b.Input({6, 7})}, Builder::Int("axis", 1));
  const ValueId sums = b.Call("cum_sum", {z}, Builder::Int("axis", 1));
  for (const int64_t axis : {0, 1}) {
    const ValueId last = axis == 0 ? b.Call("cum_sum", {x}) : b.Call("relu", {z});
    const ValueId first = axis == 0 ? b.Call("tanh", {x}) : sums;
    b.Output(b.Call("concat", {first, b.Call("add", {scattered, scattered}), last}, Builder::Int("axis", axis)));
    b.Output(b.Call("concat", {b.Call("scatter", {x, b.Constant(at), b.Input({6, 7})}, Builder::Int("axis", 1)), last},
                    Builder::Int("axis", axis)));
  }
  const ValueId first = b.Call("top_k", {z}, Builder::Int("k", 5));
  b.Output(b.Call("concat", {first, b.Call("top_k", {x}, Builder::Int("k", 3))}, Builder::Int("axis", 1)));
  ExpectRight(std::move(b.g));
}

TEST_F(PackageTest, TellsExtentsThatTheRunDecides) {
  Builder b;
  const ValueId x = b.Input({2, 6}), nothing = b.Scalar(0);
  b.Output(b.Call("relu", {x}));
  b.Output(b.Call("tanh", {x}));
  b.Output(b.Call("reduce_sum", {b.Cast(b.Call("greater", {x, nothing}), DType::kI64)}, Builder::Int("keepdims", 0)));
  b.g.extents = {{1, 1, 2}};
  b.g.hidden = 1;
  ASSERT_TRUE(Optimize(b.g, Target{}).ok());
  for (const char* name : {"host", "interpreter"}) {
    ASSERT_TRUE(WritePackage(b.g, *ParseTarget(name), ChooseDefault, dir_).ok());
    const absl::StatusOr<std::unique_ptr<LoadedPackage>> package = LoadPackage(dir_, 1);
    ASSERT_TRUE(package.ok()) << package.status();
    ASSERT_EQ((*package)->outputs().size(), 2u);
    NDArray in(DType::kF32, {2, 6});
    for (const int64_t above : {0, 4, 6, 9}) {  // there is room for 6
      for (int64_t i = 0; i < in.size(); ++i) in.Set(i, i < above ? 1 : -1);
      const auto results = (*package)->RunShaped({in});
      ASSERT_TRUE(results.ok()) << results.status();
      EXPECT_EQ((*results)[0].shape(), (Shape{2, 6}));
      EXPECT_EQ((*results)[1].shape(), (Shape{2, std::min<int64_t>(above, 6)}));
      EXPECT_EQ((*results)[0].At(0), above > 0 ? 1 : 0);
    }
    EXPECT_EQ((*ReadManifest(dir_))["outputs"][1]["varies"], nlohmann::json::array({1}));
  }
}

TEST_F(PackageTest, AConcatenationInTheMiddleOfTheOrderIsCopied) {
  Builder b;
  const ValueId x = b.Input({2, 4, 6});
  const ValueId joined = b.Call("concat", {b.Call("relu", {x}), b.Call("tanh", {x})}, Builder::Int("axis", 1));
  b.Output(b.Call("reduce_sum", {joined}, Builder::Ints("axes", {2})));
  ExpectRight(std::move(b.g));
}

// y = x * `factor`, of 4 elements.
Graph Scale(double factor) {
  Builder b;
  NDArray c(DType::kF32, {1});
  c.Set(0, factor);
  b.Output(b.Call("mul", {b.Input({4}), b.Constant(c)}));
  return std::move(b.g);
}

// They have kernels of the same workload once, and constants in the same memory once.
TEST_F(PackageTest, VariantsShareKernelsAndConstants) {
  const auto model = [](int64_t rows) {
    Builder b;
    const ValueId x = b.Input({rows, 16}), row = b.Input({1, 16});
    b.Output(b.Call("matmul", {x, b.Random({16, 24})}));
    b.Output(b.Call("tanh", {row}));
    return std::move(b.g);
  };
  std::vector<Graph> given = {model(5), model(6)}, graphs = given;
  SharedConstants constants;
  for (Graph& g : graphs) {
    ASSERT_TRUE(Optimize(g, Target{}).ok());
    constants.Share(g);
  }
  ASSERT_TRUE(WritePackage(graphs[0], HostTarget(), ChooseDefault, dir_).ok());
  const auto weights = std::filesystem::file_size(dir_ + "/weights.bin");
  const PackageVariant variants[] = {{graphs[0], "rows=5"}, {graphs[1], "rows=6"}};
  const auto report = WritePackage(variants, HostTarget(), ChooseDefault, dir_);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->variants, 2);
  EXPECT_EQ(report->kernels, 4);
  const nlohmann::json manifest = *ReadManifest(dir_);
  EXPECT_EQ(manifest["kernels"].size(), 3u) << "tanh is in both";
  EXPECT_EQ(std::filesystem::file_size(dir_ + "/weights.bin"), weights) << "one layout serves 5 rows and 6";
  const auto package = LoadPackage(dir_, 2);
  ASSERT_TRUE(package.ok()) << package.status();
  ASSERT_EQ((*package)->variants(), 2);
  EXPECT_FALSE((*package)->Choose(2).ok());
  for (const int v : {1, 0, 1}) {
    ASSERT_TRUE((*package)->Choose(v).ok());
    EXPECT_EQ((*package)->inputs()[0].shape, (Shape{v == 0 ? 5 : 6, 16}));
    const std::vector<NDArray> inputs = RandomInputs(given[static_cast<size_t>(v)], 7);
    const std::vector<NDArray> want = *RunReference(given[static_cast<size_t>(v)], inputs);
    std::vector<NDArray> got;
    for (const NDArray& a : want) got.emplace_back(a.dtype(), a.shape());
    const void* from[] = {inputs[0].data(), inputs[1].data()};
    void* to[] = {got[0].MutableData(), got[1].MutableData()};
    ASSERT_TRUE((*package)->Run(from, to).ok());
    for (size_t i = 0; i < got.size(); ++i) EXPECT_LE(RelativeError(got[i], want[i]), 1e-5);
  }
}

TEST_F(PackageTest, VariantsHaveTheSameInputsAndOutputs) {
  Graph g = Scale(2), other = Scale(3), more = Scale(2);
  other.values[static_cast<size_t>(other.inputs[0])].name = "another";
  more.outputs.push_back(more.outputs[0]);
  for (Graph* graph : {&g, &other, &more}) ASSERT_TRUE(Optimize(*graph, Target{}).ok());
  for (const Graph* second : {&other, &more}) {
    const PackageVariant variants[] = {{g, "a"}, {*second, "b"}};
    EXPECT_TRUE(absl::IsInvalidArgument(WritePackage(variants, HostTarget(), ChooseDefault, dir_).status()));
  }
  EXPECT_TRUE(absl::IsInvalidArgument(
      WritePackage(std::span<const PackageVariant>(), HostTarget(), ChooseDefault, dir_).status()));
}

TEST_F(PackageTest, InputsAndOutputsHaveARankThatCallersHaveRoomFor) {
  Graph g = Scale(2);
  g.values[static_cast<size_t>(g.outputs[0])].type.shape.resize(TEMPER_MAX_RANK + 1, 1);
  const absl::Status refused = WritePackage(g, HostTarget(), ChooseDefault, dir_).status();
  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  EXPECT_FALSE(std::filesystem::exists(dir_));
}

// Two models in one process, whose names all are visible to all.
TEST_F(PackageTest, ModelsWithPrefixesDoNotCollide) {
  using Run = decltype(&temper_model_run);
  using Create = decltype(&temper_model_create);
  using Destroy = decltype(&temper_model_destroy);
  std::vector<std::pair<void*, temper_model*>> models;
  for (const char* prefix : {"twice", "thrice_2"}) {
    const std::string name = prefix, dir = dir_ + "/" + name, library = dir + "/lib" + name + ".so";
    std::filesystem::create_directories(dir_);
    Graph g = Scale(name == "twice" ? 2 : 3);
    ASSERT_TRUE(Optimize(g, Target{}).ok());
    const auto report = WritePackage(g, HostTarget(), ChooseDefault, dir, {.prefix = name});
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_FALSE(std::filesystem::exists(dir + "/model.so"));
    void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_GLOBAL);
    ASSERT_NE(handle, nullptr) << dlerror();
    temper_model* model = nullptr;
    auto create = reinterpret_cast<Create>(dlsym(RTLD_DEFAULT, (name + "_create").c_str()));
    ASSERT_NE(create, nullptr);
    ASSERT_EQ(create(nullptr, 1, &model), TEMPER_OK) << "the weights lie beside the library";
    models.emplace_back(handle, model);
    EXPECT_EQ(dlsym(handle, "temper_model_run"), nullptr);
    // Each function that the header declares is there.
    const std::string header = FileText(dir + "/model.h");
    EXPECT_EQ(header.find("temper_model_run"), std::string::npos);
    const std::regex declared("TEMPER_API [^;(]*\\b(" + name + "_[a-z_]+)\\(");
    int functions = 0;
    for (std::sregex_iterator it(header.begin(), header.end(), declared), end; it != end; ++it, ++functions)
      EXPECT_NE(dlsym(handle, (*it)[1].str().c_str()), nullptr) << (*it)[1];
    EXPECT_EQ(functions, 12);
    EXPECT_TRUE(LoadPackage(dir).ok());
  }
  alignas(64) float x[4] = {1, 2, 3, 4}, y[4] = {};
  const void* inputs[] = {x};
  void* outputs[] = {y};
  ASSERT_EQ(reinterpret_cast<Run>(dlsym(RTLD_DEFAULT, "twice_run"))(models[0].second, inputs, outputs), TEMPER_OK);
  EXPECT_EQ(y[3], 8);
  ASSERT_EQ(reinterpret_cast<Run>(dlsym(RTLD_DEFAULT, "thrice_2_run"))(models[1].second, inputs, outputs), TEMPER_OK);
  EXPECT_EQ(y[3], 12);
  reinterpret_cast<Destroy>(dlsym(RTLD_DEFAULT, "twice_destroy"))(models[0].second);
  reinterpret_cast<Destroy>(dlsym(RTLD_DEFAULT, "thrice_2_destroy"))(models[1].second);
  for (const auto& [handle, model] : models) dlclose(handle);
}

// As programs that are not Temper's run it.
TEST_F(PackageTest, APackageForADeviceFindsIt) {
  Graph g = Scale(2);
  ASSERT_TRUE(Optimize(g, Target{}).ok());
  ASSERT_TRUE(WritePackage(g, *ParseTarget("opencl"), ChooseDefault, dir_, {.prefix = "twice"}).ok());
  void* library = dlopen((dir_ + "/libtwice.so").c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  const auto create = reinterpret_cast<decltype(&temper_model_create)>(dlsym(library, "twice_create"));
  const auto run = reinterpret_cast<decltype(&temper_model_run)>(dlsym(library, "twice_run"));
  setenv("TEMPER_DEVICES", TEMPER_BINARY_DIR "/lib/libtemper-devices.so", 1);
  temper_model* model = nullptr;
  const int created = create(nullptr, 1, &model);
  unsetenv("TEMPER_DEVICES");
  ASSERT_EQ(created, TEMPER_OK) << reinterpret_cast<decltype(&temper_model_error)>(dlsym(library, "twice_error"))(
      nullptr);
  alignas(64) float x[4] = {1, 2, 3, 4}, y[4] = {};
  const void* inputs[] = {x};
  void* outputs[] = {y};
  for (int i = 0; i < 3; ++i, ++x[3]) {
    ASSERT_EQ(run(model, inputs, outputs), TEMPER_OK);
    EXPECT_EQ(y[3], 2 * x[3]);
  }
  reinterpret_cast<decltype(&temper_model_destroy)>(dlsym(library, "twice_destroy"))(model);
  dlclose(library);
}

// Where the value of a library's symbol lies in its file; -1: it has no such symbol.
int64_t PlaceInFile(const std::string& path, const char* symbol) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  const auto* value = library == nullptr ? nullptr : static_cast<const char*>(dlsym(library, symbol));
  Dl_info info{};
  int64_t place = -1;
  if (value != nullptr && dladdr(value, &info) != 0) {
    const auto* base = static_cast<const char*>(info.dli_fbase);
    const auto* header = reinterpret_cast<const Elf64_Ehdr*>(base);
    const auto* segments = reinterpret_cast<const Elf64_Phdr*>(base + header->e_phoff);
    for (const Elf64_Phdr& segment : std::span(segments, header->e_phnum)) {
      const int64_t inside = value - base - static_cast<int64_t>(segment.p_vaddr);
      if (segment.p_type == PT_LOAD && inside >= 0 && inside < static_cast<int64_t>(segment.p_filesz))
        place = static_cast<int64_t>(segment.p_offset) + inside;
    }
  }
  if (library != nullptr) dlclose(library);
  return place;
}

// It would call places of temper_device where something else stands.
TEST_F(PackageTest, APackageThatCallsADeviceOfAnotherVersionIsRefusedInALine) {
  Graph g = Scale(2);
  ASSERT_TRUE(Optimize(g, Target{}).ok());
  for (const std::string prefix : {"", "twice"}) {
    ASSERT_TRUE(WritePackage(g, *ParseTarget("opencl"), ChooseDefault, dir_, {.prefix = prefix}).ok());
    ASSERT_TRUE(LoadPackage(dir_).ok());
    const std::string path = dir_ + (prefix.empty() ? "/model.so" : "/libtwice.so");
    const std::string name = (prefix.empty() ? "temper_model" : prefix) + "_device_version";
    const int64_t place = PlaceInFile(path, name.c_str());
    ASSERT_GE(place, 0) << name;
    const std::string whole = FileText(path);
    const auto refused = [&](const std::string& library) {
      std::filesystem::remove(path);  // what is loaded keeps its file
      std::ofstream(path, std::ios::binary) << library;
      const absl::Status status = LoadPackage(dir_).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
      EXPECT_EQ(status.message(),
                dir_ + " calls its device as another version of Temper does: compile the model again");
    };
    for (const int32_t version : {TEMPER_DEVICE_VERSION - 1, TEMPER_DEVICE_VERSION + 1}) {
      std::string other = whole;
      std::memcpy(other.data() + place, &version, sizeof version);
      refused(other);
    }
    std::string silent = whole;  // as packages were before they told it
    for (size_t at; (at = silent.find(name)) != std::string::npos;) silent[at + name.size() - 1] = 'x';
    refused(silent);
  }
}

TEST_F(PackageTest, PrefixesThatAreNoNamesAreRefused) {
  Graph g = Scale(2);
  ASSERT_TRUE(Optimize(g, Target{}).ok());
  for (const std::string& prefix :
       {std::string("2x"), std::string("a-b"), std::string("a/b"), std::string("../a"), std::string("A"),
        std::string("temper_model"), std::string("a\0b", 3), std::string("\xff"), std::string(65, 'a')}) {
    const auto report = WritePackage(g, HostTarget(), ChooseDefault, dir_, {.prefix = prefix});
    EXPECT_EQ(report.status().code(), absl::StatusCode::kInvalidArgument) << prefix;
    EXPECT_FALSE(std::filesystem::exists(dir_));
  }
}

TEST_F(PackageTest, APackageThatIsWrittenAnewIsLoadedAnewBesideTheOldOne) {
  alignas(64) float x[4] = {1, 2, 3, 4}, y[4] = {};
  const void* inputs[] = {x};
  void* outputs[] = {y};
  std::vector<std::unique_ptr<LoadedPackage>> packages;
  for (int factor = 2; factor < 5; ++factor) {
    Graph g = Scale(factor);
    ASSERT_TRUE(Optimize(g, Target{}).ok());
    ASSERT_TRUE(WritePackage(g, HostTarget(), ChooseDefault, dir_).ok());
    absl::StatusOr<std::unique_ptr<LoadedPackage>> package = LoadPackage(dir_);
    ASSERT_TRUE(package.ok()) << package.status();
    packages.push_back(*std::move(package));
  }
  for (size_t i = 0; i < packages.size(); ++i) {
    ASSERT_TRUE(packages[i]->Run(inputs, outputs).ok());
    EXPECT_EQ(y[3], 4.0f * static_cast<float>(i + 2));
  }
}

TEST_F(PackageTest, PackagesOfAnotherVersionAreRefusedInALine) {
  Graph g = Scale(2);
  ASSERT_TRUE(Optimize(g, Target{}).ok());
  ASSERT_TRUE(WritePackage(g, HostTarget(), ChooseDefault, dir_).ok());
  ASSERT_TRUE(LoadPackage(dir_).ok());
  const std::string manifest = FileText(dir_ + "/manifest.json"), version = "\"version\": 8";
  ASSERT_NE(manifest.find(version), std::string::npos);
  const auto refused = [&](const std::string& text) {
    std::ofstream(dir_ + "/manifest.json") << text;
    const absl::Status status = LoadPackage(dir_).status();
    EXPECT_FALSE(status.ok()) << text;
    EXPECT_EQ(status.message().find('\n'), std::string::npos);
    return std::string(status.message());
  };
  for (const char* other : {"\"version\": 7", "\"version\": 9"}) {
    std::string changed = manifest;
    EXPECT_NE(refused(changed.replace(manifest.find(version), version.size(), other)).find("compile the model again"),
              std::string::npos);
  }
  for (const char* text : {"", "[]", "{}", "{\"version\": \"6\"}", "{\"version\": 8}",
                           "{\"version\": 8, \"prefix\": 7}", "{\"version\": 8, \"prefix\": \"../../x\"}", "\xff"})
    refused(text);
  std::filesystem::remove(dir_ + "/manifest.json");
  EXPECT_EQ(LoadPackage(dir_).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace temper
