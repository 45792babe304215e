// Kernels of GPU templates, run by the interpreter, which finds races, barriers that not all come to and reads of what
// nothing wrote, and checked against the operators' references.
#pragma once

#include "compiler/ir/launch.h"
#include "tests/templates/check_templates.h"

namespace temper {

inline std::vector<Target> GpuTargets() {
  std::vector<Target> targets;
  for (const char* name : {"opencl", "cuda:sm_80"}) targets.push_back(ParseTarget(name).value());
  return targets;
}

// `logical` arrays, one per workload input; the result is in physical order. `run` runs the kernel's launches, on
// arrays in the order of its parameters.
template <typename Run>
absl::StatusOr<NDArray> RunWithPacks(const Workload& w, const Kernel& kernel, std::span<const NDArray> logical,
                                     const Run& run) {
  std::vector<NDArray> args;
  for (size_t i = 0; i < w.inputs.size(); ++i) {
    NDArray physical = ToPhysical(logical[i], w.inputs[i].type.perm);
    if (!kernel.packs[i].params.empty()) {
      const ir::Buffer& out = kernel.packs[i].params.back();
      std::vector<NDArray> pack = {physical, NDArray(out->dtype, out->shape)};
      TEMPER_RETURN_IF_ERROR(ir::Interpret(kernel.packs[i], pack));
      physical = pack.back();
    }
    args.push_back(physical);
  }
  // A template may see the result's dense bytes under another shape.
  args.emplace_back(w.output().dtype, kernel.main.params.back()->shape);
  for (int64_t i = 0; i < args.back().size() && IsFloat(w.output().dtype); ++i)
    args.back().Set(i, std::numeric_limits<double>::quiet_NaN());
  TEMPER_RETURN_IF_ERROR(run(std::span<NDArray>(args)));
  NDArray result(w.output().dtype, w.output().PhysicalShape());
  std::memcpy(result.MutableData(), args.back().data(), static_cast<size_t>(result.bytes()));
  return result;
}

inline absl::StatusOr<NDArray> InterpretKernel(const Workload& w, const Kernel& kernel,
                                               std::span<const NDArray> logical) {
  return RunWithPacks(w, kernel, logical, [&](std::span<NDArray> args) { return ir::Interpret(kernel.main, args); });
}

// Of its launches the one that asks for most.
inline int64_t MostSharedBytes(const Kernel& kernel) {
  int64_t most = 0;
  const std::vector<ir::Launch> launches = ir::LaunchesOf(kernel.main).value();
  for (const ir::Launch& launch : launches) most = std::max(most, launch.shared_bytes());
  return most;
}

// The config's kernel has as much shared memory as its footprint says, and gives the reference's answer, with random
// inputs if there are none.
inline void CheckOnGpu(const Workload& w, std::string_view name, const Config& config, const Target& t, uint64_t seed,
                       std::span<const NDArray> inputs = {}) {
  SCOPED_TRACE(absl::StrCat(Text(w), "\n", std::string(name), " ", Text(config), "\n", Text(t)));
  Rng rng(seed);
  const std::vector<NDArray> drawn = inputs.empty() ? RandomInputs(w, rng) : std::vector<NDArray>();
  if (inputs.empty()) inputs = drawn;
  const absl::StatusOr<NDArray> wanted = RunReference(w, inputs);
  ASSERT_TRUE(wanted.ok()) << wanted.status();
  const absl::StatusOr<Kernel> kernel = BuildKernel(w, name, config, t);
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  EXPECT_EQ(FindTemplate(name)->footprint(w, config, t)["shared_bytes"], static_cast<double>(MostSharedBytes(*kernel)));
  const absl::StatusOr<NDArray> got = InterpretKernel(w, *kernel, inputs);
  ASSERT_TRUE(got.ok()) << got.status() << "\n" << ir::Text(kernel->main);
  const DTypeInfo& type = Info(got->dtype());
  const double of_type = IsNative(type.dtype) ? IsFloat(type.dtype) ? 1e-5 : 0 : type.tolerance;
  ASSERT_LE(RelativeError(*got, ToPhysical(*wanted, w.output().perm)), std::max(of_type, kernel->tolerance))
      << ir::Text(kernel->main);
}

// Random configs of the template on each target: so many, or fewer where there are not as many.
inline void CheckOnGpus(const Workload& w, int configs, uint64_t seed, std::string_view name,
                        std::span<const NDArray> inputs = {}) {
  Rng rng(seed);
  const TemplateDef& def = *FindTemplate(name);
  for (const Target& t : GpuTargets()) {
    ASSERT_TRUE(def.matches(w, t)) << name << " " << Text(w);
    const std::vector<Config> all = def.space(w, t).Enumerate(4096, seed);
    ASSERT_FALSE(all.empty()) << name << " has no config for " << Text(w);
    for (int i = 0; i < std::min<int>(configs, static_cast<int>(all.size())); ++i) {
      const Config& config = all[static_cast<size_t>(rng.Below(static_cast<int64_t>(all.size())))];
      CheckOnGpu(w, name, config, t, seed, inputs);
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

// Random configs of the template, as often as they are drawn; at most as many as there are.
inline std::vector<Config> DrawConfigs(std::string_view name, const Workload& w, const Target& t, size_t count,
                                       uint64_t seed) {
  const std::vector<Config> all = FindTemplate(name)->space(w, t).Enumerate(4096, seed);
  std::vector<Config> drawn;
  Rng rng(seed);
  for (size_t i = 0; i < std::min(count, all.size()); ++i)
    drawn.push_back(all[static_cast<size_t>(rng.Below(static_cast<int64_t>(all.size())))]);
  return drawn;
}

// So many configs of each workload on one target.
inline void CheckDraws(std::string_view name, std::span<const char* const> texts, const Target& t, size_t configs) {
  uint64_t seed = 1;
  for (const char* text : texts) {
    const Workload w = *ParseWorkload(text);
    ASSERT_TRUE(FindTemplate(name)->matches(w, t)) << text;
    for (const Config& config : DrawConfigs(name, w, t, configs, seed)) {
      CheckOnGpu(w, name, config, t, seed);
      if (::testing::Test::HasFatalFailure()) return;
    }
    ++seed;
  }
}

// Adds up what warps ask of shared memory.
inline void CountTraffic(std::string_view name, const Workload& w, const Config& config, const Target& t, uint64_t seed,
                         ir::SharedTraffic& traffic) {
  const Kernel kernel = BuildKernel(w, name, config, t).value();
  Rng rng(seed);
  const auto run = [&](std::span<NDArray> args) { return ir::Interpret(kernel.main, args, &traffic); };
  ASSERT_TRUE(RunWithPacks(w, kernel, RandomInputs(w, rng), run).ok());
}

// In none of so many configs of each workload.
inline void CheckNoBankConflict(std::string_view name, std::span<const char* const> texts, const Target& t,
                                size_t configs) {
  uint64_t seed = 7;
  for (const char* text : texts) {
    const Workload w = *ParseWorkload(text);
    for (const Config& config : DrawConfigs(name, w, t, configs, ++seed)) {
      ir::SharedTraffic traffic;
      CountTraffic(name, w, config, t, seed, traffic);
      EXPECT_GT(traffic.requests, 0);
      EXPECT_EQ(traffic.conflicts, 0) << Text(w) << "\n" << Text(config);
    }
  }
}

}  // namespace temper
