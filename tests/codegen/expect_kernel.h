// Generated code against the interpreter, on several targets.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "base/rng.h"
#include "gtest/gtest.h"
#include "tests/codegen/run_kernel.h"

namespace temper {

// This machine's own target, and those of older machines that it can run.
inline std::vector<Target> TestTargets() {
  std::vector<Target> targets = {HostTarget()};
  for (const char* name : {"llvm:haswell", "llvm:nehalem"}) {
    Target t = *ParseTarget(name);
    if (CheckRunsHere(t).ok()) targets.push_back(t);
  }
  return targets;
}

inline NDArray RandomArray(DType dtype, const Shape& shape, Rng& rng) {
  NDArray a(dtype, shape);
  for (int64_t i = 0; i < a.size(); ++i) {
    switch (dtype) {
      case DType::kF32:
      case DType::kF64:
        a.Set(i, rng.Uniform() * 8 - 4);
        break;
      case DType::kU8:
        a.Set(i, static_cast<double>(rng.Below(256)));
        break;
      case DType::kBool:
        a.Set(i, static_cast<double>(rng.Below(2)));
        break;
      default:
        a.Set(i, static_cast<double>(rng.Below(255) - 127));
        break;
    }
  }
  return a;
}

inline std::vector<NDArray> RandomArgs(const ir::Func& func, Rng& rng) {
  std::vector<NDArray> args;
  for (size_t i = 0; i < func.params.size(); ++i) {
    const bool output = i + static_cast<size_t>(func.num_outputs) >= func.params.size();
    args.push_back(output ? NDArray(func.params[i]->dtype, func.params[i]->shape)
                          : RandomArray(func.params[i]->dtype, func.params[i]->shape, rng));
  }
  return args;
}

inline ::testing::AssertionResult SameOnTarget(const ir::Func& func, const std::vector<NDArray>& args,
                                               const Target& target, double tolerance, int threads = 2) {
  auto copies = [&args] {
    std::vector<NDArray> out;
    for (const NDArray& a : args) out.push_back(a.Clone());
    return out;
  };
  std::vector<NDArray> want = copies(), got = copies();
  if (absl::Status s = ir::Interpret(func, want); !s.ok()) {
    return ::testing::AssertionFailure() << "interpreter: " << s << "\n" << ir::Text(func);
  }
  auto kernel = RunnableKernel::Make(func, target);
  if (!kernel.ok())
    return ::testing::AssertionFailure() << target.name() << ": " << kernel.status() << "\n" << ir::Text(func);
  if (kernel->Run(got, threads) < 0) return ::testing::AssertionFailure() << "scratch overrun\n" << ir::Text(func);
  for (size_t i = 0; i < want.size(); ++i) {
    for (int64_t j = 0; j < want[i].size(); ++j) {
      const double w = want[i].At(j), g = got[i].At(j);
      if (w == g || (std::isnan(w) && std::isnan(g)) || std::abs(w - g) <= tolerance * std::max(1.0, std::abs(w)))
        continue;
      return ::testing::AssertionFailure()
             << target.name() << ": " << func.params[i]->name << "[" << j << "] is " << g << ", not " << w << "\n"
             << ir::Text(func);
    }
  }
  return ::testing::AssertionSuccess();
}

inline void ExpectSame(const ir::Func& func, double tolerance = 1e-5, uint64_t seed = 1, int threads = 2) {
  ASSERT_TRUE(ir::Verify(func).ok()) << ir::Verify(func) << "\n" << ir::Text(func);
  Rng rng(seed);
  const std::vector<NDArray> args = RandomArgs(func, rng);
  for (const Target& t : TestTargets()) EXPECT_TRUE(SameOnTarget(func, args, t, tolerance, threads));
}

}  // namespace temper
