// The driver's functions, as its public reference describes them. All checks that cost nothing are made: a call without
// a context, memory that is not the device's, a handle that was given back.
#include "tests/driver/fake_cuda.h"

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <set>
#include <sstream>

namespace temper::fake_cuda {
namespace {

constexpr int kSuccess = 0, kInvalidValue = 1, kOutOfMemory = 2, kNotInitialized = 3, kInvalidDevice = 101,
              kInvalidImage = 200, kInvalidContext = 201, kNoBinaryForGpu = 209, kInvalidHandle = 400, kNotFound = 500,
              kCaptureUnsupported = 900, kCaptureInvalidated = 901;
constexpr int kStaticSharedLimit = 48 << 10, kOptinSharedLimit = 227 << 10;

struct Module {
  std::set<std::string> functions;
};
struct Function {
  Module* module;
  const Kernel* kernel;
};
struct Event {
  int64_t ns = -1;
};

// What a graph does, one after another.
using Work = std::vector<std::function<int()>>;
struct Stream {
  bool captures = false, valid = true;  // valid: nothing was asked of it that a capture does not take
  Work captured;
};

int64_t NowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

int64_t Told(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::atoll(text) : otherwise;
}

State MakeState() {
  State state{};
  state.driver = static_cast<int>(Told("FAKE_CUDA_DRIVER", 12090));
  state.sm = static_cast<int>(Told("FAKE_CUDA_SM", 90));
  state.gpus = static_cast<int>(Told("FAKE_CUDA_GPUS", 1));
  state.init = static_cast<int>(Told("FAKE_CUDA_INIT", 0));
  state.memory_bytes = int64_t{1} << 30;
  state.free_bytes = Told("FAKE_CUDA_FREE", state.memory_bytes);
  return state;
}

State& TheState() {
  static State state = MakeState();
  return state;
}

bool initialised = false;
char context_marker;  // its address is the one context
std::map<void*, std::unique_ptr<Function>> functions;
std::set<Module*> modules;

// What a call returns before it does anything.
int Begin(const char* name, bool needs_context) {
  State& state = TheState();
  ++state.calls[name];
  if (!initialised) return kNotInitialized;
  if (const auto fail = state.fail_once.find(name); fail != state.fail_once.end()) {
    const int code = fail->second;
    state.fail_once.erase(fail);
    return code;
  }
  if (state.broken != kSuccess) return state.broken;
  return needs_context && state.pushed == 0 ? kInvalidContext : kSuccess;
}

// Whether the device's memory holds all these bytes.
bool Holds(uint64_t address, size_t bytes) {
  const auto& all = TheState().allocations;
  auto found = all.upper_bound(address);
  if (found == all.begin()) return false;
  --found;
  return address + bytes <= found->first + static_cast<uint64_t>(found->second);
}

// Whether they begin in the device's memory and end outside of it.
bool Crosses(uint64_t address, size_t bytes) { return Holds(address, 0) && !Holds(address, bytes); }

// "fake [ptx] sm_90 NAME ...".
int ReadImage(const char* image, Module& module) {
  std::istringstream text(image);
  std::string word;
  text >> word;
  if (word != "fake") return kInvalidImage;
  text >> word;
  const bool ptx = word == "ptx";
  if (ptx) text >> word;
  if (word.rfind("sm_", 0) != 0) return kInvalidImage;
  const int sm = std::atoi(word.c_str() + 3), ours = TheState().sm;
  if (sm > ours || (!ptx && sm / 10 != ours / 10)) return kNoBinaryForGpu;
  while (text >> word) module.functions.insert(word);
  return kSuccess;
}

// Does it, or keeps it where the stream captures.
int Enqueue(void* stream, const std::function<int()>& work) {
  auto& s = *static_cast<Stream*>(stream);
  if (!s.captures) return work();
  s.captured.push_back(work);
  return kSuccess;
}

// What a capture does not take; it is spoilt by that.
int Refuse(Stream& s) {
  s.valid = false;
  return kCaptureUnsupported;
}

int RunAll(const Kernel& kernel, const Launch& launch, void** parameters) {
  Thread t{{}, {}, launch.grid, launch.block, parameters};
  const auto& [gx, gy, gz] = launch.grid;
  const auto& [bx, by, bz] = launch.block;
  for (unsigned g = 0; g < gx * gy * gz; ++g) {
    t.group = {g % gx, g / gx % gy, g / gx / gy};
    for (unsigned i = 0; i < bx * by * bz; ++i) {
      t.thread = {i % bx, i / bx % by, i / bx / by};
      if (const int code = kernel.body(t); code != kSuccess) return code;
    }
  }
  return kSuccess;
}

int AttributeOf(int attribute) {
  switch (attribute) {
    case 1:
      return 1024;
    case 10:
      return 32;
    case 16:
      return 132;
    case 38:
      return 50 << 20;
    case 75:
      return TheState().sm / 10;
    case 76:
      return TheState().sm % 10;
    case 81:
      return 228 << 10;
    case 82:
      return 65536;
    case 97:
      return kOptinSharedLimit;
    default:
      return 0;
  }
}

}  // namespace
}  // namespace temper::fake_cuda

using namespace temper::fake_cuda;

// --- the driver

extern "C" {

State* fake_cuda_state() { return &TheState(); }

int cuInit(unsigned) {
  ++TheState().calls["cuInit"];
  initialised = TheState().init == kSuccess;
  return TheState().init;
}
int cuDriverGetVersion(int* version) {
  *version = TheState().driver;
  return kSuccess;
}
int cuDeviceGetCount(int* count) {
  *count = TheState().gpus;
  return Begin("cuDeviceGetCount", false);
}
int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return ordinal < 0 || ordinal >= TheState().gpus ? kInvalidDevice : Begin("cuDeviceGet", false);
}
int cuDeviceGetName(char* name, int bytes, int device) {
  std::snprintf(name, static_cast<size_t>(bytes), "Fake GPU %d", device);
  return Begin("cuDeviceGetName", false);
}
int cuDeviceGetUuid(unsigned char* uuid, int device) {
  for (int i = 0; i < 16; ++i) uuid[i] = static_cast<unsigned char>(16 * device + i);
  return Begin("cuDeviceGetUuid", false);
}
int cuDeviceTotalMem_v2(size_t* bytes, int) {
  *bytes = static_cast<size_t>(TheState().memory_bytes);
  return Begin("cuDeviceTotalMem", false);
}
int cuDeviceGetAttribute(int* value, int attribute, int) {
  *value = AttributeOf(attribute);
  return Begin("cuDeviceGetAttribute", false);
}

int cuDevicePrimaryCtxRetain(void** context, int) {
  if (const int code = Begin("cuDevicePrimaryCtxRetain", false); code != kSuccess) return code;
  ++TheState().contexts_retained;
  *context = &context_marker;
  return kSuccess;
}
int cuCtxPushCurrent_v2(void* context) {
  const int code = Begin("cuCtxPushCurrent", false);
  if (code != kSuccess && code != TheState().broken) return code;
  if (context != &context_marker) return kInvalidContext;
  ++TheState().pushed;
  return kSuccess;
}
int cuCtxPopCurrent_v2(void** context) {
  if (TheState().pushed == 0) return kInvalidContext;
  --TheState().pushed;
  *context = &context_marker;
  return kSuccess;
}

int cuModuleLoadDataEx(void** module, const void* image, unsigned count, const int* options, void** values) {
  if (const int code = Begin("cuModuleLoadDataEx", true); code != kSuccess) return code;
  auto loaded = std::make_unique<Module>();
  const int code = ReadImage(static_cast<const char*>(image), *loaded);
  if (code == kInvalidImage) {
    for (unsigned i = 0; i < count; ++i) {
      if (options[i] == 5) std::strcpy(static_cast<char*>(values[i]), "ptxas fatal: this is no image\nand more");
    }
  }
  if (code != kSuccess) return code;
  ++TheState().modules;
  modules.insert(loaded.get());
  *module = loaded.release();
  return kSuccess;
}
int cuModuleUnload(void* module) {
  if (const int code = Begin("cuModuleUnload", true); code != kSuccess) return code;
  --TheState().modules;
  modules.erase(static_cast<Module*>(module));
  delete static_cast<Module*>(module);
  return kSuccess;
}
int cuModuleGetFunction(void** function, void* module, const char* name) {
  if (const int code = Begin("cuModuleGetFunction", true); code != kSuccess) return code;
  auto* from = static_cast<Module*>(module);
  if (!from->functions.contains(name) || FindKernel(name) == nullptr) return kNotFound;
  auto made = std::make_unique<Function>(Function{from, FindKernel(name)});
  *function = made.get();
  functions[*function] = std::move(made);
  return kSuccess;
}
int cuFuncSetAttribute(void* function, int attribute, int value) {
  if (const int code = Begin("cuFuncSetAttribute", true); code != kSuccess) return code;
  if (attribute != 8 || value > kOptinSharedLimit) return kInvalidValue;
  TheState().most_dynamic_shared[functions.at(function)->kernel->name] = value;
  return kSuccess;
}

int cuMemGetInfo_v2(size_t* free, size_t* total) {
  *free = static_cast<size_t>(TheState().free_bytes), *total = static_cast<size_t>(TheState().memory_bytes);
  return Begin("cuMemGetInfo", true);
}
int cuMemAlloc_v2(uint64_t* address, size_t bytes) {
  if (const int code = Begin("cuMemAlloc", true); code != kSuccess) return code;
  State& state = TheState();
  if (bytes == 0) return kInvalidValue;
  if (static_cast<int64_t>(bytes) > state.free_bytes) return kOutOfMemory;
  *address = reinterpret_cast<uint64_t>(std::aligned_alloc(256, (bytes + 255) / 256 * 256));
  state.free_bytes -= static_cast<int64_t>(bytes);
  state.allocations[*address] = static_cast<int64_t>(bytes);
  return kSuccess;
}
int cuMemFree_v2(uint64_t address) {
  if (const int code = Begin("cuMemFree", true); code != kSuccess) return code;
  const auto found = TheState().allocations.find(address);
  if (found == TheState().allocations.end()) return kInvalidValue;
  TheState().free_bytes += found->second;
  TheState().allocations.erase(found);
  std::free(reinterpret_cast<void*>(address));
  return kSuccess;
}
int cuMemcpyAsync(uint64_t to, uint64_t from, size_t bytes, void* stream) {
  if (const int code = Begin("cuMemcpyAsync", true); code != kSuccess) return code;
  if (Crosses(to, bytes) || Crosses(from, bytes)) return kInvalidValue;
  return Enqueue(stream, [=] {
    std::memmove(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
    return kSuccess;
  });
}
int cuMemsetD8Async(uint64_t to, unsigned char byte, size_t bytes, void* stream) {
  if (const int code = Begin("cuMemsetD8", true); code != kSuccess) return code;
  if (!Holds(to, bytes)) return kInvalidValue;
  return Enqueue(stream, [=] {
    std::memset(reinterpret_cast<void*>(to), byte, bytes);
    return kSuccess;
  });
}

int cuStreamCreate(void** stream, unsigned) {
  if (const int code = Begin("cuStreamCreate", true); code != kSuccess) return code;
  ++TheState().streams;
  *stream = new Stream;
  return kSuccess;
}
int cuStreamSynchronize(void* stream) {
  if (const int code = Begin("cuStreamSynchronize", true); code != kSuccess) return code;
  auto& s = *static_cast<Stream*>(stream);
  return s.captures ? Refuse(s) : kSuccess;
}
int cuStreamDestroy_v2(void* stream) {
  --TheState().streams;
  delete static_cast<Stream*>(stream);
  return Begin("cuStreamDestroy", true);
}

int cuStreamBeginCapture_v2(void* stream, int) {
  if (const int code = Begin("cuStreamBeginCapture", true); code != kSuccess) return code;
  *static_cast<Stream*>(stream) = Stream{.captures = true};
  return kSuccess;
}
int cuStreamEndCapture(void* stream, void** graph) {
  *graph = nullptr;
  auto& s = *static_cast<Stream*>(stream);
  s.captures = false;
  if (const int code = Begin("cuStreamEndCapture", true); code != kSuccess) return code;
  if (!s.valid) return kCaptureInvalidated;
  ++TheState().graphs;
  *graph = new Work(std::move(s.captured));
  return kSuccess;
}
int cuGraphInstantiateWithFlags(void** executable, void* graph, unsigned long long) {
  if (const int code = Begin("cuGraphInstantiate", true); code != kSuccess) return code;
  ++TheState().graphs;
  *executable = new Work(*static_cast<Work*>(graph));
  return kSuccess;
}
int cuGraphLaunch(void* executable, void* stream) {
  if (const int code = Begin("cuGraphLaunch", true); code != kSuccess) return code;
  return Enqueue(stream, [executable] {
    for (const auto& work : *static_cast<Work*>(executable)) {
      if (const int code = work(); code != kSuccess) return code;
    }
    return kSuccess;
  });
}
int cuGraphDestroy(void* graph) {
  --TheState().graphs;
  delete static_cast<Work*>(graph);
  return Begin("cuGraphDestroy", true);
}
int cuGraphExecDestroy(void* executable) { return cuGraphDestroy(executable); }

int cuLaunchKernel(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared_bytes, void* stream, void** parameters, void**) {
  if (const int code = Begin("cuLaunchKernel", true); code != kSuccess) return code;
  const auto found = functions.find(function);
  if (found == functions.end()) return kInvalidHandle;
  const uint64_t threads = uint64_t{bx} * by * bz;
  const unsigned most_yz = 65535;
  if (threads == 0 || threads > 1024 || gx == 0 || gy == 0 || gz == 0 || gy > most_yz || gz > most_yz)
    return kInvalidValue;
  const Kernel& kernel = *found->second->kernel;
  Launch launch{kernel.name, {gx, gy, gz}, {bx, by, bz}, shared_bytes, {}};
  const auto most = TheState().most_dynamic_shared.find(launch.function);
  if (shared_bytes > kStaticSharedLimit &&
      (most == TheState().most_dynamic_shared.end() || static_cast<int>(shared_bytes) > most->second)) {
    return kInvalidValue;
  }
  std::vector<void*> values;  // a driver copies them too
  for (int i = 0; i < kernel.parameters; ++i) values.push_back(*static_cast<void**>(parameters[i]));
  launch.arguments.assign(values.begin(), values.end());
  return Enqueue(stream, [=, module = found->second->module]() mutable {
    if (!modules.contains(module)) return kInvalidHandle;
    std::vector<void*> places;
    for (void*& value : values) places.push_back(&value);
    TheState().launches.push_back(launch);
    TheState().broken = RunAll(kernel, launch, places.data());  // as a driver, it tells at the next call
    return kSuccess;
  });
}

int cuEventCreate(void** event, unsigned) {
  if (const int code = Begin("cuEventCreate", true); code != kSuccess) return code;
  ++TheState().events;
  *event = new Event;
  return kSuccess;
}
int cuEventRecord(void* event, void*) {
  if (const int code = Begin("cuEventRecord", true); code != kSuccess) return code;
  const State& state = TheState();
  static_cast<Event*>(event)->ns =
      state.launch_ns > 0 ? state.launch_ns * static_cast<int64_t>(state.launches.size()) : NowNs();
  return kSuccess;
}
int cuEventSynchronize(void*) { return Begin("cuEventSynchronize", true); }
int cuEventElapsedTime(float* milliseconds, void* start, void* end) {
  if (const int code = Begin("cuEventElapsedTime", true); code != kSuccess) return code;
  const auto *from = static_cast<Event*>(start), *to = static_cast<Event*>(end);
  if (from->ns < 0 || to->ns < 0) return kInvalidHandle;
  *milliseconds = static_cast<float>(to->ns - from->ns) * 1e-6f;
  return kSuccess;
}
int cuEventDestroy_v2(void* event) {
  --TheState().events;
  delete static_cast<Event*>(event);
  return kSuccess;
}

// --- NVML

int nvmlInit_v2() { return kSuccess; }
int nvmlSystemGetDriverVersion(char* text, unsigned bytes) {
  std::snprintf(text, bytes, "575.57.08");
  return kSuccess;
}
int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
  *device = &context_marker;
  return std::strncmp(uuid, "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f", 48) == 0 ? kSuccess : 6;  // not found
}
int nvmlDeviceGetClockInfo(void*, int clock, unsigned* mhz) {
  *mhz = clock == 1 ? 1980 : 2619;
  return kSuccess;
}
int nvmlDeviceGetTemperature(void*, int, unsigned* celsius) {
  *celsius = 45;
  return kSuccess;
}
int nvmlDeviceGetMemoryInfo(void*, unsigned long long* info) {
  info[0] = static_cast<unsigned long long>(TheState().memory_bytes);
  info[1] = static_cast<unsigned long long>(TheState().free_bytes);
  info[2] = info[0] - info[1];
  return kSuccess;
}

}  // extern "C"
