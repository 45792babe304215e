#include "measure_worker/launches/launch_device.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "compiler/codegen/codegen.h"
#include "measure_worker/backends/cpu/cpu_device.h"
#include "measure_worker/host/patient_lock.h"

namespace temper::worker {
namespace {

// Around the arrays of a guarded block, so that a kernel that leaves one writes here, and reads NaN.
constexpr uint8_t kEdge = 0xff;
constexpr int64_t kEdgeBytes = 4096;

// From here on the device is busy for longer than a host takes for the next launch: an H100's took 3 us.
constexpr double kHidesLaunchS = 10e-6;
constexpr int64_t kMostKept = 128;  // calls

int64_t RoundedUp(int64_t bytes, int64_t to) { return (bytes + to - 1) / to * to; }

// Arrays with room between them, parts of one allocation.
class LaunchBlock : public Block {
 public:
  static absl::StatusOr<std::unique_ptr<Block>> Make(driver::Session& session, std::span<const int64_t> bytes,
                                                     int64_t edge) {
    auto block = std::unique_ptr<LaunchBlock>(new LaunchBlock(session));
    const int64_t alignment = session.part_alignment();
    block->edge_ = RoundedUp(edge, alignment);
    block->whole_bytes_ = block->edge_;
    for (const int64_t size : bytes) {
      block->parts_.push_back({block->whole_bytes_, size, {}});
      block->whole_bytes_ += RoundedUp(std::max<int64_t>(1, size), alignment) + block->edge_;
    }
    TEMPER_ASSIGN_OR_RETURN(block->whole_, session.Allocate(block->whole_bytes_));
    for (Part& part : block->parts_) {
      TEMPER_ASSIGN_OR_RETURN(part.memory, session.Part(block->whole_, part.offset, part.bytes));
    }
    if (block->edge_ > 0) TEMPER_RETURN_IF_ERROR(session.Fill(block->whole_.get(), 0, kEdge, block->whole_bytes_));
    return block;
  }

  size_t arrays() const override { return parts_.size(); }
  int64_t bytes(size_t array) const override { return parts_[array].bytes; }
  void* address(size_t array) const override { return parts_[array].memory.get(); }
  absl::Status Fill(uint8_t byte) override {
    TEMPER_RETURN_IF_ERROR(MendEdges());
    for (const Part& part : parts_) TEMPER_RETURN_IF_ERROR(session_.Fill(whole_.get(), part.offset, byte, part.bytes));
    return absl::OkStatus();
  }
  absl::Status Write(size_t array, const void* data) override {
    TEMPER_RETURN_IF_ERROR(MendEdges());
    return session_.Write(whole_.get(), parts_[array].offset, data, parts_[array].bytes);
  }
  absl::StatusOr<const void*> Read(size_t array) const override {
    read_.resize(static_cast<size_t>(parts_[array].bytes));
    TEMPER_RETURN_IF_ERROR(session_.Read(whole_.get(), parts_[array].offset, read_.data(), parts_[array].bytes));
    return read_.data();
  }
  // Kernels get what they may not write as pointers to constants: the compiler sees to it.
  absl::Status MakeReadOnly() override { return absl::OkStatus(); }
  absl::Status CheckEdges() const override {
    if (edge_ == 0) return absl::OkStatus();
    int64_t from = 0;
    for (size_t i = 0; i <= parts_.size(); ++i) {
      const int64_t to = i < parts_.size() ? parts_[i].offset : whole_bytes_;
      TEMPER_RETURN_IF_ERROR(CheckEdge(from, to));
      if (i < parts_.size()) from = to + parts_[i].bytes;
    }
    return absl::OkStatus();
  }

 private:
  struct Part {
    int64_t offset, bytes;
    driver::Memory memory;
  };
  explicit LaunchBlock(driver::Session& session) : session_(session) {}

  absl::Status CheckEdge(int64_t from, int64_t to) const {
    std::vector<uint8_t> edge(static_cast<size_t>(to - from));
    TEMPER_RETURN_IF_ERROR(session_.Read(whole_.get(), from, edge.data(), to - from));
    damaged_ = damaged_ || std::ranges::any_of(edge, [](uint8_t byte) { return byte != kEdge; });
    return damaged_ ? absl::DataLossError("bytes around the array were written") : absl::OkStatus();
  }

  absl::Status MendEdges() {
    if (!damaged_) return absl::OkStatus();
    int64_t from = 0;
    for (const Part& part : parts_) {
      TEMPER_RETURN_IF_ERROR(session_.Fill(whole_.get(), from, kEdge, part.offset - from));
      from = part.offset + part.bytes;
    }
    damaged_ = false;
    return session_.Fill(whole_.get(), from, kEdge, whole_bytes_ - from);
  }

  driver::Session& session_;
  driver::Memory whole_;
  int64_t whole_bytes_ = 0, edge_ = 0;
  std::vector<Part> parts_;  // after what they are parts of
  mutable std::vector<char> read_;
  mutable bool damaged_ = false;
};

struct LoadedCode : Code {
  driver::Loaded kernel;
};

class LaunchDevice : public Device {
 public:
  LaunchDevice(driver::Session& session, LaunchKind kind) : session_(session), kind_(std::move(kind)) {}

  absl::Status Use(const Target& target) override {
    TEMPER_RETURN_IF_ERROR(kind_.check_runs(target));
    TEMPER_RETURN_IF_ERROR(packer_.Use(HostTarget()));
    target_ = target;
    return absl::OkStatus();
  }
  const Target& target() const override { return target_; }
  Device& packer() override { return packer_; }
  int64_t memory_bytes() const override { return std::min(packer_.memory_bytes(), session_.memory_bytes()); }
  Caches caches() const override { return {.own = 0, .shared = session_.cache_bytes()}; }

  absl::StatusOr<std::unique_ptr<Block>> AllocateGuarded(std::span<const int64_t> bytes) override {
    return LaunchBlock::Make(session_, bytes, kEdgeBytes);
  }
  // Where an allocation lies is the driver's business.
  absl::StatusOr<std::unique_ptr<Block>> AllocatePacked(std::span<const int64_t> bytes, const Block*) override {
    return LaunchBlock::Make(session_, bytes, 0);
  }
  void Trim() override {
    cold_ = {};
    cold_bytes_ = 0;
    packer_.Trim();
  }
  absl::Status Copy(std::span<const Move> moves) override {
    for (const Move& move : moves) {
      TEMPER_RETURN_IF_ERROR(session_.Copy(move.from->address(move.from_array), 0, move.to->address(move.to_array), 0,
                                           move.to->bytes(move.to_array)));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<Code>> Load(const Artifact& artifact) override {
    TEMPER_ASSIGN_OR_RETURN(driver::Program program, kind_.read(artifact.code));
    if (program.kernels.size() != 1) return absl::InvalidArgumentError("code of one kernel is wanted");
    auto code = std::make_unique<LoadedCode>();
    driver::Kernel& kernel = program.kernels.front().second;
    code->scratch_bytes = kernel.workspace_bytes;
    TEMPER_ASSIGN_OR_RETURN(code->kernel, driver::Loaded::Make(session_, program.code, std::move(kernel)));
    return code;
  }

  absl::StatusOr<double> Launch(const Code& code, const Arguments& arguments, void* scratch) override {
    size_t next = 0;
    const absl::StatusOr<double> seconds = Run(code, {&arguments, 1}, next, scratch, 1);
    if (session_.lost()) End(seconds.status());
    return seconds;
  }

  // A package's launches are kept by the driver and asked for at once. A short kernel that is launched call by call
  // waits for the host, and the time would be the host's: so it is kept too, where the driver can.
  double Time(const Code& code, std::span<const Arguments> arguments, size_t& next, void* scratch,
              int64_t calls) override {
    const absl::StatusOr<double> seconds = Run(code, arguments, next, scratch, calls);
    if (!seconds.ok()) End(seconds.status());
    if (calls == 1 || *seconds >= kHidesLaunchS * static_cast<double>(calls)) return *seconds;
    const int64_t kept = std::min(calls, kMostKept);
    const absl::StatusOr<double> alone = RunKept(code, arguments, next, scratch, kept);
    if (session_.lost()) End(alone.status());
    return alone.ok() ? *alone * static_cast<double>(calls) / static_cast<double>(kept) : *seconds;
  }

  void Fetch(const Block& block, size_t array) override {
    if (!ProvideCold(block.bytes(array)).ok()) return;
    static_cast<void>(session_.Copy(block.address(array), 0, cold_.get(), 0, block.bytes(array)));
  }
  void Evict() override {
    const int64_t bytes = 2 * session_.cache_bytes();
    if (!ProvideCold(bytes).ok()) return;
    static_cast<void>(session_.Fill(cold_.get(), 0, 0, bytes));
  }

 private:
  using CallFn = std::function<driver::LaunchCall(int64_t)>;

  // What launches the kernel for one call after another, with the arguments in turn.
  static CallFn Calls(const Code& code, std::span<const Arguments> arguments, size_t& next, void* scratch) {
    const driver::Loaded& kernel = static_cast<const LoadedCode&>(code).kernel;
    return [&kernel, &next, arguments, scratch, handles = std::vector<void*>()](int64_t i) mutable {
      const auto launches = std::ssize(kernel.functions);
      if (i % launches == 0) {
        handles = arguments[next];
        if (kernel.kernel.workspace_bytes > 0) handles.push_back(scratch);
        if (++next == arguments.size()) next = 0;
      }
      return kernel.Call(i % launches, handles);
    };
  }
  static int64_t LaunchesOf(const Code& code) {
    return std::ssize(static_cast<const LoadedCode&>(code).kernel.functions);
  }

  absl::StatusOr<double> Run(const Code& code, std::span<const Arguments> arguments, size_t& next, void* scratch,
                             int64_t calls) {
    return session_.Run(calls * LaunchesOf(code), Calls(code, arguments, next, scratch));
  }

  absl::StatusOr<double> RunKept(const Code& code, std::span<const Arguments> arguments, size_t& next, void* scratch,
                                 int64_t calls) {
    TEMPER_ASSIGN_OR_RETURN(const driver::Recording recording, session_.Record([&] {
      return session_.Submit(calls * LaunchesOf(code), Calls(code, arguments, next, scratch));
    }));
    TEMPER_RETURN_IF_ERROR(session_.Replay(recording));  // the first one brings it to the device
    return session_.Time([&] { return session_.Replay(recording); });
  }

  // The supervisor starts another child.
  [[noreturn]] static void End(const absl::Status& why) {
    std::fprintf(stderr, "%s\n", std::string(why.message()).c_str());
    std::abort();
  }

  absl::Status ProvideCold(int64_t bytes) {
    if (bytes <= cold_bytes_) return absl::OkStatus();
    TEMPER_ASSIGN_OR_RETURN(cold_, session_.Allocate(bytes));
    cold_bytes_ = bytes;
    return absl::OkStatus();
  }

  driver::Session& session_;
  const LaunchKind kind_;
  Target target_;
  CpuDevice packer_;
  driver::Memory cold_;  // nothing that a kernel reads
  int64_t cold_bytes_ = 0;
};

}  // namespace

std::unique_ptr<Device> NewLaunchDevice(driver::Session& session, LaunchKind kind) {
  return std::make_unique<LaunchDevice>(session, std::move(kind));
}

absl::Status CheckDeviceNumber(std::string_view which, std::string_view example) {
  int number = -1;
  if (absl::SimpleAtoi(absl::string_view(which.data(), which.size()), &number) && number >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("'", std::string(which), "' is no number of a device; write ", std::string(example)));
}

int DeviceNumber(const DeviceSpec& spec) {
  int number = 0;
  static_cast<void>(absl::SimpleAtoi(spec.which, &number));  // checked when it was selected
  return number;
}

std::unique_ptr<DeviceLock> LockOfDevice(std::string id) {
  std::ranges::replace_if(
      id, [](unsigned char c) { return std::isalnum(c) == 0 && c != '-'; }, '_');
  return std::make_unique<PatientLock>(LockDirectory(), std::vector<std::string>{"gpu-" + id});
}

}  // namespace temper::worker
