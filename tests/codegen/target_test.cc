#include "compiler/target/target.h"

#include <algorithm>

#include "compiler/target/table.h"
#include "gtest/gtest.h"

namespace temper {
namespace {

TEST(Target, EveryNamedCpuRoundTripsAndStatesKnownSortedFeatures) {
  for (const NamedCpu& c : NamedCpus()) {
    auto t = ParseTarget("llvm:" + std::string(c.name));
    ASSERT_TRUE(t.ok()) << t.status();
    EXPECT_TRUE(std::ranges::is_sorted(t->cpu()->features));
    for (const std::string& f : t->cpu()->features)
      EXPECT_TRUE(std::ranges::binary_search(KnownFeatures(t->cpu()->arch()), f)) << f;
    auto again = ParseTarget(Text(*t));
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(*again, *t) << Text(*t);
  }
  for (const CpuArch arch : {CpuArch::kX86, CpuArch::kArm}) EXPECT_TRUE(std::ranges::is_sorted(KnownFeatures(arch)));
}

TEST(Target, FeaturesSayOfWhichArchitectureItIs) {
  EXPECT_EQ(ParseTarget("llvm:haswell")->cpu()->arch(), CpuArch::kX86);
  EXPECT_EQ(ParseTarget("interpreter")->cpu()->arch(), CpuArch::kX86);
  for (const char* arm : {"llvm:armv8-a", "llvm:cortex-a72", "llvm:neoverse-v1", "llvm -mcpu=cortex-x2 -mattr=neon",
                          "llvm -mcpu=cortex-a72 -mattr=dotprod", "llvm:apple-m1 -mattr="}) {
    const auto t = ParseTarget(arm);
    ASSERT_TRUE(t.ok()) << t.status();
    EXPECT_EQ(t->cpu()->arch(), CpuArch::kArm) << arm;
    EXPECT_EQ(t->cpu()->lanes(), 4) << arm;
    EXPECT_EQ(t->cpu()->vector_registers, 32) << arm;
    EXPECT_EQ(*ParseTarget(Text(*t)), *t) << arm;
  }
  EXPECT_EQ(Text(*ParseTarget("llvm:cortex-a76 -threads=4")),
            "llvm -mcpu=cortex-a76 -mattr=dotprod,fullfp16,neon -l1=65536 -l2=524288 -l3=2097152 -threads=4");
  for (const char* mixed :
       {"llvm:cortex-a72 -mattr=avx2", "llvm:haswell -mattr=neon", "llvm:haswell -mattr=avx2,dotprod",
        "llvm -mcpu=generic -mattr=neon,avx2", "llvm:neoverse-v1 -mattr=sve"}) {
    const absl::Status s = ParseTarget(mixed).status();
    EXPECT_EQ(s.code(), absl::StatusCode::kInvalidArgument) << mixed;
    EXPECT_NE(s.message().find("unknown feature"), std::string::npos) << s;
  }
}

TEST(Target, TheOtherArchitectureDoesNotRunHere) {
  const char* other = HostArch() == CpuArch::kX86 ? "llvm:armv8-a" : "llvm:x86-64-v2";
  const absl::Status s = CheckRunsHere(*ParseTarget(other));
  EXPECT_EQ(s.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(s.message().find("aarch64"), std::string::npos) << s;
}

TEST(Target, VectorsFollowFromFeatures) {
  EXPECT_EQ(ParseTarget("llvm:nehalem")->cpu()->lanes(), 4);
  EXPECT_EQ(ParseTarget("llvm:haswell")->cpu()->lanes(), 8);
  EXPECT_EQ(ParseTarget("llvm:haswell")->cpu()->vector_registers, 16);
  EXPECT_EQ(ParseTarget("llvm:x86-64-v4")->cpu()->lanes(), 16);
  EXPECT_EQ(ParseTarget("llvm:znver4")->cpu()->vector_registers, 32);
  EXPECT_EQ(ParseTarget("llvm -mcpu=znver4 -mattr=avx2,avx,fma")->cpu()->vector_bits, 256);
}

TEST(Target, CanonicalTextIsAsDocumented) {
  const char* text = "llvm -mcpu=x86-64-v4 -mattr=avx2,avx512f,fma -l1=32768 -l2=1048576 -l3=33554432 -threads=2";
  auto t = ParseTarget(text);
  ASSERT_TRUE(t.ok()) << t.status();
  EXPECT_EQ(Text(*t), text);
}

TEST(Target, OptionsOverrideANamedBase) {
  auto t = ParseTarget("llvm:haswell -threads=6 -l2=524288");
  ASSERT_TRUE(t.ok()) << t.status();
  EXPECT_EQ(t->threads(), 6);
  EXPECT_EQ(t->cpu()->l2_bytes, 524288);
}

TEST(Target, ErrorsSayWhatWouldDo) {
  EXPECT_NE(ParseTarget("llvm:pentium").status().message().find("haswell"), std::string::npos);
  EXPECT_NE(ParseTarget("tpu").status().message().find("znver4"), std::string::npos);
  for (const char* bad : {"", "llvm:", "llvm -mcpu=foo", "llvm:haswell -threads=0", "llvm:haswell -x=1",
                          "llvm:haswell threads", "llvm:haswell -mattr=mmx9", "llvm:haswell -l1=-4"}) {
    EXPECT_FALSE(ParseTarget(bad).ok()) << bad;
  }
}

TEST(Target, EachGeneratorsTextsRoundTrip) {
  const std::pair<const char*, const char*> texts[] = {
      {"interpreter", "interpreter -l1=16384 -l2=131072 -l3=0 -threads=1"},
      {"interpreter -threads=2 -l3=65536", "interpreter -l1=16384 -l2=131072 -l3=65536 -threads=2"},
      {"opencl", "opencl -local=32768 -wg=256 -warp=1 -units=1"},
      {"opencl -wg=64 -units=8", "opencl -local=32768 -wg=64 -warp=1 -units=8"},
      {"cuda:sm_90", "cuda -arch=sm_90 -local=232448 -wg=1024 -warp=32 -units=132"},
      {"cuda -arch=sm_90a -local=232448 -units=132", "cuda -arch=sm_90a -local=232448 -wg=1024 -warp=32 -units=132"}};
  for (const auto& [given, canonical] : texts) {
    const auto t = ParseTarget(given);
    ASSERT_TRUE(t.ok()) << t.status();
    EXPECT_EQ(Text(*t), canonical);
    EXPECT_EQ(*ParseTarget(canonical), *t) << given;
  }
  for (const GeneratorDef& g : Generators()) {
    const bool tried =
        std::ranges::any_of(texts, [&](const auto& text) { return ParseTarget(text.first)->generator == g.name; });
    EXPECT_TRUE(tried || g.name == "llvm") << g.name;
  }
}

TEST(Target, KindsAreToldApart) {
  const Target plain = *ParseTarget("interpreter"), opencl = *ParseTarget("opencl"), cuda = *ParseTarget("cuda:sm_90");
  ASSERT_NE(plain.cpu(), nullptr);
  EXPECT_EQ(plain.gpu(), nullptr);
  EXPECT_EQ(plain.cpu()->lanes(), 4);
  EXPECT_TRUE(plain.cpu()->features.empty());
  EXPECT_EQ(plain.threads(), 1);
  ASSERT_NE(cuda.gpu(), nullptr);
  EXPECT_EQ(cuda.cpu(), nullptr);
  EXPECT_EQ(cuda.gpu()->warp_width, 32);
  EXPECT_TRUE(cuda.gpu()->tensor_cores && ParseTarget("cuda:sm_80")->gpu()->tensor_cores);
  EXPECT_FALSE(opencl.gpu()->tensor_cores || ParseTarget("cuda:sm_75")->gpu()->tensor_cores);
  EXPECT_GT(cuda.gpu()->unit_tensor_fmas, ParseTarget("cuda:sm_89")->gpu()->unit_tensor_fmas);
  EXPECT_EQ(opencl.gpu()->unit_tensor_fmas, 0);
  EXPECT_EQ(cuda.threads(), 1);
  EXPECT_NE(opencl, cuda);
  EXPECT_EQ(plain.name(), "interpreter");
  EXPECT_EQ(opencl.name(), "opencl");
  EXPECT_EQ(cuda.name(), "sm_90");
  EXPECT_EQ(ParseTarget("llvm:haswell")->name(), "haswell");
}

TEST(Target, AnArchitectureTellsWhatItsUnitsHave) {
  const auto gpu = [](const std::string& text) { return *ParseTarget(text)->gpu(); };
  EXPECT_EQ(gpu("cuda:sm_70").unit_groups, 32);
  for (const char* arch : {"cuda:sm_75", "cuda:sm_86", "cuda:sm_87"}) EXPECT_EQ(gpu(arch).unit_groups, 16) << arch;
  for (const char* arch : {"cuda:sm_89", "cuda:sm_110", "cuda:sm_120"}) EXPECT_EQ(gpu(arch).unit_groups, 24) << arch;
  EXPECT_EQ(gpu("cuda:sm_90a").unit_groups, 32);
  EXPECT_EQ(gpu("cuda:sm_80").unit_fmas, 64);
  EXPECT_EQ(gpu("cuda:sm_86").unit_fmas, 128);
  EXPECT_EQ(gpu("cuda -arch=sm_75 -local=1024").unit_shared_bytes, 64 << 10);
  EXPECT_TRUE(gpu("cuda:sm_50").shuffles);
  EXPECT_FALSE(gpu("opencl").shuffles);
  EXPECT_FALSE(gpu("opencl -warp=32").shuffles) << "OpenCL C 1.2 has none";
}

TEST(Target, HostileTextsEndInOneShortLine) {
  const std::string much(100'000, 'x');
  const std::vector<std::string> texts = {"cuda",
                                          "cuda:",
                                          "cuda:sm_",
                                          "cuda:sm_9",
                                          "cuda:sm_90x",
                                          "cuda:sm_9000",
                                          "cuda:" + much,
                                          "cuda:sm_90 -arch",
                                          "cuda -arch=sm_90\n",
                                          "cuda:sm_90 -local=0",
                                          "cuda:sm_90 -local=-1",
                                          "cuda:sm_90 -local=99999999999999999999",
                                          "cuda:sm_90 -local=1e9",
                                          "cuda:sm_90 -local=",
                                          "cuda:sm_90 -wg=1025",
                                          "cuda:sm_90 -warp=129",
                                          "cuda:sm_90 -units=1000000",
                                          "cuda:sm_90 -threads=2",
                                          "cuda:sm_90 -mcpu=haswell",
                                          "opencl:",
                                          "opencl:gpu",
                                          "opencl -wg=0",
                                          "opencl -wg=-256",
                                          "opencl -arch=sm_90",
                                          "opencl -wg= 4",
                                          "opencl -" + much + "=1",
                                          "opencl -wg=" + much,
                                          "opencl -wg=4\n",
                                          "interpreter:x",
                                          "interpreter -mattr=avx2",
                                          "interpreter -mcpu=haswell",
                                          "interpreter -threads=5000",
                                          "interpreter -l1=2000000000000",
                                          "openclx",
                                          "\n",
                                          "llvm\n",
                                          "host:",
                                          "host -mcpu=haswell",
                                          "llvm -mcpu=a\nb -mattr=",
                                          "llvm:haswell -mattr=" + much,
                                          "llvm:haswell -threads=1\n2",
                                          much};
  for (const std::string& text : texts) {
    const absl::Status s = ParseTarget(text).status();
    EXPECT_EQ(s.code(), absl::StatusCode::kInvalidArgument) << text.substr(0, 80);
    EXPECT_LT(s.message().size(), 800u) << text.substr(0, 80);
    EXPECT_EQ(s.message().find('\n'), std::string::npos) << s.message();
  }
}

TEST(Target, WhatIsNoCodeForThisCpuDoesNotRunHere) {
  for (const char* text : {"opencl", "cuda:sm_90", "interpreter"}) {
    const absl::Status s = CheckRunsHere(*ParseTarget(text));
    EXPECT_EQ(s.code(), absl::StatusCode::kFailedPrecondition) << text;
    EXPECT_NE(s.message().find(ParseTarget(text)->generator), std::string::npos) << s;
  }
}

TEST(Target, HostRunsHereAndRoundTrips) {
  const Target host = HostTarget();
  EXPECT_GE(host.threads(), 1);
  EXPECT_GT(host.cpu()->l1_bytes, 0);
  EXPECT_TRUE(CheckRunsHere(host).ok());
  EXPECT_EQ(*ParseTarget(Text(host)), host);
  EXPECT_EQ(*ParseTarget("host"), host);
  EXPECT_EQ(*ParseTarget("llvm"), host);
}

TEST(Target, AMissingFeatureIsNamed) {
  Target t = HostTarget();
  t.cpu()->features.push_back("zz-not-a-feature");
  const absl::Status s = CheckRunsHere(t);
  EXPECT_EQ(s.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(s.message().find("zz-not-a-feature"), std::string::npos);
}

}  // namespace
}  // namespace temper
