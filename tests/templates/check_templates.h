// Kernels of every template that fits a workload, checked against the operators' references on several instruction
// sets.
#pragma once

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "compiler/codegen/codegen.h"
#include "compiler/ops/templates/winograd.h"
#include "compiler/package/run_kernel.h"
#include "compiler/package/weights.h"

namespace temper {

// A workload from its calls; result types are inferred by parsing.
inline Workload Parse(const std::string& text) {
  absl::StatusOr<Workload> w = ParseWorkload(text);
  EXPECT_TRUE(w.ok()) << text << ": " << w.status();
  return w.ok() ? *w : Workload{};
}

inline std::vector<Target> Targets() {
  std::vector<Target> result;
  for (const char* name : {"host", "llvm:haswell", "llvm:nehalem"}) {
    absl::StatusOr<Target> t = ParseTarget(name);
    EXPECT_TRUE(t.ok()) << t.status();
    if (t.ok() && CheckRunsHere(*t).ok()) {
      t->cpu()->threads = 2;
      result.push_back(*t);
    }
  }
  return result;
}

// The default config and a few random ones of each template on each target.
inline void CheckAll(const Workload& w, int configs, uint64_t seed, const std::vector<Target>& targets = Targets()) {
  Rng rng(seed);
  const std::vector<NDArray> inputs = RandomInputs(w, rng);
  absl::StatusOr<NDArray> wanted = RunReference(w, inputs);
  ASSERT_TRUE(wanted.ok()) << wanted.status();
  const NDArray physical = ToPhysical(*wanted, w.output().perm);
  for (const Target& t : targets) {
    for (const TemplateDef* def : TemplatesFor(w, t)) {
      std::vector<Config> all = def->space(w, t).Enumerate(4096);
      ASSERT_FALSE(all.empty()) << def->name << " has no config for " << Text(w);
      for (int i = 0; i < configs; ++i) {
        const Config& config = all[static_cast<size_t>(rng.Below(static_cast<int64_t>(all.size())))];
        SCOPED_TRACE(absl::StrCat(Text(w), "\n", std::string(def->name), " ", Text(config), "\n", Text(t)));
        absl::StatusOr<Kernel> kernel = BuildKernel(w, def->name, config, t);
        ASSERT_TRUE(kernel.ok()) << kernel.status();
        absl::StatusOr<NDArray> got = RunKernel(w, *kernel, t, inputs);
        ASSERT_TRUE(got.ok()) << got.status();
        const double bound = def->name == "conv2d.winograd" ? kWinogradErrorBound : 1e-5;
        const DTypeInfo& type = Info(got->dtype());
        ASSERT_LE(RelativeError(*got, physical),
                  IsNative(type.dtype) ? IsFloat(type.dtype) ? bound : 0 : type.tolerance);
      }
    }
  }
}

}  // namespace temper
