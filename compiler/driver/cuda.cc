#include "compiler/driver/cuda.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "compiler/driver/cuda_api.h"
#include "compiler/driver/devices.h"
#include "compiler/driver/nvml.h"

namespace temper::cuda {
namespace {

using driver::Function;
using driver::LaunchCall;
using driver::Memory;
using driver::Recording;

const Api& TheApi() { return *LoadedApi(); }  // where a device was found before

// --- devices

// "GPU-8c5e1b0a-1c2d-...": four bytes, thrice two, six.
std::string UuidText(const Uuid& uuid) {
  std::string text = "GPU-";
  for (size_t i = 0; i < uuid.bytes.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    absl::StrAppend(&text, absl::Hex(uuid.bytes[i], absl::kZeroPad2));
  }
  return text;
}

int NumberOf(Device device, Attribute attribute) {
  int value = 0;
  return TheApi().DeviceGetAttribute(&value, attribute, device) == kSuccess ? value : 0;
}

absl::StatusOr<Device> DeviceOf(int number) {
  TEMPER_RETURN_IF_ERROR(LoadedApi().status());
  int count = 0;
  TEMPER_RETURN_IF_ERROR(Converted(TheApi().DeviceGetCount(&count), "be counted"));
  if (count == 0) return absl::UnavailableError("the NVIDIA driver finds no GPU here");
  if (number < 0 || number >= count)
    return absl::NotFoundError(absl::StrCat("there is no GPU ", number, ": they are numbered from 0 to ", count - 1));
  Device device = 0;
  TEMPER_RETURN_IF_ERROR(Converted(TheApi().DeviceGet(&device, number), "be found"));
  return device;
}

// --- architectures

// "sm_90a" is {90, 'a'}; number -1: it is none.
struct Arch {
  int number = -1;
  char only = '\0';  // 'a': of this device alone; 'f': of its family
  int major() const { return number / 10; }
};

Arch ParseArch(std::string_view text) {
  Arch arch;
  if (!text.starts_with("sm_")) return arch;
  text.remove_prefix(3);
  if (!text.empty() && (text.back() == 'a' || text.back() == 'f')) {
    arch.only = text.back();
    text.remove_suffix(1);
  }
  if (!absl::SimpleAtoi(absl::string_view(text.data(), text.size()), &arch.number)) arch.number = -1;
  return arch;
}

bool Runs(const Arch& code, const Arch& device, bool as_ptx) {
  if (code.number < 0 || device.number < code.number) return false;
  if (code.only == 'a') return code.number == device.number;
  return code.major() == device.major() || (as_ptx && code.only == '\0');
}

// --- a device at work

// The device's context is this thread's while it lives.
class Current {
 public:
  explicit Current(Context context) : status_(Converted(TheApi().CtxPushCurrent(context), "be used")) {}
  ~Current() {
    Context context = nullptr;
    if (status_.ok()) TheApi().CtxPopCurrent(&context);
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;
  const absl::Status& status() const { return status_; }

 private:
  const absl::Status status_;
};

// A kernel function, and the code that it is of.
struct LoadedFunction {
  std::shared_ptr<ModuleOf> module;
  FunctionHandle function = nullptr;
  std::mutex mutex;          // models that share the function are run by several threads
  int64_t shared_bytes = 0;  // that a launch may ask for, which only grows; under the mutex
};

// Where the launches of this thread go while a session keeps them.
struct Capture {
  const void* session;
  Stream stream = nullptr;
  std::vector<std::shared_ptr<ModuleOf>> modules;  // of the functions that are launched
};
thread_local Capture* capture = nullptr;

// Launches that were kept, and the code that they need.
struct Kept {
  std::vector<std::shared_ptr<ModuleOf>> modules;
  GraphExec graph = nullptr;
};

Address AddressOf(const void* memory) { return reinterpret_cast<Address>(memory); }
Address At(const void* memory, int64_t offset) { return AddressOf(memory) + static_cast<Address>(offset); }

class StreamSession final : public Session {
 public:
  StreamSession(Device device, DeviceInfo info) : device_(device), info_(std::move(info)) {}
  absl::Status Start() {
    const Result retained = api_.PrimaryCtxRetain(&context_, device_);
    if (retained == kOutOfMemory) return NoMemory(nvml::Look(info_.uuid));
    TEMPER_RETURN_IF_ERROR(Converted(retained, "be opened"));
    const Current current(context_);
    TEMPER_RETURN_IF_ERROR(current.status());
    // It waits for what others in this process put in the default stream, as PyTorch does.
    TEMPER_RETURN_IF_ERROR(Converted(api_.StreamCreate(&stream_, kStreamDefault), "make a stream"));
    TEMPER_RETURN_IF_ERROR(Converted(api_.EventCreate(&start_, kEventDefault), "make an event"));
    return Converted(api_.EventCreate(&end_, kEventDefault), "make an event");
  }

  const DeviceInfo& info() const override { return info_; }
  int64_t memory_bytes() const override { return info_.memory_bytes; }
  int64_t cache_bytes() const override { return info_.cache_bytes; }
  driver::Loss loss() const override { return loss_; }

  absl::StatusOr<Memory> Allocate(int64_t bytes) override {
    const Current current(context_);
    TEMPER_RETURN_IF_ERROR(current.status());
    Address address = 0;
    const Result code = api_.MemAlloc(&address, static_cast<size_t>(std::max<int64_t>(1, bytes)));
    if (code == kOutOfMemory) return NoMemoryFor(bytes);
    TEMPER_RETURN_IF_ERROR(Done(code, "allocate memory"));
    return Memory(reinterpret_cast<void*>(address), [this](void* memory) {
      const Current here(context_);
      if (here.status().ok()) api_.MemFree(AddressOf(memory));
    });
  }

  absl::StatusOr<Memory> Part(const Memory& whole, int64_t offset, int64_t) override {
    return Memory(static_cast<char*>(whole.get()) + offset, nullptr);
  }
  int64_t part_alignment() const override { return 256; }  // as MemAlloc's own

  // `data` may be memory of the device too.
  absl::Status Write(void* to, int64_t offset, const void* data, int64_t bytes) override {
    return Transfer(stream_, At(to, offset), AddressOf(data), bytes, "take data");
  }
  absl::Status Read(void* from, int64_t offset, void* data, int64_t bytes) override {
    return Transfer(stream_, AddressOf(data), At(from, offset), bytes, "give data");
  }
  absl::Status Fill(void* to, int64_t offset, uint8_t byte, int64_t bytes) override {
    const Stream stream = queue();
    return Move(stream, bytes, "fill memory",
                [&](size_t size) { return api_.MemsetD8Async(At(to, offset), byte, size, stream); });
  }
  absl::Status Copy(void* from, int64_t from_offset, void* to, int64_t to_offset, int64_t bytes) override {
    return Transfer(queue(), At(to, to_offset), At(from, from_offset), bytes, "copy memory");
  }
  absl::Status Finish() override {
    const Current current(context_);
    TEMPER_RETURN_IF_ERROR(current.status());
    return Done(api_.StreamSynchronize(stream_), "run what it was given");
  }

  absl::StatusOr<std::vector<Function>> Build(const driver::Code& code, std::span<const std::string> names) override {
    const Current current(context_);
    TEMPER_RETURN_IF_ERROR(current.status());
    TEMPER_ASSIGN_OR_RETURN(const std::shared_ptr<ModuleOf> module, Load(code));
    std::vector<Function> functions;
    for (const std::string& name : names) {
      auto function = std::make_unique<LoadedFunction>();
      function->module = module;
      TEMPER_RETURN_IF_ERROR(
          Done(api_.ModuleGetFunction(&function->function, module.get(), name.c_str()), "find a kernel"));
      functions.emplace_back(function.release(), [](void* loaded) { delete static_cast<LoadedFunction*>(loaded); });
    }
    return functions;
  }

  absl::StatusOr<double> Run(int64_t count, const std::function<LaunchCall(int64_t)>& call) override {
    return Time([&] { return Submit(count, call); });
  }

  absl::StatusOr<double> Time(const std::function<absl::Status()>& submit) override {
    std::lock_guard lock(run_);  // the events are one pair
    const Current current(context_);
    TEMPER_RETURN_IF_ERROR(current.status());
    absl::Status status = Done(api_.EventRecord(start_, stream_), "begin a measurement");
    if (status.ok()) status = submit();
    status.Update(Done(api_.EventRecord(end_, stream_), "end a measurement"));
    status.Update(Done(api_.EventSynchronize(end_), "run a kernel"));
    TEMPER_RETURN_IF_ERROR(status);
    float milliseconds = 0;
    TEMPER_RETURN_IF_ERROR(Done(api_.EventElapsedTime(&milliseconds, start_, end_), "time a kernel"));
    constexpr double kLeastS = 1e-9;  // the events' clock is a coarse one
    return std::max(kLeastS, 1e-3 * static_cast<double>(milliseconds));
  }

  absl::Status Submit(int64_t count, const std::function<LaunchCall(int64_t)>& call) override {
    const Current current(context_);
    TEMPER_RETURN_IF_ERROR(current.status());
    for (int64_t i = 0; i < count; ++i) TEMPER_RETURN_IF_ERROR(Launch(call(i)));
    return absl::OkStatus();
  }

  // As a graph, captured from a stream of its own: so other threads are not disturbed.
  absl::StatusOr<Recording> Record(const std::function<absl::Status()>& submit) override {
    if (capture != nullptr) return absl::FailedPreconditionError("this thread keeps launches already");
    const Current current(context_);
    TEMPER_RETURN_IF_ERROR(current.status());
    Capture taken{this};
    TEMPER_RETURN_IF_ERROR(Done(api_.StreamCreate(&taken.stream, kStreamNonBlocking), "make a stream"));
    Graph graph = nullptr;
    absl::Status status = Captured(taken, submit, graph);
    auto kept = std::make_unique<Kept>(Kept{std::move(taken.modules)});
    if (status.ok()) status = Done(api_.GraphInstantiate(&kept->graph, graph, 0), "prepare launches that it keeps");
    if (graph != nullptr) api_.GraphDestroy(graph);
    api_.StreamDestroy(taken.stream);
    TEMPER_RETURN_IF_ERROR(status);
    return Recording(kept.release(), [this](void* recording) { Forget(static_cast<Kept*>(recording)); });
  }

  absl::Status Replay(const Recording& recording) override {
    const Current current(context_);
    TEMPER_RETURN_IF_ERROR(current.status());
    return Done(api_.GraphLaunch(static_cast<Kept*>(recording.get())->graph, stream_), "launch what it keeps");
  }

 private:
  Capture* capturing() const { return capture != nullptr && capture->session == this ? capture : nullptr; }
  Stream queue() const { return capturing() != nullptr ? capture->stream : stream_; }

  absl::Status Captured(Capture& taken, const std::function<absl::Status()>& submit, Graph& graph) {
    TEMPER_RETURN_IF_ERROR(Done(api_.StreamBeginCapture(taken.stream, kCaptureThreadLocal), "keep launches"));
    capture = &taken;
    absl::Status status = submit();
    capture = nullptr;
    status.Update(Done(api_.StreamEndCapture(taken.stream, &graph), "keep launches"));
    return status;
  }

  void Forget(Kept* kept) {
    const Current current(context_);
    if (current.status().ok()) {
      api_.StreamSynchronize(stream_);  // its code is in use until then
      api_.GraphExecDestroy(kept->graph);
    }
    delete kept;
  }

  absl::Status Done(Result code, const char* what) {
    driver::Loss none = driver::Loss::kNone;  // the first one tells why
    if (BreaksContext(code)) loss_.compare_exchange_strong(none, LossOf(code));
    return Converted(code, what);
  }

  template <typename F>
  absl::Status Move(Stream stream, int64_t bytes, const char* what, const F& enqueue) {
    if (bytes == 0) return absl::OkStatus();
    const Current current(context_);
    TEMPER_RETURN_IF_ERROR(current.status());
    TEMPER_RETURN_IF_ERROR(Done(enqueue(static_cast<size_t>(bytes)), what));
    return stream == stream_ ? Done(api_.StreamSynchronize(stream), what) : absl::OkStatus();
  }

  absl::Status Transfer(Stream stream, Address to, Address from, int64_t bytes, const char* what) {
    return Move(stream, bytes, what, [&](size_t size) { return api_.MemcpyAsync(to, from, size, stream); });
  }

  absl::Status NoMemory(const std::optional<nvml::State>& state) const {
    const std::string free = state.has_value() ? absl::StrCat(": ", state->free_bytes >> 20, " MiB are free") : "";
    return absl::ResourceExhaustedError(
        absl::StrCat(info_.name, " has no memory for one more process", free, "; nvidia-smi tells who holds it"));
  }
  absl::Status NoMemoryFor(int64_t bytes) const {
    size_t free = 0, total = 0;
    api_.MemGetInfo(&free, &total);
    return absl::ResourceExhaustedError(absl::StrCat(info_.name, " has no ", bytes >> 20, " MiB: ", free >> 20, " of ",
                                                     total >> 20,
                                                     " MiB are free; nvidia-smi tells who holds the others"));
  }

  // The first image that the driver takes.
  absl::StatusOr<std::shared_ptr<ModuleOf>> Load(const driver::Code& code) {
    Result result = kNoBinaryForGpu;
    std::string log;
    for (const std::string& image : code.images) {
      Module module = nullptr;
      result = LoadImage(image, module, log);
      if (result == kSuccess) return std::shared_ptr<ModuleOf>(module, [this](Module loaded) { Unload(loaded); });
      if (BreaksContext(result) || result == kOutOfMemory) break;
    }
    return Refusal(code, result, log);
  }

  Result LoadImage(const std::string& image, Module& module, std::string& log) {
    std::array<char, 1024> text{};
    std::array<int, 2> options = {kJitErrorLog, kJitErrorLogBytes};
    std::array<void*, 2> values = {text.data(), reinterpret_cast<void*>(text.size() - 1)};
    const Result result = api_.ModuleLoadDataEx(&module, image.data(), options.size(), options.data(), values.data());
    const std::vector<std::string> lines = absl::StrSplit(text.data(), absl::MaxSplits('\n', 1));
    if (!lines[0].empty()) log = std::string(absl::StripAsciiWhitespace(lines[0]));
    return result;
  }

  void Unload(Module module) {
    const Current current(context_);
    if (current.status().ok()) api_.ModuleUnload(module);
  }

  absl::Status Refusal(const driver::Code& code, Result result, const std::string& log) {
    absl::Status status = Done(result, "load the code");
    if (result == kOutOfMemory || lost()) return status;
    TEMPER_RETURN_IF_ERROR(CheckArch(code.arch, info_, code.images.size() > 1));
    if (code.least_driver > info_.driver) {
      return absl::FailedPreconditionError(absl::StrCat("the NVIDIA driver is for CUDA ", VersionText(info_.driver),
                                                        ", and the code needs one for ", VersionText(code.least_driver),
                                                        " or later"));
    }
    return log.empty() ? status : absl::InternalError(absl::StrCat(std::string(status.message()), ": ", log));
  }

  // Lets launches of the function ask for as much memory of a group.
  absl::Status Share(LoadedFunction& loaded, int64_t bytes) {
    if (bytes == 0) return absl::OkStatus();
    const std::lock_guard lock(loaded.mutex);
    if (bytes <= loaded.shared_bytes) return absl::OkStatus();
    TEMPER_RETURN_IF_ERROR(Done(
        api_.FuncSetAttribute(loaded.function, kFunctionMaxDynamicShared, static_cast<int>(bytes)), "share memory"));
    loaded.shared_bytes = bytes;
    return absl::OkStatus();
  }

  absl::Status Launch(const LaunchCall& call) {
    auto& loaded = *static_cast<LoadedFunction*>(call.function->get());
    TEMPER_RETURN_IF_ERROR(Share(loaded, call.shape.shared_bytes));
    if (Capture* kept = capturing()) kept->modules.push_back(loaded.module);
    std::vector<void*> arguments = {call.arguments.begin(), call.arguments.end()};
    std::vector<void*> parameters;
    for (void*& argument : arguments) parameters.push_back(&argument);
    const auto size = [](size_t n) { return static_cast<unsigned>(n); };
    const auto& [groups, threads, bytes] = call.shape;
    return Done(api_.LaunchKernel(loaded.function, size(groups[0]), size(groups[1]), size(groups[2]), size(threads[0]),
                                  size(threads[1]), size(threads[2]), static_cast<unsigned>(bytes), queue(),
                                  parameters.data(), nullptr),
                "launch a kernel");
  }

  const Api& api_ = TheApi();
  const Device device_;
  const DeviceInfo info_;
  Context context_ = nullptr;
  Stream stream_ = nullptr;
  std::mutex run_;
  Event start_ = nullptr, end_ = nullptr;
  std::atomic<driver::Loss> loss_ = driver::Loss::kNone;
};

constinit driver::PackageDeviceChoice package_device("TEMPER_CUDA_DEVICE");

}  // namespace

absl::StatusOr<DeviceInfo> Describe(int number) {
  TEMPER_ASSIGN_OR_RETURN(const Device device, DeviceOf(number));
  TEMPER_ASSIGN_OR_RETURN(const int driver, DriverVersion());
  DeviceInfo info{.driver = driver};
  std::array<char, 256> name{};
  TEMPER_RETURN_IF_ERROR(
      Converted(TheApi().DeviceGetName(name.data(), static_cast<int>(name.size()) - 1, device), "tell its name"));
  info.name = name.data();
  Uuid uuid{};
  TEMPER_RETURN_IF_ERROR(Converted(TheApi().DeviceGetUuid(&uuid, device), "tell its UUID"));
  info.uuid = UuidText(uuid);
  size_t bytes = 0;
  TEMPER_RETURN_IF_ERROR(Converted(TheApi().DeviceTotalMem(&bytes, device), "tell its memory"));
  info.memory_bytes = static_cast<int64_t>(bytes);
  info.arch = absl::StrCat("sm_", NumberOf(device, kComputeCapabilityMajor), NumberOf(device, kComputeCapabilityMinor));
  info.cache_bytes = NumberOf(device, kL2CacheSize);
  info.shared_bytes = NumberOf(device, kMaxSharedPerBlockOptin);
  info.shared_bytes_multiprocessor = NumberOf(device, kMaxSharedPerMultiprocessor);
  info.registers_multiprocessor = NumberOf(device, kMaxRegistersPerMultiprocessor);
  info.multiprocessors = std::max(1, NumberOf(device, kMultiprocessorCount));
  info.group_threads = NumberOf(device, kMaxThreadsPerBlock);
  info.warp_width = NumberOf(device, kWarpSize);
  return info;
}

absl::Status CheckArch(std::string_view arch, const DeviceInfo& info, bool as_ptx) {
  if (Runs(ParseArch(arch), ParseArch(info.arch), as_ptx)) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("the code is for ", std::string(arch), ", and ", info.name, " is ",
                                                    info.arch, ": compile for cuda:", info.arch));
}

absl::StatusOr<Session*> Open(int number) {
  static auto* const sessions = new driver::Sessions<Session>;
  return sessions->Get(number, [&]() -> absl::StatusOr<std::unique_ptr<Session>> {
    TEMPER_ASSIGN_OR_RETURN(const DeviceInfo info, Describe(number));
    TEMPER_ASSIGN_OR_RETURN(const Device device, DeviceOf(number));
    auto session = std::make_unique<StreamSession>(device, info);
    TEMPER_RETURN_IF_ERROR(session->Start());
    return session;
  });
}

int PackageDevice() { return package_device.number(); }
void SetPackageDevice(int number) { package_device.Set(number); }

}  // namespace temper::cuda
