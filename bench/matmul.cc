// Single-core matmul on packed weights against the FMA ceiling measured in the same run.
// usage: matmul [M K N [configs to try]]        default: 512 768 768 24
#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "compiler/runtime/roofline.h"
#include "compiler/runtime/timing.h"
#include "tests/templates/kernel_runner.h"

namespace temper {
namespace {

struct Entry {
  Config config;
  std::unique_ptr<LoadedModule> module;
  temper_kernel kernel;
  NDArray packed, workspace;
  double best_s = 1e9;
};

absl::Status Run(int64_t m, int64_t k, int64_t n, size_t configs) {
  TEMPER_ASSIGN_OR_RETURN(Workload w, ParseWorkload(absl::StrCat("(f32[", m, ",", k, "], const f32[", k, ",", n,
                                                                 "]) matmul(0,1) -> f32[", m, ",", n, "]; anchor=0")));
  Target t = HostTarget();
  t.threads = 1;
  const TemplateDef* def = FindTemplate("matmul.packed");
  std::vector<Config> all = def->space(w, t).Enumerate(8192);
  std::stable_sort(all.begin(), all.end(), [&](const Config& a, const Config& b) {
    return DraftSeconds(def->footprint(w, a, t), t) < DraftSeconds(def->footprint(w, b, t), t);
  });
  all.resize(std::min(all.size(), configs));

  Rng rng(1);
  const std::vector<NDArray> inputs = RandomInputs(w, rng);
  TEMPER_ASSIGN_OR_RETURN(NDArray wanted, RunReference(w, inputs));
  NDArray out(DType::kF32, {m, n});
  std::vector<Entry> entries;
  for (const Config& config : all) {
    TEMPER_ASSIGN_OR_RETURN(Kernel kernel, BuildKernel(w, def->name, config, t));
    TEMPER_ASSIGN_OR_RETURN(NDArray got, RunKernel(w, kernel, t, inputs));
    if (double e = RelativeError(got, wanted); e > 1e-5)
      return absl::InternalError(absl::StrCat(Text(config), ": wrong by ", e));
    TEMPER_ASSIGN_OR_RETURN(CompiledModule compiled,
                            CompileModule({{"main", kernel.main}, {"pack", kernel.packs[1]}}, t));
    Entry e{config};
    TEMPER_ASSIGN_OR_RETURN(e.module, LoadObject(compiled.object));
    TEMPER_ASSIGN_OR_RETURN(void* main, e.module->Symbol("main"));
    TEMPER_ASSIGN_OR_RETURN(void* pack, e.module->Symbol("pack"));
    e.kernel = reinterpret_cast<temper_kernel>(main);
    e.packed = NDArray(DType::kF32, kernel.packs[1].params.back()->shape);
    e.workspace =
        NDArray(DType::kU8, {compiled.kernels[0].workspace_bytes + compiled.kernels[0].thread_workspace_bytes});
    temper_launcher one{RunOnOneThread, 1};
    void* pack_args[] = {const_cast<void*>(inputs[1].data()), e.packed.MutableData()};
    reinterpret_cast<temper_kernel>(pack)(pack_args, e.workspace.MutableData(), &one);
    entries.push_back(std::move(e));
  }
  double ceiling = 0;
  constexpr int kRounds = 30;
  for (int round = 0; round < kRounds; ++round) {
    temper_launcher alone{RunOnOneThread, 1};
    ceiling = std::max(ceiling, MeasureFlops(&alone, t.vector_bits, 0.02) * 1e-9);
    for (Entry& e : entries) {
      temper_launcher one{RunOnOneThread, 1};
      void* args[] = {const_cast<void*>(inputs[0].data()), e.packed.MutableData(), out.MutableData()};
      const int64_t start = MonotonicNs();
      e.kernel(args, e.workspace.MutableData(), &one);
      e.best_s = std::min(e.best_s, static_cast<double>(MonotonicNs() - start) * 1e-9);
    }
  }
  const double flops = 2.0 * static_cast<double>(m) * static_cast<double>(k) * static_cast<double>(n);
  const Config first = entries[0].config;
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.best_s < b.best_s; });
  for (const Entry& e : entries) {
    const double gflops = flops / e.best_s * 1e-9;
    std::printf("%-40s %7.1f GFLOP/s  %5.1f %% of the ceiling%s\n", Text(e.config).c_str(), gflops,
                100 * gflops / ceiling, e.config == first ? "  (default)" : "");
  }
  std::printf("%ldx%ldx%ld on one core: FMA ceiling %.1f GFLOP/s, best of %zu configs %.1f %%\n", static_cast<long>(m),
              static_cast<long>(k), static_cast<long>(n), ceiling, entries.size(),
              100 * flops / entries[0].best_s * 1e-9 / ceiling);
  return absl::OkStatus();
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  auto number = [&](int i, long otherwise) { return argc > i ? std::atol(argv[i]) : otherwise; };
  absl::Status status = temper::Run(number(1, 512), number(2, 768), number(3, 768), static_cast<size_t>(number(4, 24)));
  if (!status.ok()) std::fprintf(stderr, "matmul: %s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
