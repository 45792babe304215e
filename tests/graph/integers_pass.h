// What tests of the pass "integers" share.
#pragma once

#include "compiler/graph/passes/passes.h"
#include "tests/graph/builder.h"

namespace temper::testing {

class IntegersPass : public ::testing::Test {
 protected:
  ValueId Cast(ValueId v, DType to) { return b.Cast(v, to); }
  // (v - zero) * scale, as the importer writes it; no zero point where it has no data.
  ValueId Dequantised(ValueId v, const NDArray& zero, const NDArray& scale) {
    v = Cast(v, DType::kI32);
    if (zero.data() != nullptr) v = b.Call("sub", {v, Cast(b.Constant(zero), DType::kI32)});
    return b.Call("mul", {Cast(v, DType::kF32), b.Constant(scale)});
  }
  // Runs the pass; the results, beside those before.
  void RunOn(const std::vector<NDArray>& inputs, const char* target, double tolerance) {
    const std::vector<NDArray> want = Evaluated(b.g, inputs);
    const absl::Status status = passes::MultiplyIntegers(b.g, *ParseTarget(target));
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_TRUE(Verify(b.g).ok()) << Verify(b.g) << Text(b.g);
    const std::vector<NDArray> got = Evaluated(b.g, inputs);
    for (size_t i = 0; i < want.size(); ++i) EXPECT_LE(RelativeError(got[i], want[i]), tolerance) << Text(b.g);
  }

  Builder b;
};

}  // namespace temper::testing
