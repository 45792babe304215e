// The functions that images of the fake driver may have.
#include "tests/driver/fake_cuda.h"

namespace temper::fake_cuda {
namespace {

template <typename T>
T* Parameter(const Thread& t, int i) {
  return *static_cast<T**>(t.parameters[i]);
}

unsigned Index(const Thread& t) { return t.group[0] * t.block[0] + t.thread[0]; }

// (a, b, sum): an element a thread along x.
int Add(const Thread& t) {
  Parameter<float>(t, 2)[Index(t)] = Parameter<float>(t, 0)[Index(t)] + Parameter<float>(t, 1)[Index(t)];
  return 0;
}

// (in, out): an element a thread along x.
int Double(const Thread& t) {
  Parameter<float>(t, 1)[Index(t)] = 2 * Parameter<float>(t, 0)[Index(t)];
  return 0;
}

// (in, out, workspace): through the workspace, in two launches.
int Stage(const Thread& t) {
  Parameter<float>(t, 2)[Index(t)] = Parameter<float>(t, 0)[Index(t)];
  return 0;
}
int Unstage(const Thread& t) {
  Parameter<float>(t, 1)[Index(t)] = Parameter<float>(t, 2)[Index(t)];
  return 0;
}

// (in, out): also writes behind its output, which has an element for each thread.
int Overrun(const Thread& t) {
  Parameter<float>(t, 1)[Index(t)] = 0;
  Parameter<float>(t, 1)[t.grid[0] * t.block[0]] = 0;
  return 0;
}

// (out): each thread writes the number that its place in the launch gives it.
int Number(const Thread& t) {
  uint64_t group = 0, thread = 0, threads = 1;
  for (size_t i = 3; i-- > 0;) {
    group = group * t.grid[i] + t.group[i];
    thread = thread * t.block[i] + t.thread[i];
    threads *= t.block[i];
  }
  Parameter<uint32_t>(t, 0)[group * threads + thread] = static_cast<uint32_t>(group * threads + thread);
  return 0;
}

int LeaveMemory(const Thread&) { return 700; }

constexpr Kernel kKernels[] = {{"add", 3, Add},
                               {"double", 2, Double},
                               {"stage", 3, Stage},
                               {"unstage", 3, Unstage},
                               {"overrun", 2, Overrun},
                               {"number", 1, Number},
                               {"leave_memory", 0, LeaveMemory}};

}  // namespace

const Kernel* FindKernel(const std::string& name) {
  for (const Kernel& kernel : kKernels) {
    if (name == kernel.name) return &kernel;
  }
  return nullptr;
}

}  // namespace temper::fake_cuda
