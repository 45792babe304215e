// The functions of libcuda that are called here, declared after NVIDIA's public reference of the driver API, so that
// neither a toolkit nor its headers are needed. The library is loaded when it is first asked for.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/status.h"
#include "compiler/driver/session.h"

namespace temper::cuda {

// Names and numbers are as the reference has them.
using Device = int;
using Address = unsigned long long;
using Context = struct ContextOf*;
using Module = struct ModuleOf*;
using FunctionHandle = struct FunctionOf*;
using Stream = struct StreamOf*;
using Event = struct EventOf*;
using Graph = struct GraphOf*;
using GraphExec = struct GraphExecOf*;

enum Result : int {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kStubLibrary = 34,
  kDeviceUnavailable = 46,
  kNoDevice = 100,
  kInvalidImage = 200,
  kNoBinaryForGpu = 209,
  kInvalidPtx = 218,
  kUnsupportedPtxVersion = 222,
  kOperatingSystem = 304,
  kNotFound = 500,
  kIllegalAddress = 700,
  kLaunchOutOfResources = 701,
  kLaunchTimeout = 702,
  kLaunchFailed = 719,
  kNotPermitted = 800,
  kNotSupported = 801,
  kSystemDriverMismatch = 803,
};

enum Attribute : int {
  kMaxThreadsPerBlock = 1,
  kWarpSize = 10,
  kMultiprocessorCount = 16,
  kL2CacheSize = 38,
  kComputeCapabilityMajor = 75,
  kComputeCapabilityMinor = 76,
  kMaxRegistersPerMultiprocessor = 82,
  kMaxSharedPerMultiprocessor = 81,
  kMaxSharedPerBlockOptin = 97,
};

constexpr int kFunctionMaxDynamicShared = 8;  // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
constexpr int kJitErrorLog = 5, kJitErrorLogBytes = 6;
constexpr unsigned kStreamDefault = 0, kStreamNonBlocking = 1, kEventDefault = 0;
constexpr int kCaptureThreadLocal = 1;  // what other threads ask of the driver does not disturb the capture

struct Uuid {
  std::array<unsigned char, 16> bytes;
};

struct Api {
  Result (*Init)(unsigned flags) = nullptr;
  Result (*DriverGetVersion)(int* version) = nullptr;
  Result (*DeviceGetCount)(int* count) = nullptr;
  Result (*DeviceGet)(Device* device, int ordinal) = nullptr;
  Result (*DeviceGetName)(char* name, int bytes, Device device) = nullptr;
  Result (*DeviceGetUuid)(Uuid* uuid, Device device) = nullptr;
  Result (*DeviceTotalMem)(size_t* bytes, Device device) = nullptr;
  Result (*DeviceGetAttribute)(int* value, Attribute attribute, Device device) = nullptr;
  Result (*PrimaryCtxRetain)(Context* context, Device device) = nullptr;
  Result (*CtxPushCurrent)(Context context) = nullptr;
  Result (*CtxPopCurrent)(Context* context) = nullptr;
  Result (*ModuleLoadDataEx)(Module* module, const void* image, unsigned count, int* options, void** values) = nullptr;
  Result (*ModuleUnload)(Module module) = nullptr;
  Result (*ModuleGetFunction)(FunctionHandle* function, Module module, const char* name) = nullptr;
  Result (*FuncSetAttribute)(FunctionHandle function, int attribute, int value) = nullptr;
  Result (*MemGetInfo)(size_t* free, size_t* total) = nullptr;
  Result (*MemAlloc)(Address* address, size_t bytes) = nullptr;
  Result (*MemFree)(Address address) = nullptr;
  // The host's addresses are none of the device's, so it knows whose memory they are.
  Result (*MemcpyAsync)(Address to, Address from, size_t bytes, Stream stream) = nullptr;
  Result (*MemsetD8Async)(Address to, unsigned char byte, size_t bytes, Stream stream) = nullptr;
  Result (*StreamCreate)(Stream* stream, unsigned flags) = nullptr;
  Result (*StreamSynchronize)(Stream stream) = nullptr;
  Result (*StreamDestroy)(Stream stream) = nullptr;
  Result (*StreamBeginCapture)(Stream stream, int mode) = nullptr;
  Result (*StreamEndCapture)(Stream stream, Graph* graph) = nullptr;
  Result (*GraphInstantiate)(GraphExec* executable, Graph graph, unsigned long long flags) = nullptr;
  Result (*GraphDestroy)(Graph graph) = nullptr;
  Result (*GraphLaunch)(GraphExec executable, Stream stream) = nullptr;
  Result (*GraphExecDestroy)(GraphExec executable) = nullptr;
  Result (*LaunchKernel)(FunctionHandle function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                         unsigned block_y, unsigned block_z, unsigned shared_bytes, Stream stream, void** parameters,
                         void** extra) = nullptr;
  Result (*EventCreate)(Event* event, unsigned flags) = nullptr;
  Result (*EventRecord)(Event event, Stream stream) = nullptr;
  Result (*EventSynchronize)(Event event) = nullptr;
  Result (*EventElapsedTime)(float* milliseconds, Event start, Event end) = nullptr;
  Result (*EventDestroy)(Event event) = nullptr;
};

// Loaded and initialised, once in a process. $TEMPER_CUDA names the library, else the loader finds libcuda.so.1.
// kUnavailable, in one line: there is no driver, it is too old, it finds no GPU.
const absl::StatusOr<Api>& LoadedApi();
// CUDA's version that the driver is made for, 12090 for 12.9; no device is needed.
absl::StatusOr<int> DriverVersion();
std::string VersionText(int version);  // "12.9"

// OK, or a line: "the GPU cannot WHAT: why".
absl::Status Converted(Result code, const char* what);
// What it makes of the context that it came from. Lost, nothing works in it any more.
driver::Loss LossOf(Result code);
inline bool BreaksContext(Result code) { return LossOf(code) != driver::Loss::kNone; }

}  // namespace temper::cuda
