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
    EXPECT_TRUE(std::ranges::is_sorted(t->features));
    for (const std::string& f : t->features) EXPECT_TRUE(std::ranges::binary_search(KnownFeatures(), f)) << f;
    auto again = ParseTarget(Text(*t));
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(*again, *t) << Text(*t);
  }
  EXPECT_TRUE(std::ranges::is_sorted(KnownFeatures()));
}

TEST(Target, VectorsFollowFromFeatures) {
  EXPECT_EQ(ParseTarget("llvm:nehalem")->lanes(), 4);
  EXPECT_EQ(ParseTarget("llvm:haswell")->lanes(), 8);
  EXPECT_EQ(ParseTarget("llvm:haswell")->vector_registers, 16);
  EXPECT_EQ(ParseTarget("llvm:x86-64-v4")->lanes(), 16);
  EXPECT_EQ(ParseTarget("llvm:znver4")->vector_registers, 32);
  EXPECT_EQ(ParseTarget("llvm -mcpu=znver4 -mattr=avx2,avx,fma")->vector_bits, 256);
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
  EXPECT_EQ(t->threads, 6);
  EXPECT_EQ(t->l2_bytes, 524288);
}

TEST(Target, ErrorsSayWhatWouldDo) {
  EXPECT_NE(ParseTarget("llvm:pentium").status().message().find("haswell"), std::string::npos);
  EXPECT_NE(ParseTarget("tpu").status().message().find("znver4"), std::string::npos);
  for (const char* bad : {"", "llvm:", "llvm -mcpu=foo", "llvm:haswell -threads=0", "llvm:haswell -x=1",
                          "llvm:haswell threads", "llvm:haswell -mattr=mmx9", "llvm:haswell -l1=-4"}) {
    EXPECT_FALSE(ParseTarget(bad).ok()) << bad;
  }
}

TEST(Target, HostRunsHereAndRoundTrips) {
  const Target host = HostTarget();
  EXPECT_GE(host.threads, 1);
  EXPECT_GT(host.l1_bytes, 0);
  EXPECT_TRUE(CheckRunsHere(host).ok());
  EXPECT_EQ(*ParseTarget(Text(host)), host);
  EXPECT_EQ(*ParseTarget("host"), host);
  EXPECT_EQ(*ParseTarget("llvm"), host);
}

TEST(Target, AMissingFeatureIsNamed) {
  Target t = HostTarget();
  t.features.push_back("zz-not-a-feature");
  const absl::Status s = CheckRunsHere(t);
  EXPECT_EQ(s.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(s.message().find("zz-not-a-feature"), std::string::npos);
}

}  // namespace
}  // namespace temper
