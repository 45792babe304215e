// Workloads that nobody needs, as a hostile client sends them: refused, or drafted in no more steps than any other.
// What goes wrong here does not end, so the time that a test may take is the judge.
#include <gtest/gtest.h>

#include <cmath>

#include "absl/strings/str_cat.h"
#include "compiler/ops/template.h"

namespace temper {
namespace {

const Target& Avx512() {
  static const Target target = *ParseTarget("llvm:znver4");
  return target;
}

// All that a server computes of a workload before anybody measures it.
void Draft(const Workload& w) {
  EXPECT_FALSE(Text(w).empty());
  EXPECT_FALSE(AnchorText(w).empty());
  EXPECT_TRUE(std::isfinite(Flops(w)));
  EXPECT_TRUE(std::isfinite(CompulsoryBytes(w)));
  const absl::StatusOr<Choice> choice = DefaultChoice(w, Avx512());
  if (!choice.ok()) return;
  for (const double value : choice->def->footprint(w, choice->config, Avx512()).values)
    EXPECT_TRUE(std::isfinite(value)) << Text(w);
}

TEST(HostileWorkloads, OfGreatExtentAreDrafted) {
  constexpr char kGreat[] = "68719476736";  // 2^36, the most that a value may hold
  for (const std::string& text : {
           // Taps times outputs were counted one by one.
           std::string("(f32[1,1,33554432,1], const f32[1,1,1048576,1]) conv2d(0,1) -> f32[1,1,32505857,1]; anchor=0"),
           std::string("(f32[1,1,33554432,1]@0231, const f32[1,1,1048576,1]) conv2d(0,1) -> f32[1,1,32505857,1]@0231; "
                       "anchor=0"),
           std::string("(f32[1,1,8192,1048576]@0231, const f32[8,1,1024,1024]) conv2d(0,1; pads=[512,512,511,511]) -> "
                       "f32[1,8,8192,1048576]@0231; anchor=0"),
           std::string("(f32[262144,262144], const f32[262144,262144]) matmul(0,1) -> f32[262144,262144]; anchor=0"),
           absl::StrCat("(f32[1,", kGreat, "], const f32[", kGreat, ",1]) matmul(0,1) -> f32[1,1]; anchor=0"),
           absl::StrCat("(f32[", kGreat, ",1], const f32[1,1]) matmul(0,1) -> f32[", kGreat, ",1]; anchor=0"),
           // Panels of channels were tried one by one.
           std::string("(f32[1,33554432,32,32]@0231) reduce_mean(0; axes=[2,3]) -> f32[1,33554432,1,1]; anchor=0"),
           absl::StrCat("(f32[", kGreat, "]) relu(0) -> f32[", kGreat, "]; anchor=0"),
           absl::StrCat("(f32[1,1,", kGreat,
                        ",1]) max_pool2d(0; kernel=[1048576,1]) -> f32[1,1,68718428161,1]; anchor=0"),
           std::string("(f32[1,1048576,1024,64]@0231, const f32[1048576,1,3,3]) conv2d(0,1; group=1048576 "
                       "pads=[1,1,1,1]) -> f32[1,1048576,1024,64]@0231; anchor=0"),
       }) {
    const absl::StatusOr<Workload> w = ParseWorkload(text);
    ASSERT_TRUE(w.ok()) << w.status();
    Draft(*w);
  }
}

TEST(HostileWorkloads, BeyondAllMeasureAreRefused) {
  for (const std::string& text : {
           std::string("(f32[1,1,33554432,1], const f32[1,1,16777216,1]) conv2d(0,1) -> f32[1,1,16777217,1]; anchor=0"),
           std::string("(f32[1,1,65536,1048576], const f32[1,1,65536,1048576]) conv2d(0,1; "
                       "pads=[32768,524288,32767,524287]) -> f32[1,1,65536,1048576]; anchor=0"),
           std::string("(f32[4294967296,4294967296]) relu(0) -> f32[4294967296,4294967296]; anchor=0"),
           std::string(
               "(f32[1,1,1,1], const f32[1,4611686018427387904,1,1]) conv2d(0,1; group=4) -> f32[1,1,1,1]; anchor=0"),
           std::string("(f32[1,4,1,1], const f32[4,1,1,1]) conv_transpose2d(0,1; group=9223372036854775807) -> "
                       "f32[1,4,1,1]; anchor=0"),
           std::string("(f32[1,1,1,1]) max_pool2d(0; kernel=[9223372036854775807,2]) -> f32[1,1,1,1]; anchor=0"),
           std::string("(f32[2]) tile(0; repeats=[9223372036854775807]) -> f32[2]; anchor=0"),
           std::string("(f32[2]) expand(0; shape=[9223372036854775807,2]) -> f32[2]; anchor=0"),
           std::string("(f32[2]) reshape(0; shape=[9223372036854775807,-1]) -> f32[2]; anchor=0"),
           // An operand that has to be there.
           std::string("() reduce_mean(_; axes=[]) -> f32[]; anchor=0"),
           std::string("() relu(_) -> f32[]; anchor=0"),
           std::string("(f32[4]) add(0,_) -> f32[4]; anchor=0"),
       }) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseWorkload(text).status())) << text;
  }
}

TEST(HostileWorkloads, OfManyPartsAreReadOrRefused) {
  std::string chain = "(f32[4]) ";
  for (int i = 0; i < 1024; ++i) absl::StrAppend(&chain, "add(", i, ",", i, ") -> f32[4]; ");
  const absl::StatusOr<Workload> w = ParseWorkload(absl::StrCat(chain, "anchor=0"));
  ASSERT_TRUE(w.ok()) << w.status();
  Draft(*w);
  absl::StrAppend(&chain, "relu(0) -> f32[4]; ");
  EXPECT_FALSE(ParseWorkload(absl::StrCat(chain, "anchor=0")).ok());
  const std::string deep =
      absl::StrCat("(f32[4]) reshape(0; shape=[", std::string(60'000, '['), "]) -> f32[4]; anchor=0");
  EXPECT_FALSE(ParseWorkload(deep).ok());
  std::string ones = "f32[1";
  for (int i = 0; i < 20; ++i) ones += ",1";
  EXPECT_FALSE(ParseWorkload(absl::StrCat("(", ones, "]) relu(0) -> ", ones, "]; anchor=0")).ok());
}

}  // namespace
}  // namespace temper
