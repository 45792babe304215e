// What the programs of this folder share: the shapes to measure, and kernels of ours ready to be timed.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "measure_worker/backends/cpu/cpu_device.h"
#include "measure_worker/kernels/program.h"

namespace temper::bench {

// The distinct anchors (convolutions, dense layers, matmuls) in files of `temper tasks MODEL --json` lines, alone,
// without what is fused to them; in order of first appearance. "-" is standard input. `several`: where one kernel has
// several of them, it is kept as it is.
absl::StatusOr<std::vector<Workload>> ReadAnchors(const std::vector<std::string>& files, bool several = false);

// "conv 1x64x56x56 * 64x64x3x3 s2 g1" or "matmul 128x768 * 768x3072": short enough for a table.
std::string ShortText(const Workload& w);

// Where kernels are timed. Outlives what is made with it.
struct Bench {
  Target target;  // a CPU
  worker::CachePlan cache;
  std::unique_ptr<worker::CpuDevice> device;
  std::unique_ptr<worker::CodeCache> code;

  static absl::StatusOr<Bench> Make(const std::string& target, int threads, const std::string& cache_policy);
  temper_launcher* launcher() const { return device->launcher(); }
};

// One way to run a shape, and its times.
struct Contender {
  std::string name;  // "default", "tuned", "onednn"
  std::string what;  // template and config, or the library's name for what it runs
  std::unique_ptr<worker::Program> program;
  double error = 0;               // of the answer, against the reference
  int64_t calls = 1;              // a sample
  std::vector<double> samples_s;  // seconds a call, by round

  bool winograd() const { return what.find("winograd") != std::string::npos; }
};
// Builds a kernel of ours and checks its answer.
absl::StatusOr<Contender> OurKernel(const Bench& bench, const std::shared_ptr<worker::WorkloadState>& state,
                                    const std::string& name, const std::string& template_name, const Config& config);
// One untimed call, then one sample.
void TakeSample(Contender& c);

}  // namespace temper::bench
