#include "measure_worker/launches/launch_device.h"

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <list>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/division.h"
#include "compiler/codegen/codegen.h"
#include "measure_worker/backends/cpu/cpu_device.h"
#include "measure_worker/host/patient_lock.h"

namespace temper::worker {
namespace {

// Around the arrays of a guarded block, so that a kernel that leaves one writes here, and reads NaN.
constexpr uint8_t kEdge = 0xff;
constexpr int64_t kEdgeBytes = 4096;

// From here on a launch keeps the device busy for longer than a host takes for the next one: an H100's took 3 us.
constexpr double kHidesLaunchS = 10e-6;
// Calls that are kept as one, rounded up to whole rounds of the arguments, and how many such are kept for later
// samples: the canary's, and those of whoever is measured.
constexpr int64_t kCallsKept = 128;
constexpr size_t kMostKept = 2;

// Arrays with room between them, parts of one allocation.
class LaunchBlock : public Block {
 public:
  static absl::StatusOr<std::unique_ptr<Block>> Make(driver::Session& session, std::span<const int64_t> bytes,
                                                     int64_t edge) {
    auto block = std::unique_ptr<LaunchBlock>(new LaunchBlock(session));
    const int64_t alignment = session.part_alignment();
    block->edge_ = RoundUp(edge, alignment);
    block->whole_bytes_ = block->edge_;
    for (const int64_t size : bytes) {
      block->parts_.push_back({block->whole_bytes_, size, {}});
      block->whole_bytes_ += RoundUp(std::max<int64_t>(1, size), alignment) + block->edge_;
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
  int64_t number = 0;  // no other code of the device has it
};

// Calls that the driver keeps, whole rounds of the arguments: who replays them finds in the caches what a caller of
// one after another would.
struct KeptCalls {
  int64_t code = 0;
  std::vector<Arguments> arguments;
  void* scratch = nullptr;
  int64_t calls = 0;
  driver::Recording recording;
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
  bool shares_memory() const override { return true; }
  bool lost() const override { return session_.lost(); }
  Caches caches() const override { return {.own = 0, .shared = session_.cache_bytes()}; }

  absl::StatusOr<std::unique_ptr<Block>> AllocateGuarded(std::span<const int64_t> bytes) override {
    return LaunchBlock::Make(session_, bytes, kEdgeBytes);
  }
  // Where an allocation lies is the driver's business.
  absl::StatusOr<std::unique_ptr<Block>> AllocatePacked(std::span<const int64_t> bytes, const Block*) override {
    return LaunchBlock::Make(session_, bytes, 0);
  }
  void Trim() override {
    kept_.clear();
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
    code->number = ++codes_;
    TEMPER_ASSIGN_OR_RETURN(code->kernel, driver::Loaded::Make(session_, program.code, std::move(kernel)));
    return code;
  }

  absl::StatusOr<double> Launch(const Code& code, const Arguments& arguments, void* scratch) override {
    size_t next = 0;
    return OrEnd(Run(code, {&arguments, 1}, next, scratch, 1));
  }

  // A package's launches are kept by the driver and asked for at once. A short kernel that is launched call by call
  // waits for the host, and the time would be the host's: so it is kept too, where the driver can.
  absl::StatusOr<double> Time(const Code& code, std::span<const Arguments> arguments, size_t& next, void* scratch,
                              int64_t calls) override {
    if (calls > 1 && BringKept(code, arguments, scratch, calls)) return OrEnd(TimeKept(calls));
    const absl::StatusOr<double> seconds = OrEnd(Run(code, arguments, next, scratch, calls));
    if (!seconds.ok() || calls == 1) return seconds;
    if (*seconds >= kHidesLaunchS * static_cast<double>(calls * LaunchesOf(code))) return seconds;
    absl::Status kept = Keep(code, arguments, next, scratch, calls);
    if (absl::IsUnimplemented(kept)) return seconds;  // so it is with all kernels of this device
    if (absl::IsResourceExhausted(kept)) {
      Trim();
      kept = Keep(code, arguments, next, scratch, calls);
    }
    return OrEnd(kept.ok() ? TimeKept(calls) : absl::StatusOr<double>(kept));
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

  static int64_t CallsToKeep(int64_t calls, std::span<const Arguments> arguments) {
    return RoundUp(std::min(calls, kCallsKept), std::ssize(arguments));
  }

  // Whether such calls are kept, and enough of them. They are the first of kept_ then, and warm: what was replayed
  // since they were may have taken their place in the caches.
  bool BringKept(const Code& code, std::span<const Arguments> arguments, void* scratch, int64_t calls) {
    const auto found = std::ranges::find_if(kept_, [&](const KeptCalls& k) {
      return k.code == static_cast<const LoadedCode&>(code).number && k.scratch == scratch &&
             std::ranges::equal(k.arguments, arguments);
    });
    if (found == kept_.end()) return false;
    if (found->calls < CallsToKeep(calls, arguments)) {
      kept_.erase(found);
      return false;
    }
    if (found == kept_.begin()) return true;
    kept_.splice(kept_.begin(), kept_, found);
    return session_.Replay(kept_.front().recording).ok();
  }

  // Whose turn is next stays so, after whole rounds. They are the first of kept_ then, and warm.
  absl::Status Keep(const Code& code, std::span<const Arguments> arguments, size_t& next, void* scratch,
                    int64_t calls) {
    KeptCalls made{static_cast<const LoadedCode&>(code).number,
                   {arguments.begin(), arguments.end()},
                   scratch,
                   CallsToKeep(calls, arguments),
                   {}};
    TEMPER_ASSIGN_OR_RETURN(made.recording, session_.Record([&] {
      return session_.Submit(made.calls * LaunchesOf(code), Calls(code, arguments, next, scratch));
    }));
    TEMPER_RETURN_IF_ERROR(session_.Replay(made.recording));  // the first one brings it to the device
    kept_.push_front(std::move(made));
    if (kept_.size() > kMostKept) kept_.pop_back();
    return absl::OkStatus();
  }

  // As many rounds as take at least so many calls.
  absl::StatusOr<double> TimeKept(int64_t calls) {
    const KeptCalls& kept = kept_.front();
    const int64_t replays = CeilDiv(calls, kept.calls);
    TEMPER_ASSIGN_OR_RETURN(const double seconds, session_.Time([&]() -> absl::Status {
      for (int64_t i = 0; i < replays; ++i) TEMPER_RETURN_IF_ERROR(session_.Replay(kept.recording));
      return absl::OkStatus();
    }));
    return seconds * static_cast<double>(calls) / static_cast<double>(replays * kept.calls);
  }

  // A kernel that broke the device is found running: the supervisor blames it, and starts another child.
  absl::StatusOr<double> OrEnd(absl::StatusOr<double> seconds) const {
    if (session_.loss() != driver::Loss::kByKernel) return seconds;
    std::fprintf(stderr, "%s\n", std::string(seconds.status().message()).c_str());
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
  std::atomic<int64_t> codes_ = 0;
  std::list<KeptCalls> kept_;  // replayed last, first
  driver::Memory cold_;        // nothing that a kernel reads
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
