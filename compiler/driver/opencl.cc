#include "compiler/driver/opencl.h"

#include <dlfcn.h>
#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <utility>

#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "compiler/driver/devices.h"
#include "compiler/driver/library.h"

namespace temper::opencl {
namespace {

using driver::Find;

// --- the library

struct Api {
  decltype(&::clGetPlatformIDs) GetPlatformIDs = nullptr;
  decltype(&::clGetPlatformInfo) GetPlatformInfo = nullptr;
  decltype(&::clGetDeviceIDs) GetDeviceIDs = nullptr;
  decltype(&::clGetDeviceInfo) GetDeviceInfo = nullptr;
  decltype(&::clCreateContext) CreateContext = nullptr;
  decltype(&::clCreateCommandQueue) CreateCommandQueue = nullptr;
  decltype(&::clCreateBuffer) CreateBuffer = nullptr;
  decltype(&::clCreateSubBuffer) CreateSubBuffer = nullptr;
  decltype(&::clReleaseMemObject) ReleaseMemObject = nullptr;
  decltype(&::clEnqueueWriteBuffer) EnqueueWriteBuffer = nullptr;
  decltype(&::clEnqueueReadBuffer) EnqueueReadBuffer = nullptr;
  decltype(&::clEnqueueFillBuffer) EnqueueFillBuffer = nullptr;
  decltype(&::clEnqueueCopyBuffer) EnqueueCopyBuffer = nullptr;
  decltype(&::clCreateProgramWithSource) CreateProgramWithSource = nullptr;
  decltype(&::clBuildProgram) BuildProgram = nullptr;
  decltype(&::clGetProgramInfo) GetProgramInfo = nullptr;
  decltype(&::clGetProgramBuildInfo) GetProgramBuildInfo = nullptr;
  decltype(&::clReleaseProgram) ReleaseProgram = nullptr;
  decltype(&::clCreateKernel) CreateKernel = nullptr;
  decltype(&::clSetKernelArg) SetKernelArg = nullptr;
  decltype(&::clReleaseKernel) ReleaseKernel = nullptr;
  decltype(&::clEnqueueNDRangeKernel) EnqueueNDRangeKernel = nullptr;
  decltype(&::clFinish) Finish = nullptr;
  decltype(&::clFlush) Flush = nullptr;
  decltype(&::clGetEventProfilingInfo) GetEventProfilingInfo = nullptr;
  decltype(&::clReleaseEvent) ReleaseEvent = nullptr;
};

bool FindAll(void* lib, Api& api) {
  return Find(lib, "clGetPlatformIDs", api.GetPlatformIDs) && Find(lib, "clGetPlatformInfo", api.GetPlatformInfo) &&
         Find(lib, "clGetDeviceIDs", api.GetDeviceIDs) && Find(lib, "clGetDeviceInfo", api.GetDeviceInfo) &&
         Find(lib, "clCreateContext", api.CreateContext) && Find(lib, "clCreateCommandQueue", api.CreateCommandQueue) &&
         Find(lib, "clCreateBuffer", api.CreateBuffer) && Find(lib, "clCreateSubBuffer", api.CreateSubBuffer) &&
         Find(lib, "clReleaseMemObject", api.ReleaseMemObject) &&
         Find(lib, "clEnqueueWriteBuffer", api.EnqueueWriteBuffer) &&
         Find(lib, "clEnqueueReadBuffer", api.EnqueueReadBuffer) &&
         Find(lib, "clEnqueueFillBuffer", api.EnqueueFillBuffer) &&
         Find(lib, "clEnqueueCopyBuffer", api.EnqueueCopyBuffer) &&
         Find(lib, "clCreateProgramWithSource", api.CreateProgramWithSource) &&
         Find(lib, "clBuildProgram", api.BuildProgram) && Find(lib, "clGetProgramInfo", api.GetProgramInfo) &&
         Find(lib, "clGetProgramBuildInfo", api.GetProgramBuildInfo) &&
         Find(lib, "clReleaseProgram", api.ReleaseProgram) && Find(lib, "clCreateKernel", api.CreateKernel) &&
         Find(lib, "clSetKernelArg", api.SetKernelArg) && Find(lib, "clReleaseKernel", api.ReleaseKernel) &&
         Find(lib, "clEnqueueNDRangeKernel", api.EnqueueNDRangeKernel) && Find(lib, "clFinish", api.Finish) &&
         Find(lib, "clFlush", api.Flush) && Find(lib, "clGetEventProfilingInfo", api.GetEventProfilingInfo) &&
         Find(lib, "clReleaseEvent", api.ReleaseEvent);
}

// What PoCL, which runs kernels on this machine's cores, reads when it starts.
void PreparePocl() {
  cpu_set_t mask;
  if (sched_getaffinity(0, sizeof mask, &mask) == 0)
    setenv("POCL_MAX_PTHREAD_COUNT", std::to_string(CPU_COUNT(&mask)).c_str(), 0);
  // It keeps what it compiled in the user's home; measuring children have none, but a folder for temporary files.
  std::error_code error;
  const std::filesystem::path temporary = std::filesystem::temp_directory_path(error);
  if (std::getenv("HOME") == nullptr && !error) setenv("POCL_CACHE_DIR", (temporary / "pocl").c_str(), 0);
}

absl::StatusOr<Api> LoadApi() {
  PreparePocl();
  const std::string path = driver::LibraryPath("TEMPER_OPENCL", "libOpenCL.so.1");
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return absl::UnavailableError(absl::StrCat("there is no OpenCL here: cannot load ", path,
                                               "; install ocl-icd-libopencl1 and a device's driver"));
  }
  Api api;
  if (!FindAll(library, api)) return absl::UnavailableError(absl::StrCat(path, " is older than OpenCL 1.2"));
  return api;
}

const absl::StatusOr<Api>& LoadedApi() {
  static const auto* const api = new absl::StatusOr<Api>(LoadApi());
  return *api;
}
const Api& TheApi() { return *LoadedApi(); }  // where a device was found before

// --- errors

std::string NameOf(cl_int code) {
  switch (code) {
    case CL_DEVICE_NOT_AVAILABLE:
      return "the device is not available";
    case CL_COMPILER_NOT_AVAILABLE:
      return "it has no compiler";
    case CL_MEM_OBJECT_ALLOCATION_FAILURE:
    case CL_INVALID_BUFFER_SIZE:
      return "there is not so much memory";
    case CL_OUT_OF_RESOURCES:
      return "out of resources";
    case CL_OUT_OF_HOST_MEMORY:
      return "the host is out of memory";
    case CL_BUILD_PROGRAM_FAILURE:
      return "the program does not compile";
    case CL_INVALID_WORK_GROUP_SIZE:
    case CL_INVALID_WORK_ITEM_SIZE:
      return "a group has too many threads";
    default:
      return absl::StrCat("error ", code);
  }
}

absl::Status Converted(cl_int code, const char* what) {
  if (code == CL_SUCCESS) return absl::OkStatus();
  const std::string message = absl::StrCat("OpenCL cannot ", what, ": ", NameOf(code));
  const bool memory =
      code == CL_MEM_OBJECT_ALLOCATION_FAILURE || code == CL_INVALID_BUFFER_SIZE || code == CL_OUT_OF_HOST_MEMORY;
  return memory ? absl::ResourceExhaustedError(message) : absl::InternalError(message);
}

// --- devices

std::string TextOf(cl_device_id device, cl_device_info what) {
  size_t size = 0;
  if (TheApi().GetDeviceInfo(device, what, 0, nullptr, &size) != CL_SUCCESS || size == 0) return "";
  std::string text(size, '\0');
  TheApi().GetDeviceInfo(device, what, size, text.data(), nullptr);
  text.resize(text.find('\0') == text.npos ? size : text.find('\0'));
  return std::string(absl::StripAsciiWhitespace(text));
}

template <typename T>
T NumberOf(cl_device_id device, cl_device_info what, T otherwise) {
  T value{};
  return TheApi().GetDeviceInfo(device, what, sizeof value, &value, nullptr) == CL_SUCCESS ? value : otherwise;
}

// The numbers that vendors' extensions gave these; the headers of OpenCL 1.2 have them not.
constexpr cl_device_info kWarpWidthNv = 0x4003, kPciBusNv = 0x4008, kPciSlotNv = 0x4009, kPciDomainNv = 0x400A,
                         kWavefrontWidthAmd = 0x4043, kUuidKhr = 0x106A;

std::string IdOf(cl_device_id device, const std::string& name) {
  const std::string extensions = TextOf(device, CL_DEVICE_EXTENSIONS);
  if (extensions.find("cl_khr_device_uuid") != extensions.npos) {
    const auto uuid = NumberOf(device, kUuidKhr, std::array<unsigned char, 16>{});
    std::string text;
    for (const unsigned char byte : uuid) absl::StrAppend(&text, absl::Hex(byte, absl::kZeroPad2));
    if (text.find_first_not_of('0') != text.npos) return text;
  }
  constexpr cl_uint kNone = ~cl_uint{0};
  const auto bus = NumberOf(device, kPciBusNv, kNone);
  if (bus == kNone) return name;
  return absl::StrCat("pci-", absl::Hex(NumberOf(device, kPciDomainNv, cl_uint{0})), "-", absl::Hex(bus), "-",
                      absl::Hex(NumberOf(device, kPciSlotNv, cl_uint{0})));
}

DeviceInfo Describe(cl_platform_id platform, cl_device_id device) {
  DeviceInfo info;
  info.name = TextOf(device, CL_DEVICE_NAME);
  info.driver = TextOf(device, CL_DRIVER_VERSION);
  std::array<char, 256> text{};
  TheApi().GetPlatformInfo(platform, CL_PLATFORM_VERSION, text.size() - 1, text.data(), nullptr);
  info.platform = std::string(absl::StripAsciiWhitespace(text.data()));
  info.id = IdOf(device, info.name);
  info.is_cpu = (NumberOf(device, CL_DEVICE_TYPE, cl_device_type{0}) & CL_DEVICE_TYPE_CPU) != 0;
  info.local_bytes = static_cast<int64_t>(NumberOf(device, CL_DEVICE_LOCAL_MEM_SIZE, cl_ulong{0}));
  info.group_threads = static_cast<int64_t>(NumberOf(device, CL_DEVICE_MAX_WORK_GROUP_SIZE, size_t{1}));
  info.memory_bytes = static_cast<int64_t>(NumberOf(device, CL_DEVICE_GLOBAL_MEM_SIZE, cl_ulong{0}));
  info.cache_bytes = static_cast<int64_t>(NumberOf(device, CL_DEVICE_GLOBAL_MEM_CACHE_SIZE, cl_ulong{0}));
  info.compute_units = static_cast<int>(NumberOf(device, CL_DEVICE_MAX_COMPUTE_UNITS, cl_uint{1}));
  const auto warp = NumberOf(device, kWarpWidthNv, cl_uint{0});
  const auto wavefront = NumberOf(device, kWavefrontWidthAmd, cl_uint{0});
  info.warp_width = static_cast<int>(std::max({cl_uint{1}, warp, wavefront}));
  return info;
}

struct Found {
  cl_device_id device;
  DeviceInfo info;
};

absl::StatusOr<std::vector<Found>> FindDevices() {
  TEMPER_RETURN_IF_ERROR(LoadedApi().status());
  const Api& api = TheApi();
  cl_uint count = 0;
  std::vector<Found> found;
  // Its own error where no driver is installed.
  if (api.GetPlatformIDs(0, nullptr, &count) != CL_SUCCESS) count = 0;
  std::vector<cl_platform_id> platforms(count);
  if (count > 0)
    TEMPER_RETURN_IF_ERROR(Converted(api.GetPlatformIDs(count, platforms.data(), nullptr), "list drivers"));
  for (const cl_platform_id platform : platforms) {
    if (api.GetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 0, nullptr, &count) != CL_SUCCESS) continue;
    std::vector<cl_device_id> devices(count);
    TEMPER_RETURN_IF_ERROR(
        Converted(api.GetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, count, devices.data(), nullptr), "list devices"));
    for (const cl_device_id device : devices) found.push_back({device, Describe(platform, device)});
  }
  if (found.empty())
    return absl::UnavailableError("OpenCL finds no device here: no driver is named in /etc/OpenCL/vendors");
  return found;
}

const absl::StatusOr<std::vector<Found>>& AllFound() {
  static const auto* const found = new absl::StatusOr<std::vector<Found>>(FindDevices());
  return *found;
}

// --- a device at work

// The compiler's first complaint.
std::string FirstError(const std::string& log) {
  constexpr size_t kMost = 300;
  std::string first;
  for (const absl::string_view line : absl::StrSplit(log, '\n')) {
    const absl::string_view text = absl::StripAsciiWhitespace(line);
    if (first.empty()) first = std::string(text);
    if (text.find("error") == text.npos) continue;
    first = std::string(text);
    break;
  }
  return first.substr(0, kMost);
}

using driver::Function;
using driver::LaunchCall;
using driver::Memory;

void ReleaseMemory(void* memory) { TheApi().ReleaseMemObject(static_cast<cl_mem>(memory)); }
void ReleaseKernel(void* kernel) { TheApi().ReleaseKernel(static_cast<cl_kernel>(kernel)); }

class QueueSession final : public Session {
 public:
  explicit QueueSession(const Found& found) : device_(found.device), info_(found.info) {}
  absl::Status Start() {
    cl_int error = CL_SUCCESS;
    context_ = api_.CreateContext(nullptr, 1, &device_, nullptr, nullptr, &error);
    TEMPER_RETURN_IF_ERROR(Converted(error, "open the device"));
    queue_ = api_.CreateCommandQueue(context_, device_, CL_QUEUE_PROFILING_ENABLE, &error);
    return Converted(error, "make a queue");
  }

  const DeviceInfo& info() const override { return info_; }
  int64_t memory_bytes() const override { return info_.memory_bytes; }
  int64_t cache_bytes() const override { return info_.cache_bytes; }

  absl::StatusOr<Memory> Allocate(int64_t bytes) override {
    cl_int error = CL_SUCCESS;
    const auto size = static_cast<size_t>(std::max<int64_t>(1, bytes));
    cl_mem memory = api_.CreateBuffer(context_, CL_MEM_READ_WRITE, size, nullptr, &error);
    TEMPER_RETURN_IF_ERROR(Converted(error, "allocate memory"));
    return Memory(memory, ReleaseMemory);
  }

  absl::StatusOr<Memory> Part(const Memory& whole, int64_t offset, int64_t bytes) override {
    cl_int error = CL_SUCCESS;
    const cl_buffer_region region{static_cast<size_t>(offset), static_cast<size_t>(std::max<int64_t>(1, bytes))};
    cl_mem memory = api_.CreateSubBuffer(static_cast<cl_mem>(whole.get()), CL_MEM_READ_WRITE,
                                         CL_BUFFER_CREATE_TYPE_REGION, &region, &error);
    TEMPER_RETURN_IF_ERROR(Converted(error, "divide memory"));
    return Memory(memory, ReleaseMemory);
  }

  int64_t part_alignment() const override {
    return std::max<int64_t>(64, NumberOf(device_, CL_DEVICE_MEM_BASE_ADDR_ALIGN, cl_uint{1024}) / 8);
  }

  absl::Status Write(void* to, int64_t offset, const void* data, int64_t bytes) override {
    if (bytes == 0) return absl::OkStatus();
    return Converted(api_.EnqueueWriteBuffer(queue_, static_cast<cl_mem>(to), CL_TRUE, static_cast<size_t>(offset),
                                             static_cast<size_t>(bytes), data, 0, nullptr, nullptr),
                     "write to the device");
  }

  absl::Status Read(void* from, int64_t offset, void* data, int64_t bytes) override {
    if (bytes == 0) return absl::OkStatus();
    return Converted(api_.EnqueueReadBuffer(queue_, static_cast<cl_mem>(from), CL_TRUE, static_cast<size_t>(offset),
                                            static_cast<size_t>(bytes), data, 0, nullptr, nullptr),
                     "read from the device");
  }

  absl::Status Fill(void* to, int64_t offset, uint8_t byte, int64_t bytes) override {
    if (bytes == 0) return absl::OkStatus();
    TEMPER_RETURN_IF_ERROR(
        Converted(api_.EnqueueFillBuffer(queue_, static_cast<cl_mem>(to), &byte, sizeof byte,
                                         static_cast<size_t>(offset), static_cast<size_t>(bytes), 0, nullptr, nullptr),
                  "fill memory"));
    return Converted(api_.Finish(queue_), "fill memory");
  }

  absl::Status Copy(void* from, int64_t from_offset, void* to, int64_t to_offset, int64_t bytes) override {
    if (bytes == 0) return absl::OkStatus();
    TEMPER_RETURN_IF_ERROR(
        Converted(api_.EnqueueCopyBuffer(queue_, static_cast<cl_mem>(from), static_cast<cl_mem>(to),
                                         static_cast<size_t>(from_offset), static_cast<size_t>(to_offset),
                                         static_cast<size_t>(bytes), 0, nullptr, nullptr),
                  "copy on the device"));
    return Converted(api_.Finish(queue_), "copy on the device");
  }

  absl::Status Finish() override { return Converted(api_.Finish(queue_), "run what it was given"); }

  absl::StatusOr<std::vector<Function>> Build(const driver::Code& code, std::span<const std::string> names) override {
    cl_int error = CL_SUCCESS;
    const char* text = code.images.front().c_str();
    const size_t size = code.images.front().size();
    cl_program program = api_.CreateProgramWithSource(context_, 1, &text, &size, &error);
    TEMPER_RETURN_IF_ERROR(Converted(error, "take a program"));
    auto functions = FunctionsOf(program, names);
    api_.ReleaseProgram(program);  // its functions keep it
    return functions;
  }

  absl::StatusOr<double> Run(int64_t count, const std::function<LaunchCall(int64_t)>& call) override {
    cl_event first = nullptr, last = nullptr;
    absl::Status status;
    for (int64_t i = 0; i < count && status.ok(); ++i) {
      cl_event* event = i + 1 == count ? &last : i == 0 ? &first : nullptr;
      status = Enqueue(call(i), event);
    }
    const cl_int finished = api_.Finish(queue_);
    status.Update(Converted(finished, "run a kernel"));
    const absl::StatusOr<double> seconds = SecondsBetween(first == nullptr ? last : first, last);
    if (first != nullptr) api_.ReleaseEvent(first);
    if (last != nullptr) api_.ReleaseEvent(last);
    TEMPER_RETURN_IF_ERROR(status);
    return seconds;
  }

  absl::Status Submit(int64_t count, const std::function<LaunchCall(int64_t)>& call) override {
    for (int64_t i = 0; i < count; ++i) TEMPER_RETURN_IF_ERROR(Enqueue(call(i), nullptr));
    return Converted(api_.Flush(queue_), "begin what it was given");
  }

 private:
  absl::StatusOr<std::vector<Function>> FunctionsOf(cl_program program, std::span<const std::string> names) {
    const cl_int built = api_.BuildProgram(program, 1, &device_, "-cl-std=CL1.2", nullptr, nullptr);
    if (built != CL_SUCCESS)
      return absl::InternalError(absl::StrCat(Converted(built, "build").message(), ": ", FirstError(LogOf(program))));
    // Asking for the binary makes drivers that would compile at the first launch do it now. On CPUs they compile at
    // the first launch even so, for its size of groups.
    size_t binary_bytes = 0;
    if (!info_.is_cpu)
      api_.GetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof binary_bytes, &binary_bytes, nullptr);
    std::vector<Function> functions;
    for (const std::string& name : names) {
      cl_int error = CL_SUCCESS;
      cl_kernel kernel = api_.CreateKernel(program, name.c_str(), &error);
      TEMPER_RETURN_IF_ERROR(Converted(error, "find a kernel"));
      functions.emplace_back(kernel, ReleaseKernel);
    }
    return functions;
  }

  std::string LogOf(cl_program program) const {
    size_t size = 0;
    api_.GetProgramBuildInfo(program, device_, CL_PROGRAM_BUILD_LOG, 0, nullptr, &size);
    std::string log(size, '\0');
    if (size > 0) api_.GetProgramBuildInfo(program, device_, CL_PROGRAM_BUILD_LOG, size, log.data(), nullptr);
    return log;
  }

  absl::Status Enqueue(const LaunchCall& call, cl_event* event) {
    auto* kernel = static_cast<cl_kernel>(call.function->get());
    for (size_t i = 0; i < call.arguments.size(); ++i) {
      auto* memory = static_cast<cl_mem>(call.arguments[i]);
      TEMPER_RETURN_IF_ERROR(
          Converted(api_.SetKernelArg(kernel, static_cast<cl_uint>(i), sizeof memory, &memory), "take an argument"));
    }
    std::array<size_t, 3> all{};
    for (size_t i = 0; i < all.size(); ++i) all[i] = call.shape.groups[i] * call.shape.threads[i];
    return Converted(api_.EnqueueNDRangeKernel(queue_, kernel, static_cast<cl_uint>(all.size()), nullptr, all.data(),
                                               call.shape.threads.data(), 0, nullptr, event),
                     "launch a kernel");
  }

  absl::StatusOr<double> SecondsBetween(cl_event first, cl_event last) const {
    if (last == nullptr) return 0.0;  // nothing ran
    cl_ulong start = 0, end = 0;
    TEMPER_RETURN_IF_ERROR(Converted(
        api_.GetEventProfilingInfo(first, CL_PROFILING_COMMAND_START, sizeof start, &start, nullptr), "time a kernel"));
    TEMPER_RETURN_IF_ERROR(Converted(
        api_.GetEventProfilingInfo(last, CL_PROFILING_COMMAND_END, sizeof end, &end, nullptr), "time a kernel"));
    return 1e-9 * static_cast<double>(end > start ? end - start : 1);
  }

  const Api& api_ = TheApi();
  const cl_device_id device_;
  const DeviceInfo info_;
  cl_context context_ = nullptr;
  cl_command_queue queue_ = nullptr;
};

constinit driver::PackageDeviceChoice package_device("TEMPER_OPENCL_DEVICE");

}  // namespace

absl::StatusOr<std::vector<DeviceInfo>> ListDevices() {
  TEMPER_RETURN_IF_ERROR(AllFound().status());
  std::vector<DeviceInfo> devices;
  for (const Found& found : *AllFound()) devices.push_back(found.info);
  return devices;
}

absl::StatusOr<Session*> Open(int number) {
  TEMPER_RETURN_IF_ERROR(AllFound().status());
  const std::vector<Found>& all = *AllFound();
  if (number < 0 || number >= std::ssize(all)) {
    return absl::NotFoundError(
        absl::StrCat("there is no OpenCL device ", number, ": they are numbered from 0 to ", all.size() - 1));
  }
  static auto* const sessions = new driver::Sessions<Session>;
  return sessions->Get(number, [&]() -> absl::StatusOr<std::unique_ptr<Session>> {
    auto session = std::make_unique<QueueSession>(all[static_cast<size_t>(number)]);
    TEMPER_RETURN_IF_ERROR(session->Start());
    return session;
  });
}

int PackageDevice() { return package_device.number(); }
void SetPackageDevice(int number) { package_device.Set(number); }

}  // namespace temper::opencl
