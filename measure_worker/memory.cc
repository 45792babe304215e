#include "measure_worker/memory.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "compiler/ops/op.h"

namespace temper::worker {
namespace {

// Floating-point numbers: shapes may be such that their products are no int64_t.
double Bytes(const TensorType& type) {
  double bytes = Info(type.dtype).bits / 8.0;
  for (const int64_t d : type.shape) bytes *= static_cast<double>(d);
  return bytes;
}

absl::Status CheckBytes(double bytes, int64_t limit) {
  if (bytes <= static_cast<double>(limit)) return absl::OkStatus();
  constexpr double kMiB = 1 << 20;
  return absl::ResourceExhaustedError(
      absl::StrCat("it takes ", bytes / kMiB, " MiB of memory, and ", limit >> 20, " MiB may be taken"));
}

// What the results that RunReference holds at once take, less the last.
double MostResults(const Workload& w) {
  const std::vector<int> last_reader = LastReaders(w);
  double held = 0, most = 0;
  for (int i = 0; i + 1 < std::ssize(w.calls); ++i) {
    held += Bytes(w.calls[i].type);
    most = std::max(most, held);
    for (size_t v = w.inputs.size(); v < last_reader.size(); ++v) {
      if (last_reader[v] == i) held -= Bytes(w.TypeOf(static_cast<int>(v)));
    }
  }
  return most;
}

}  // namespace

int64_t MemoryLimit() {
  int64_t bytes = 0;
  if (const char* told = std::getenv("TEMPER_MEMORY_BYTES"); told && absl::SimpleAtoi(told, &bytes) && bytes > 0)
    return bytes;
  return int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
}

absl::Status CheckFits(const Workload& workload, int64_t limit) {
  // As drawn, where kernels are checked, and where they are timed; a constant is kept once (WorkloadState).
  constexpr double kKept = 3;
  double bytes = kKept * Bytes(workload.output());
  // What the reference takes, here: drawn inputs, results, and the range around the last.
  double host_bytes = kKept * Bytes(workload.output()) + MostResults(workload);
  for (const Workload::Operand& input : workload.inputs) {
    bytes += (input.constant ? 1 : kKept) * Bytes(input.type);
    host_bytes += Bytes(input.type);
  }
  TEMPER_RETURN_IF_ERROR(CheckBytes(host_bytes, std::max(limit, MemoryLimit())));
  return CheckBytes(bytes, limit);
}

int64_t ConstantBytes(const Graph& graph) {
  int64_t bytes = 0;
  for (const Value& v : graph.values) {
    if (v.is_constant) bytes += BytesOf(v.type.dtype, NumElements(v.type.shape));
  }
  return bytes;
}

absl::Status CheckFits(const Graph& graph, int64_t limit) {
  double bytes = 0;
  for (const Value& v : graph.values) {
    if (v.is_constant) bytes += Bytes(v.type);
  }
  constexpr double kKept = 2;  // in the graph and in a package
  return CheckBytes(kKept * bytes, limit);
}

}  // namespace temper::worker
