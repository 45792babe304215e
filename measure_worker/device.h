// What a kind of device gives to those who measure on it: memory, kernels in it, launches and what they take, its
// caches. How kernels are measured with this stands above it, once (kernels/kernel_bench.h). All of it lives in the
// measuring child, where a crash or a hang costs nothing but the child.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"

namespace temper {
struct Artifact;
struct Target;
}  // namespace temper

namespace temper::worker {

// What an array of so many bytes takes of a block: the next one may begin behind it.
inline int64_t RoomOf(int64_t bytes) {
  constexpr int64_t kAlignment = 64;
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// Arrays in one allocation, one behind the other, each aligned to 64 bytes. It must not outlive its device. Not
// thread-safe.
class Block {
 public:
  virtual ~Block() = default;
  virtual size_t arrays() const = 0;
  virtual int64_t bytes(size_t array) const = 0;
  // What a launch takes for the array: an address of the host or of the device, or a handle.
  virtual void* address(size_t array) const = 0;
  // Each byte of all arrays.
  virtual absl::Status Fill(uint8_t byte) = 0;
  // From the host's memory, all of the array.
  virtual absl::Status Write(size_t array, const void* data) = 0;
  // The array after all launches, for the host to read until this block is used again. Where the host sees the memory
  // nothing is copied.
  virtual absl::StatusOr<const void*> Read(size_t array) const = 0;
  // A kernel that writes here from now on crashes, where the device can tell.
  virtual absl::Status MakeReadOnly() = 0;
  // kDataLoss: bytes around the arrays were written since the latest Fill or Write.
  virtual absl::Status CheckEdges() const = 0;
};

// Bytes that are small numbers, none of them 0 nor subnormal, in whichever type of floats they are read.
void FillWithSmallNumbers(std::span<char> bytes);

// One kernel on the device. Immutable once its loader has it.
class Code {
 public:
  virtual ~Code() = default;
  int64_t scratch_bytes = 0;             // that each launch is given, for all its threads
  std::vector<int64_t> parameter_bytes;  // set by the CodeCache
};

// The addresses of a kernel's parameters: the inputs in order, then the output.
using Arguments = std::vector<void*>;

// Of the target, in bytes.
struct Caches {
  int64_t own = 0;     // all cores' own last caches together; 0 where none outlives a launch
  int64_t shared = 0;  // the cache that all cores share; 0: none
  // Several cores run a kernel: what one wrote last, another has to fetch from it.
  bool several = false;
};

// Used by one thread at a time, but for Load. A kernel that leaves it unusable ends the process while it runs, and so
// is found by the supervisor, which then starts another child.
class Device {
 public:
  virtual ~Device() = default;
  // From now on kernels are for this target, and the caches are its. kFailedPrecondition names what the device lacks;
  // the device is then as before.
  virtual absl::Status Use(const Target& target) = 0;
  virtual const Target& target() const = 0;  // after Use
  // Constants are packed on the host, whatever the device is: by whom, with code for its target. This device itself, or
  // one whose blocks are in the host's memory. It is used from now on, like this one.
  virtual Device& packer() { return *this; }
  // What one workload's arrays may take, the host's copies of them included.
  virtual int64_t memory_bytes() const = 0;
  // Other processes take of the same memory: what it lacks now, it may have a while later.
  virtual bool shares_memory() const { return false; }
  // Nothing will work on it in this process any more.
  virtual bool lost() const { return false; }
  virtual Caches caches() const = 0;

  // Memory for arrays of these bytes, which holds anything. kResourceExhausted: there is not so much.
  // For checking: a kernel that leaves it crashes, or CheckEdges finds it.
  virtual absl::StatusOr<std::unique_ptr<Block>> AllocateGuarded(std::span<const int64_t> bytes) = 0;
  // For timing: the arrays lie as those of a package do. If `behind`, which came from here too, is not null, the first
  // one begins where those of `behind` end, as far as caches can tell.
  virtual absl::StatusOr<std::unique_ptr<Block>> AllocatePacked(std::span<const int64_t> bytes,
                                                                const Block* behind) = 0;
  // Arrays that stand in for constants whose values change no time. They can not be written, and hold small numbers in
  // whichever type of floats they are read. What is allocated so may share its memory with what was before, from the
  // first array on. Here: it does not.
  virtual absl::StatusOr<std::unique_ptr<Block>> AllocateStandIns(std::span<const int64_t> bytes);
  virtual bool shares_stand_ins() const { return false; }  // whether it does
  // Of their memory, where whoever reads them next goes on: nobody finds in a cache what another just read.
  int64_t stand_ins_read = 0;
  // Gives back memory that the device keeps for what is allocated next.
  virtual void Trim() = 0;
  struct Move {
    const Block* from;
    size_t from_array;
    Block* to;
    size_t to_array;  // its bytes are copied
  };
  virtual absl::Status Copy(std::span<const Move> moves) = 0;

  // The one kernel of an artifact for the target in use. Thread-safe, Use apart.
  virtual absl::StatusOr<std::unique_ptr<Code>> Load(const Artifact& artifact) = 0;
  // Runs once, to its end. Seconds. kInternal: the kernel returned an error.
  virtual absl::StatusOr<double> Launch(const Code& code, const Arguments& arguments, void* scratch) = 0;
  // Seconds that `calls` launches take one after another. They take turns through `arguments`, from `next` on, which is
  // then whose turn is next. An error says nothing of the kernel.
  virtual absl::StatusOr<double> Time(const Code& code, std::span<const Arguments> arguments, size_t& next,
                                      void* scratch, int64_t calls) = 0;

  // Brings the array back into the shared cache.
  virtual void Fetch(const Block& block, size_t array) = 0;
  // Leaves the arrays as other kernels of a model do: each core wrote the part last that has its place in the order of
  // the cores. Their values stay. Nothing where Caches::several is not set.
  virtual void HandOver(const Block&, std::span<const size_t> /*arrays*/) {}
  // Leaves nothing in the caches that a kernel could read.
  virtual void Evict() = 0;
};

}  // namespace temper::worker
