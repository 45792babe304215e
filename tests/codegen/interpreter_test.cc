// Code that the interpreter runs: nests there and back, hostile ones, and what becomes of calls.
#include "compiler/codegen/interpreter/generator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/rng.h"
#include "compiler/codegen/interpreter/nest_json.h"
#include "include/temper/model.h"
#include "tests/ir/toy_launches.h"

namespace temper {
namespace {

using ir::Expr;
using ir::ForKind;
using ir::Stmt;
using ir::Var;
using testing::HasSubstr;

// out[i] = sum over k of a[i, k] * a[i, k], where it exceeds 1, else infinity; with scratch and a cast that saturates.
ir::Func Squares() {
  ir::Buffer a = ir::MakeBuffer("a", DType::kF32, {6, 5}), out = ir::MakeBuffer("out", DType::kF32, {6}),
             sum = ir::MakeBuffer("sum", DType::kF32, {1}, ir::Scope::kRegister);
  Var i = ir::MakeVar("i"), k = ir::MakeVar("k");
  const Expr element = ir::Load(a, {i, k}), total = ir::Load(sum, {0});
  const Expr big = ir::Float(1) < total;
  CastMode saturate;
  saturate.saturate = true;
  const Expr narrow = ir::Cast(ir::Cast(total, DType::kF8E4M3FN, saturate), DType::kF32);
  return {
      "squares",
      {a, out},
      1,
      ir::For(i, 6, ForKind::kParallel,
              ir::Alloc(
                  sum, ir::Seq({ir::Store(sum, {0}, ir::Float(0)),
                                ir::For(k, 5, ForKind::kUnrolled, ir::Store(sum, {0}, total + element * element)),
                                ir::Prefetch(a, {i, 0}), ir::Prefetch(out, {i}, true),
                                ir::If(big, ir::Store(out, {i}, narrow), ir::Store(out, {i}, ir::Float(HUGE_VAL)))})))};
}

std::vector<ir::Func> Toys() {
  std::vector<ir::Func> toys;
  Rng rng(3);
  for (int i = 0; i < 50; ++i) toys.push_back(ir::DrawToy(rng).launch);
  return toys;
}

TEST(NestJson, ComesBackAsItWas) {
  std::vector<ir::Func> nests = {Squares()};
  for (const ir::Func& toy : Toys()) nests.push_back(toy);
  for (const ir::Func& f : nests) {
    const absl::StatusOr<ir::Func> back = NestFromJson(NestToJson(f));
    ASSERT_TRUE(back.ok()) << f.name << ": " << back.status();
    EXPECT_EQ(ir::Text(*back), ir::Text(f));
    EXPECT_EQ(NestToJson(*back), NestToJson(f));
    EXPECT_EQ(back->warp_width, f.warp_width);
    EXPECT_EQ(back->num_outputs, f.num_outputs);
  }
}

TEST(NestJson, WhatSeveralPlacesShareIsWrittenOnce) {
  ir::Buffer out = ir::MakeBuffer("out", DType::kF32, {1});
  Expr e = ir::Load(out, {0});
  for (int i = 0; i < 40; ++i) e = e + e;
  EXPECT_LT(NestToJson({"f", {out}, 1, ir::Store(out, {0}, e)}).size(), 10000u);
}

// Each number of a valid text is set to others: what comes out is an error or a nest that verifies, never a crash.
TEST(NestJson, DamagedTextsAreErrors) {
  const auto good = nlohmann::json::parse(NestToJson(Squares()));
  for (const char* text : {"", "null", "[]", "{}", "7", "\"nest\"", "{\"format\": 1}"})
    EXPECT_FALSE(NestFromJson(text).ok());
  int errors = 0, texts = 0;
  const nlohmann::json values[] = {-1,
                                   0,
                                   1,
                                   7,
                                   1000000,
                                   INT64_MAX,
                                   UINT64_MAX,
                                   nullptr,
                                   "f32",
                                   "x",
                                   true,
                                   0.5,
                                   nlohmann::json::array(),
                                   nlohmann::json::object()};
  const nlohmann::json flat = good.flatten();
  for (const auto& [path, old] : flat.items()) {
    for (const nlohmann::json& value : values) {
      nlohmann::json bad = good;
      bad[nlohmann::json::json_pointer(path)] = value;
      const absl::StatusOr<ir::Func> nest = NestFromJson(bad.dump());
      ++texts;
      if (!nest.ok()) {
        ++errors;
      } else {
        EXPECT_TRUE(ir::Verify(*nest).ok());
      }
    }
  }
  EXPECT_GT(errors, texts / 2);
  Rng rng(5);
  const std::string text = good.dump();
  for (int i = 0; i < 2000; ++i) {
    std::string cut = text.substr(0, rng.Below(text.size()));
    for (int k = 0; k < 3 && !cut.empty(); ++k) cut[rng.Below(cut.size())] = static_cast<char>(rng.Below(256));
    EXPECT_FALSE(NestFromJson(cut).ok());
  }
}

TEST(Interpreter, RunsWhatACallHandsIt) {
  const auto artifact = CompileForInterpreter({{"k", Squares()}}, Target());
  ASSERT_TRUE(artifact.ok()) << artifact.status();
  ASSERT_EQ(artifact->kernels.size(), 1u);
  EXPECT_TRUE(artifact->kernels[0].launches.empty());
  float a[30], out[6];
  for (int i = 0; i < 30; ++i) a[i] = static_cast<float>(i / 5);
  void* args[] = {a, out};
  const temper_call call = {args, nullptr, nullptr, nullptr, nullptr};
  const auto launch = [&](const std::string& code, const char* symbol) {
    return kInterpreterDevice.launch(code.data(), static_cast<int64_t>(code.size()), symbol, &call);
  };
  ASSERT_EQ(launch(artifact->code, "k"), TEMPER_OK);
  EXPECT_TRUE(std::isinf(out[0]));
  EXPECT_EQ(out[1], 5);
  EXPECT_EQ(out[5], 128);  // 125 has no f8e4m3
  EXPECT_EQ(launch(artifact->code, "other"), TEMPER_NO_PACKAGE);
  EXPECT_EQ(launch("", "k"), TEMPER_NO_PACKAGE);
  EXPECT_FALSE(CompileForInterpreter({{"k", Squares()}, {"k", Squares()}}, Target()).ok());
}

TEST(Interpreter, AnArtifactSaysHowItsLaunchesAreShaped) {
  for (const ir::Func& toy : Toys()) {
    const auto artifact = CompileForInterpreter({{"k", toy}}, Target());
    ASSERT_TRUE(artifact.ok()) << artifact.status();
    const auto launches = ir::LaunchesOf(toy);
    ASSERT_TRUE(launches.ok());
    ASSERT_EQ(artifact->kernels[0].launches.size(), launches->size());
    for (size_t i = 0; i < launches->size(); ++i) {
      EXPECT_EQ(artifact->kernels[0].launches[i].groups, (*launches)[i].groups);
      EXPECT_EQ(artifact->kernels[0].launches[i].threads, (*launches)[i].threads);
      EXPECT_EQ(artifact->kernels[0].launches[i].shared_bytes, (*launches)[i].shared_bytes());
    }
  }
}

TEST(Generators, ATargetOfNoGeneratorIsRefusedByName) {
  Target target;
  target.generator = "abacus";
  const absl::Status status = CompileKernels({{"k", Squares()}}, target).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()), HasSubstr("abacus"));
  EXPECT_EQ(CodegenId(target), "");
  for (const CodeGenerator& generator : AllCodeGenerators()) {
    target.generator = std::string(generator.name);
    EXPECT_EQ(CodegenId(target), generator.id(target));
    EXPECT_FALSE(EmitText({{"k", Squares()}}, target, "no such form").ok());
  }
}

}  // namespace
}  // namespace temper
