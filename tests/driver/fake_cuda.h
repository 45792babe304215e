// A driver of GPUs that are not there: a library with the functions of libcuda and libnvidia-ml that Temper calls,
// which run on the host. $TEMPER_CUDA and $TEMPER_NVML name it. What it plays is told by variables, for processes that
// a test starts, or by its state:
//   FAKE_CUDA_DRIVER   12090: CUDA's version
//   FAKE_CUDA_SM       90: of all GPUs
//   FAKE_CUDA_GPUS     1
//   FAKE_CUDA_FREE     bytes of a GPU's memory that others leave
//   FAKE_CUDA_INIT     0: what cuInit returns
// An image is text: "fake sm_90 add geometry" has these functions for that architecture, "fake ptx sm_80 add" for later
// ones too. Which functions there are stands in fake_kernels.cc.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace temper::fake_cuda {

struct Launch {
  std::string function;
  std::array<unsigned, 3> grid, block;
  unsigned shared_bytes;
  std::vector<const void*> arguments;
};

struct State {
  int driver, sm, gpus, init;
  int64_t memory_bytes = int64_t{1} << 30, free_bytes;
  // What is not given back yet.
  std::map<uint64_t, int64_t> allocations;  // bytes by address
  int modules = 0, events = 0, streams = 0, graphs = 0, contexts_retained = 0;
  int pushed = 0;                        // contexts on the stack
  std::map<std::string, int> calls;      // by the function's name
  std::map<std::string, int> fail_once;  // the function's next call returns this
  int broken = 0;                        // what all calls return once a kernel broke the context
  std::vector<Launch> launches;
  int64_t launch_ns = 0;                           // that each takes by the events' clock; 0: what it takes on the host
  std::map<std::string, int> most_dynamic_shared;  // by function, as set
};

// The library's symbol "fake_cuda_state" gives it. Not thread-safe.
using StateFn = State* (*)();

// One thread of a launch; `parameters` as cuLaunchKernel has them.
struct Thread {
  std::array<unsigned, 3> group, thread, grid, block;
  void** parameters;
};
// A function on the host.
struct Kernel {
  const char* name;
  int parameters;              // all of eight bytes
  int (*body)(const Thread&);  // 0, or what the launch's end returns
};
const Kernel* FindKernel(const std::string& name);  // null: there is none

}  // namespace temper::fake_cuda
