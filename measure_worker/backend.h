// A kind of device, as one line of a table: how it is named, described and locked in the worker, and what measures on
// it in the child.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "measure_worker/device.h"
#include "trial/trial.h"

namespace temper::worker {

// --- in the measuring child ---

// One candidate, built. It may crash, hang or lie.
class Program {
 public:
  virtual ~Program() = default;
  // Runs once on poisoned outputs and scratch and compares with the reference: the seconds that the run took, where
  // caches hold less of its data than where it is timed. kDataLoss: the answer is wrong, and how. kResourceExhausted:
  // the device lacks memory for it now; it may be tried again.
  virtual absl::StatusOr<double> Verify() = 0;
  // Seconds that `calls` calls take one after another under the cache policy. Only after Verify.
  virtual double Time(int64_t calls) = 0;
  // That timing left the inputs alone and the latest outputs right. kDataLoss as above; other errors are those of
  // timing, whose seconds then say nothing.
  virtual absl::Status CheckAfterwards() = 0;
};

enum class Phase : uint8_t { kPrepare, kBuild, kVerify, kTime, kModelBuild, kModelRun };

// Where candidates are measured one by one.
class KernelBench {
 public:
  virtual ~KernelBench() = default;
  // Makes ready for candidates of one workload: inputs, reference result. Not thread-safe. kResourceExhausted: the
  // workload does not fit this device.
  virtual absl::Status Prepare(const BatchWork& work) = 0;
  // A candidate of the workload prepared last. Thread-safe. kInvalidArgument: the template refuses the config, or the
  // kernel's scratch does not fit the device. kResourceExhausted: the device lacks memory for its code now.
  virtual absl::StatusOr<std::unique_ptr<Program>> Build(const Candidate& candidate) = 0;
  // Seconds that a small kernel takes, the same one each time, after Prepare. An error: the device is not to be
  // trusted.
  virtual absl::StatusOr<double> TimeCanary() = 0;
  // How many candidates may be built at once while nothing is measured.
  virtual int build_threads() const = 0;
  // Gives back what only spares work, of other workloads and of this one: memory is short.
  virtual void MakeRoom() {}
  // Gives back the memory of what was prepared: a model needs it.
  virtual void Forget() = 0;
  // Nothing can be measured in this process any more, and what failed since then is nobody's fault.
  virtual bool lost() const { return false; }
};

// Where whole models are measured.
class ModelBench {
 public:
  using BeginFn = std::function<void(Phase)>;  // is told when a phase begins

  virtual ~ModelBench() = default;
  // What each finalist takes in the model: a result for each of `work.Candidates()`.
  virtual std::vector<TrialResult> MeasureFinals(const FinalsWork& work, const BeginFn& begin) = 0;
  // The whole model, untuned and tuned.
  virtual ModelResult CheckModel(const ModelWork& work, const BeginFn& begin) = 0;
  // Gives back the memory of what was kept of the latest model: candidates need it.
  virtual void Forget() = 0;
};

// Runs on the CPUs of the process's affinity mask.
struct Backend {
  std::unique_ptr<KernelBench> kernels;
  std::unique_ptr<ModelBench> models;  // may use `kernels`, so it goes first
};

// --- in the worker ---

// What --device says: "cpu", "cpu:0-3,8", "null".
struct DeviceSpec {
  std::string backend = "cpu";
  std::string which;       // what follows the colon, if anything does
  std::vector<int> cores;  // that the child runs on: sorted, distinct; empty: those of the affinity mask
};
std::string Text(const DeviceSpec& spec);

// What a device tells the server when it registers.
struct DeviceReport {
  std::string fingerprint;  // a line that stays the same from start to start on the same device
  std::string target;       // canonical text: what is generated for it
  std::string codegen_id;
  int threads = 1;
  int slots = 2;  // leases that it may hold: one in reserve keeps it busy
};

// Held while measuring, by one worker of the machine at a time.
class DeviceLock {
 public:
  virtual ~DeviceLock() = default;
  // Blocks until held (true), or until `give_up` says so (false).
  virtual bool Acquire(const std::function<bool()>& give_up) = 0;
  virtual void Release() = 0;
};

struct BackendDef {
  std::string_view name;  // what --device begins with
  // Takes what follows "NAME:", where it is given. kInvalidArgument says what is wrong with which part.
  absl::Status (*select)(std::string_view which, DeviceSpec& spec);
  // Is called on a thread that is bound to `spec.cores`. `target` is what the user wishes to generate code for, or
  // "host". An error, in one line: there is no such device or target, or the target does not run on the device.
  absl::StatusOr<DeviceReport> (*describe)(const DeviceSpec& spec, std::string_view target);
  // `spec.cores` are those that the child has. Keeps out whoever wants the same device, in other processes too.
  std::unique_ptr<DeviceLock> (*lock)(const DeviceSpec& spec);
  // One of the next two. The device: kernels and models are measured on it as on any other.
  absl::StatusOr<std::unique_ptr<Device>> (*open)(const DeviceSpec& spec) = nullptr;
  // A stand-in that builds and runs nothing: the times that it tells do not pass.
  Backend (*simulate)() = nullptr;
  // Its clocks and its temperature now, a line for the log; empty: not known. Null: it tells none.
  std::string (*watch)(const DeviceSpec& spec) = nullptr;
  // Files that its driver writes, after a device was described. Null: it has no driver.
  std::vector<std::string> (*driver_files)() = nullptr;

  bool simulated() const { return simulate != nullptr; }
};
std::span<const BackendDef> AllBackends();  // registry.cc
const BackendDef* FindBackend(std::string_view name);
// Errors say what is wrong with which part.
absl::StatusOr<DeviceSpec> ParseDeviceSpec(std::string_view text);
// What a child measures with. Errors are those of opening the device.
absl::StatusOr<Backend> MakeBackend(const DeviceSpec& spec);

}  // namespace temper::worker
