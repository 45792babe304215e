#include "compiler/driver/cuda_api.h"

#include <dlfcn.h>

#include "absl/strings/str_cat.h"
#include "compiler/driver/library.h"

namespace temper::cuda {
namespace {

using driver::Find;

// Of the oldest NVRTC that code is made by, driver 525.
constexpr int kLeastVersion = 12000;

struct Library {
  std::string path;
  void* handle = nullptr;
};

std::string Why(Result code) {
  switch (code) {
    case kInvalidValue:
      return "the driver takes no such value";
    case kOutOfMemory:
      return "there is not so much memory";
    case kStubLibrary:
      return "the library is the toolkit's stub, not a driver";
    case kDeviceUnavailable:
      return "another process has it for itself";
    case kInvalidImage:
    case kInvalidPtx:
      return "the code is damaged, or too new for the driver";
    case kUnsupportedPtxVersion:
      return "the code is too new for the driver";
    case kNoBinaryForGpu:
      return "the code is for another architecture";
    case kOperatingSystem:
      return "the operating system refuses the driver something";
    case kNotFound:
      return "the code has no such function";
    case kIllegalAddress:
      return "a kernel left its memory";
    case kLaunchOutOfResources:
      return "a group asks for more registers or shared memory than there are";
    case kLaunchTimeout:
      return "a kernel ran for too long";
    case kLaunchFailed:
      return "a kernel crashed";
    case kNotPermitted:
      return "it is not permitted";
    case kNotSupported:
      return "the driver or the device does not do it";
    case kSystemDriverMismatch:
      return "the driver's library and its kernel module are of different versions; restart the machine";
    default:
      return absl::StrCat("error ", static_cast<int>(code));
  }
}

absl::StatusOr<Library> Load() {
  Library library{driver::LibraryPath("TEMPER_CUDA", "libcuda.so.1")};
  library.handle = dlopen(library.path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library.handle != nullptr) return library;
  return absl::UnavailableError(
      absl::StrCat("there is no NVIDIA driver here: cannot load ", library.path, "; install one of version 525 on"));
}

const absl::StatusOr<Library>& TheLibrary() {
  static const auto* const library = new absl::StatusOr<Library>(Load());
  return *library;
}

// Suffixes are those of the first version whose functions take these arguments.
bool FindAll(void* lib, Api& api) {
  return Find(lib, "cuInit", api.Init) && Find(lib, "cuDriverGetVersion", api.DriverGetVersion) &&
         Find(lib, "cuDeviceGetCount", api.DeviceGetCount) && Find(lib, "cuDeviceGet", api.DeviceGet) &&
         Find(lib, "cuDeviceGetName", api.DeviceGetName) && Find(lib, "cuDeviceGetUuid", api.DeviceGetUuid) &&
         Find(lib, "cuDeviceTotalMem_v2", api.DeviceTotalMem) &&
         Find(lib, "cuDeviceGetAttribute", api.DeviceGetAttribute) &&
         Find(lib, "cuDevicePrimaryCtxRetain", api.PrimaryCtxRetain) &&
         Find(lib, "cuCtxPushCurrent_v2", api.CtxPushCurrent) && Find(lib, "cuCtxPopCurrent_v2", api.CtxPopCurrent) &&
         Find(lib, "cuModuleLoadDataEx", api.ModuleLoadDataEx) && Find(lib, "cuModuleUnload", api.ModuleUnload) &&
         Find(lib, "cuModuleGetFunction", api.ModuleGetFunction) &&
         Find(lib, "cuFuncSetAttribute", api.FuncSetAttribute) && Find(lib, "cuMemGetInfo_v2", api.MemGetInfo) &&
         Find(lib, "cuMemAlloc_v2", api.MemAlloc) && Find(lib, "cuMemFree_v2", api.MemFree) &&
         Find(lib, "cuMemcpyAsync", api.MemcpyAsync) && Find(lib, "cuMemsetD8Async", api.MemsetD8Async) &&
         Find(lib, "cuStreamCreate", api.StreamCreate) && Find(lib, "cuStreamSynchronize", api.StreamSynchronize) &&
         Find(lib, "cuStreamDestroy_v2", api.StreamDestroy) &&
         Find(lib, "cuStreamBeginCapture_v2", api.StreamBeginCapture) &&
         Find(lib, "cuStreamEndCapture", api.StreamEndCapture) &&
         Find(lib, "cuGraphInstantiateWithFlags", api.GraphInstantiate) &&
         Find(lib, "cuGraphDestroy", api.GraphDestroy) && Find(lib, "cuGraphLaunch", api.GraphLaunch) &&
         Find(lib, "cuGraphExecDestroy", api.GraphExecDestroy) && Find(lib, "cuLaunchKernel", api.LaunchKernel) &&
         Find(lib, "cuEventCreate", api.EventCreate) && Find(lib, "cuEventRecord", api.EventRecord) &&
         Find(lib, "cuEventSynchronize", api.EventSynchronize) &&
         Find(lib, "cuEventElapsedTime", api.EventElapsedTime) && Find(lib, "cuEventDestroy_v2", api.EventDestroy);
}

absl::Status TooOld(const std::string& version) {
  return absl::UnavailableError(absl::StrCat("the NVIDIA driver is for CUDA ", version, ": it has to be for ",
                                             VersionText(kLeastVersion), " or later, which is driver 525"));
}

absl::StatusOr<Api> LoadApi() {
  TEMPER_ASSIGN_OR_RETURN(const int version, DriverVersion());
  if (version < kLeastVersion) return TooOld(VersionText(version));
  Api api;
  if (!FindAll(TheLibrary()->handle, api)) return TooOld(absl::StrCat(VersionText(version), " but lacks functions"));
  switch (const Result code = api.Init(0)) {
    case kSuccess:
      return api;
    case kNoDevice:
      return absl::UnavailableError("the NVIDIA driver finds no GPU here");
    default:
      return absl::UnavailableError(Converted(code, "start").message());
  }
}

}  // namespace

std::string VersionText(int version) { return absl::StrCat(version / 1000, ".", version % 1000 / 10); }

absl::StatusOr<int> DriverVersion() {
  TEMPER_RETURN_IF_ERROR(TheLibrary().status());
  decltype(Api::DriverGetVersion) get = nullptr;
  int version = 0;
  if (!Find(TheLibrary()->handle, "cuDriverGetVersion", get) || get(&version) != kSuccess)
    return absl::UnavailableError(absl::StrCat(TheLibrary()->path, " is no NVIDIA driver: it tells no version"));
  return version;
}

const absl::StatusOr<Api>& LoadedApi() {
  static const auto* const api = new absl::StatusOr<Api>(LoadApi());
  return *api;
}

absl::Status Converted(Result code, const char* what) {
  if (code == kSuccess) return absl::OkStatus();
  const std::string message = absl::StrCat("the GPU cannot ", what, ": ", Why(code));
  if (code == kOutOfMemory) return absl::ResourceExhaustedError(message);
  return code == kNotSupported ? absl::UnimplementedError(message) : absl::InternalError(message);
}

// Those after which the reference wants a new process, and those after which all calls fail too.
driver::Loss LossOf(Result code) {
  switch (static_cast<int>(code)) {
    case 700:  // it left its memory
    case 702:  // it ran for too long
    case 710:  // it asserted
    case 714:  // the device's stack
    case 715:  // an instruction that is none
    case 716:  // an address that is not aligned
    case 717:  // an address space that is another
    case 718:  // a program counter that is none
    case 719:  // it crashed otherwise
    case 721:  // it kept memory of the tensor cores
    case 999:  // nobody knows: most likely what ran last
      return driver::Loss::kByKernel;
    case 214:  // an error of the memory that could not be corrected
    case 220:  // the same of a link between GPUs
    case 226:  // an error of the hardware that was contained
    case 709:  // somebody destroyed the context
    case 810:  // the MPS server ended this client
      return driver::Loss::kByMachine;
    default:
      return driver::Loss::kNone;
  }
}

}  // namespace temper::cuda
