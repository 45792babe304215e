#include "measure_worker/backends/opencl/opencl_device.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "compiler/codegen/opencl/generator.h"
#include "compiler/driver/opencl.h"
#include "measure_worker/backends/cpu/cpu_device.h"
#include "measure_worker/backends/opencl/describe.h"

namespace temper::worker {
namespace {

// Around the arrays of a guarded block, so that a kernel that leaves one writes here, and reads NaN.
constexpr uint8_t kEdge = 0xff;
constexpr int64_t kEdgeBytes = 4096;

int64_t RoundedUp(int64_t bytes, int64_t to) { return (bytes + to - 1) / to * to; }

// Arrays with room between them, parts of one allocation.
class OpenclBlock : public Block {
 public:
  static absl::StatusOr<std::unique_ptr<Block>> Make(opencl::Session& session, std::span<const int64_t> bytes,
                                                     int64_t edge) {
    auto block = std::unique_ptr<OpenclBlock>(new OpenclBlock(session));
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
    if (block->edge_ > 0) TEMPER_RETURN_IF_ERROR(session.Fill(block->whole_.handle(), 0, kEdge, block->whole_bytes_));
    return block;
  }

  size_t arrays() const override { return parts_.size(); }
  int64_t bytes(size_t array) const override { return parts_[array].bytes; }
  void* address(size_t array) const override { return parts_[array].memory.handle(); }
  absl::Status Fill(uint8_t byte) override {
    TEMPER_RETURN_IF_ERROR(MendEdges());
    for (const Part& part : parts_)
      TEMPER_RETURN_IF_ERROR(session_.Fill(whole_.handle(), part.offset, byte, part.bytes));
    return absl::OkStatus();
  }
  absl::Status Write(size_t array, const void* data) override {
    TEMPER_RETURN_IF_ERROR(MendEdges());
    return session_.Write(whole_.handle(), parts_[array].offset, data, parts_[array].bytes);
  }
  absl::StatusOr<const void*> Read(size_t array) const override {
    read_.resize(static_cast<size_t>(parts_[array].bytes));
    TEMPER_RETURN_IF_ERROR(session_.Read(whole_.handle(), parts_[array].offset, read_.data(), parts_[array].bytes));
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
    opencl::Memory memory;
  };
  explicit OpenclBlock(opencl::Session& session) : session_(session) {}

  absl::Status CheckEdge(int64_t from, int64_t to) const {
    std::vector<uint8_t> edge(static_cast<size_t>(to - from));
    TEMPER_RETURN_IF_ERROR(session_.Read(whole_.handle(), from, edge.data(), to - from));
    damaged_ = damaged_ || std::ranges::any_of(edge, [](uint8_t byte) { return byte != kEdge; });
    return damaged_ ? absl::DataLossError("bytes around the array were written") : absl::OkStatus();
  }

  absl::Status MendEdges() {
    if (!damaged_) return absl::OkStatus();
    int64_t from = 0;
    for (const Part& part : parts_) {
      TEMPER_RETURN_IF_ERROR(session_.Fill(whole_.handle(), from, kEdge, part.offset - from));
      from = part.offset + part.bytes;
    }
    damaged_ = false;
    return session_.Fill(whole_.handle(), from, kEdge, whole_bytes_ - from);
  }

  opencl::Session& session_;
  opencl::Memory whole_;
  int64_t whole_bytes_ = 0, edge_ = 0;
  std::vector<Part> parts_;  // after what they are parts of
  mutable std::vector<char> read_;
  mutable bool damaged_ = false;
};

struct OpenclLoaded : Code {
  OpenclKernel kernel;
  std::vector<opencl::Function> functions;
};

class OpenclDevice : public Device {
 public:
  explicit OpenclDevice(opencl::Session& session) : session_(session) {}

  absl::Status Use(const Target& target) override {
    TEMPER_RETURN_IF_ERROR(CheckOpenclRuns(target, session_.info()));
    TEMPER_RETURN_IF_ERROR(packer_.Use(HostTarget()));
    target_ = target;
    return absl::OkStatus();
  }
  const Target& target() const override { return target_; }
  Device& packer() override { return packer_; }
  int64_t memory_bytes() const override { return std::min(packer_.memory_bytes(), session_.info().memory_bytes); }
  Caches caches() const override { return {.own = 0, .shared = session_.info().cache_bytes}; }

  absl::StatusOr<std::unique_ptr<Block>> AllocateGuarded(std::span<const int64_t> bytes) override {
    return OpenclBlock::Make(session_, bytes, kEdgeBytes);
  }
  // Where an allocation lies is the driver's business.
  absl::StatusOr<std::unique_ptr<Block>> AllocatePacked(std::span<const int64_t> bytes, const Block*) override {
    return OpenclBlock::Make(session_, bytes, 0);
  }
  void Trim() override {
    cold_ = {};
    cold_bytes_ = 0;
    packer_.Trim();
  }
  absl::Status Copy(std::span<const Move> moves) override {
    for (const Move& move : moves) {
      TEMPER_RETURN_IF_ERROR(session_.Copy(move.from->address(move.from_array), move.to->address(move.to_array),
                                           move.to->bytes(move.to_array)));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<Code>> Load(const Artifact& artifact) override {
    TEMPER_ASSIGN_OR_RETURN(const OpenclCode read, ReadOpenclCode(artifact.code));
    auto code = std::make_unique<OpenclLoaded>();
    code->kernel = read.kernels.front().second;
    std::vector<std::string> names;
    for (const OpenclKernel::Launch& launch : code->kernel.launches) names.push_back(launch.function);
    TEMPER_ASSIGN_OR_RETURN(code->functions, session_.Build(read.source, names));
    code->scratch_bytes = code->kernel.workspace_bytes;
    return code;
  }

  absl::StatusOr<double> Launch(const Code& code, const Arguments& arguments, void* scratch) override {
    size_t next = 0;
    return Run(code, {&arguments, 1}, next, scratch, 1);
  }

  double Time(const Code& code, std::span<const Arguments> arguments, size_t& next, void* scratch,
              int64_t calls) override {
    const absl::StatusOr<double> seconds = Run(code, arguments, next, scratch, calls);
    if (seconds.ok()) return *seconds;
    std::fprintf(stderr, "%s\n", std::string(seconds.status().message()).c_str());
    std::abort();
  }

  void Fetch(const Block& block, size_t array) override {
    if (!ProvideCold(block.bytes(array)).ok()) return;
    static_cast<void>(session_.Copy(block.address(array), cold_.handle(), block.bytes(array)));
  }
  void Evict() override {
    const int64_t bytes = 2 * session_.info().cache_bytes;
    if (!ProvideCold(bytes).ok()) return;
    static_cast<void>(session_.Fill(cold_.handle(), 0, 0, bytes));
  }

 private:
  absl::StatusOr<double> Run(const Code& code, std::span<const Arguments> arguments, size_t& next, void* scratch,
                             int64_t calls) {
    const auto& ours = static_cast<const OpenclLoaded&>(code);
    const auto launches = std::ssize(ours.functions);
    std::vector<void*> handles;
    const auto call = [&](int64_t i) {
      const auto which = static_cast<size_t>(i % launches);
      if (which == 0) {
        handles = arguments[next];
        if (ours.kernel.workspace_bytes > 0) handles.push_back(scratch);
        if (++next == arguments.size()) next = 0;
      }
      const OpenclKernel::Launch& launch = ours.kernel.launches[which];
      return opencl::LaunchCall{&ours.functions[which], {launch.groups, launch.threads}, handles};
    };
    return session_.Run(calls * launches, call);
  }

  absl::Status ProvideCold(int64_t bytes) {
    if (bytes <= cold_bytes_) return absl::OkStatus();
    TEMPER_ASSIGN_OR_RETURN(cold_, session_.Allocate(bytes));
    cold_bytes_ = bytes;
    return absl::OkStatus();
  }

  opencl::Session& session_;
  Target target_;
  CpuDevice packer_;
  opencl::Memory cold_;  // nothing that a kernel reads
  int64_t cold_bytes_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> OpenOpencl(const DeviceSpec& spec) {
  TEMPER_ASSIGN_OR_RETURN(opencl::Session * session, opencl::Open(OpenclNumber(spec)));
  opencl::SetPackageDevice(OpenclNumber(spec));  // models are measured on it, too
  return std::make_unique<OpenclDevice>(*session);
}

}  // namespace temper::worker
