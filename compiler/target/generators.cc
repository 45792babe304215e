// Who generates code, and what a target of each says of itself.
#include <algorithm>
#include <cctype>
#include <charconv>

#include "compiler/target/table.h"

namespace temper {
namespace {

constexpr int64_t kMostBytes = int64_t{1} << 40;
constexpr int64_t kMostSharedBytes = int64_t{1} << 30;
constexpr int64_t kMostGroupThreads = 1024;  // ir::kMaxGroupThreads
constexpr int64_t kMostWarp = 128;
constexpr int64_t kMostUnits = 1 << 16;
constexpr int64_t kMostThreads = 4096;

// --- options ---

template <typename D, typename T>
D DeviceOf(T D::*);

template <auto kField>
std::string GetNumber(const Device& device) {
  const auto* d = std::get_if<decltype(DeviceOf(kField))>(&device);
  return d == nullptr ? "" : std::to_string(d->*kField);
}

template <auto kField, int64_t kLeast, int64_t kMost>
absl::Status SetNumber(Device& device, std::string_view value) {
  int64_t n = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), n);
  if (error != std::errc() || end != value.data() + value.size() || n < kLeast || n > kMost) {
    return absl::InvalidArgumentError(
        Cat({"expected a number from ", std::to_string(kLeast), " to ", std::to_string(kMost)}));
  }
  auto& field = std::get_if<decltype(DeviceOf(kField))>(&device)->*kField;
  field = static_cast<std::remove_reference_t<decltype(field)>>(n);
  return absl::OkStatus();
}

template <auto kField, int64_t kLeast, int64_t kMost>
constexpr DeviceOption Number(std::string_view key) {
  return {key, GetNumber<kField>, SetNumber<kField, kLeast, kMost>};
}

std::string GetCpu(const Device& device) {
  const auto* t = std::get_if<CpuTarget>(&device);
  return t == nullptr ? "" : t->cpu;
}

std::string GetFeatures(const Device& device) {
  const auto* t = std::get_if<CpuTarget>(&device);
  return t == nullptr ? "" : Join(t->features, ",");
}

absl::Status SetFeatures(Device& device, std::string_view list) {
  CpuTarget& t = *std::get_if<CpuTarget>(&device);
  const CpuArch arch = t.arch();
  const std::span<const std::string_view> known = KnownFeatures(arch);
  t.features = SplitFeatures(Cat({list, arch == CpuArch::kArm ? ",neon" : ""}));
  for (const std::string& f : t.features) {
    if (!std::ranges::binary_search(known, f)) {
      return absl::InvalidArgumentError(
          Cat({"unknown feature '", Shown(f), "'; known of ", Name(arch), ": ", Join(known, ", ")}));
    }
  }
  DeriveVectors(t);
  return absl::OkStatus();
}

std::string GetArch(const Device& device) {
  const auto* t = std::get_if<GpuTarget>(&device);
  return t == nullptr ? "" : t->arch;
}

constexpr auto kL1 = Number<&CpuTarget::l1_bytes, 1, kMostBytes>("l1");
constexpr auto kL2 = Number<&CpuTarget::l2_bytes, 1, kMostBytes>("l2");
constexpr auto kL3 = Number<&CpuTarget::l3_bytes, 0, kMostBytes>("l3");
constexpr auto kThreads = Number<&CpuTarget::threads, 1, kMostThreads>("threads");
constexpr auto kLocal = Number<&GpuTarget::shared_bytes, 1, kMostSharedBytes>("local");
constexpr auto kGroup = Number<&GpuTarget::group_threads, 1, kMostGroupThreads>("wg");
constexpr auto kWarp = Number<&GpuTarget::warp_width, 1, kMostWarp>("warp");
constexpr auto kUnits = Number<&GpuTarget::compute_units, 1, kMostUnits>("units");

constexpr DeviceOption kLlvmOptions[] = {
    {"mcpu", GetCpu, nullptr}, {"mattr", GetFeatures, SetFeatures}, kL1, kL2, kL3, kThreads};
constexpr DeviceOption kInterpreterOptions[] = {kL1, kL2, kL3, kThreads};
constexpr DeviceOption kOpenclOptions[] = {kLocal, kGroup, kWarp, kUnits};
constexpr DeviceOption kCudaOptions[] = {{"arch", GetArch, nullptr}, kLocal, kGroup, kWarp, kUnits};

// --- devices ---

const GivenOption* Find(std::span<const GivenOption> given, std::string_view key) {
  const auto found = std::ranges::find(given, key, &GivenOption::key);
  return found == given.end() ? nullptr : &*found;
}

absl::Status UnknownCpu(std::string_view name) {
  return absl::InvalidArgumentError(Cat({"unknown CPU '", Shown(name), "'; known: ", CpuNames()}));
}

bool IsPlain(std::string_view name) {
  return !name.empty() &&
         std::ranges::all_of(name, [](unsigned char c) { return std::isalnum(c) || c == '-' || c == '_' || c == '.'; });
}

absl::StatusOr<Device> MakeLlvm(std::string_view name, std::span<const GivenOption> given) {
  const GivenOption* mcpu = Find(given, "mcpu");
  if (name.empty() && mcpu == nullptr) return HostTarget().device;
  const std::string_view cpu = name.empty() ? mcpu->value : name;
  const NamedCpu* known = FindCpu(cpu);
  if (known == nullptr) {
    // Of a CPU that is not in the table its own text says all.
    const GivenOption* features = Find(given, "mattr");
    if (!name.empty() || features == nullptr || !IsPlain(cpu)) return UnknownCpu(cpu);
    CpuTarget t{.cpu = std::string(cpu)};
    if (std::ranges::binary_search(SplitFeatures(features->value), "neon")) t.features = {"neon"};
    return t;
  }
  CpuTarget t{.cpu = std::string(known->cpu), .features = SplitFeatures(known->features)};
  t.l1_bytes = known->l1_bytes;
  t.l2_bytes = known->l2_bytes;
  t.l3_bytes = known->l3_bytes;
  DeriveVectors(t);
  return t;
}

absl::Status NoName(std::string_view generator, std::string_view name) {
  if (name.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(Cat({"target '", generator, "' takes no name, but has '", Shown(name), "'"}));
}

absl::StatusOr<Device> MakeInterpreter(std::string_view name, std::span<const GivenOption>) {
  TEMPER_RETURN_IF_ERROR(NoName("interpreter", name));
  return CpuTarget{.l1_bytes = 16 << 10, .l2_bytes = 128 << 10};
}

absl::StatusOr<Device> MakeOpencl(std::string_view name, std::span<const GivenOption>) {
  TEMPER_RETURN_IF_ERROR(NoName("opencl", name));
  return GpuTarget{};
}

// NVIDIA's architectures: the shared memory that a group may ask for there, and what a unit has for all of its groups
// (CUDA C++ Programming Guide, "Compute Capabilities"; its multiply-adds: "Arithmetic Instructions"). All have groups
// of 1024 threads, 64 Ki registers for them and 255 for a thread. The units, memory and the cache in front of it are
// those of the architecture's usual part, by NVIDIA's data sheets: bandwidth over units and clock; so are the tensor
// cores' multiply-adds of f16 with sums in f32 (GeForce boards make half as many). sm_90 makes 2048 by an instruction
// of teams of warps, which code for sm_90a alone may have, and about five eighths of them by that of warps; what later
// ones with instructions that are not used here make by it is not published. 0: none are used; asynchronous copies and
// instructions for f16 and bf16 begin with sm_80.
struct CudaArch {
  std::string_view name;
  int units;
  int64_t shared_kib;
  int unit_threads, unit_groups;
  int64_t unit_shared_kib;
  int unit_fmas;
  int unit_tensor_fmas;
  double memory_bytes;
  int64_t l2_kib;
  int bank_bytes = 128;
  int team_fmas = 0;
};
constexpr CudaArch kCudaArchs[] = {
    {"sm_50", 5, 48, 2048, 32, 64, 128, 0, 16, 2048},
    {"sm_52", 16, 48, 2048, 32, 96, 128, 0, 12, 2048},
    {"sm_53", 2, 48, 2048, 32, 64, 128, 0, 13, 256},
    {"sm_60", 56, 48, 2048, 32, 64, 64, 0, 10, 4096},
    {"sm_61", 28, 48, 2048, 32, 96, 128, 0, 10, 2048},
    {"sm_62", 2, 48, 2048, 32, 64, 128, 0, 23, 512},
    {"sm_70", 80, 96, 2048, 32, 96, 64, 0, 8, 6144},
    {"sm_72", 8, 96, 2048, 32, 96, 64, 0, 12, 512},
    {"sm_75", 68, 64, 1024, 16, 64, 64, 0, 5.5, 5120, 64},
    {"sm_80", 108, 163, 2048, 32, 164, 64, 1024, 11, 40960},
    {"sm_86", 82, 99, 1536, 16, 100, 128, 512, 6, 6144},
    {"sm_87", 16, 163, 1536, 16, 164, 128, 1024, 10, 4096},
    {"sm_88", 16, 163, 1536, 16, 164, 128, 1024, 10, 4096},
    {"sm_89", 128, 99, 1536, 24, 100, 128, 512, 3, 49152},
    {"sm_90", 132, 227, 2048, 32, 228, 128, 1280, 13, 51200, 128, 2048},
    {"sm_100", 148, 227, 2048, 32, 228, 128, 1280, 28, 129024},
    {"sm_103", 148, 227, 2048, 32, 228, 128, 1280, 28, 129024},
    {"sm_110", 20, 227, 1536, 24, 228, 128, 1280, 9, 32768},
    {"sm_120", 170, 99, 1536, 24, 100, 128, 512, 4.5, 98304},
    {"sm_121", 48, 99, 1536, 24, 100, 128, 512, 2.5, 24576},
};

// Those with code that runs on them alone ("a"), or on their family ("f").
constexpr int kFirstWithA = 90, kFirstWithF = 100;

int NumberOf(const CudaArch& arch) {
  int number = 0;
  std::from_chars(arch.name.data() + 3, arch.name.data() + arch.name.size(), number);
  return number;
}

// Of "sm_90", and of "sm_90a". Null: there is none.
const CudaArch* FindCudaArch(std::string_view name) {
  const char suffix = name.empty() ? '\0' : name.back();
  const bool variant = suffix == 'a' || suffix == 'f';
  if (variant) name.remove_suffix(1);
  const auto* found = std::ranges::find(kCudaArchs, name, &CudaArch::name);
  if (found == std::end(kCudaArchs)) return nullptr;
  return variant && NumberOf(*found) < (suffix == 'a' ? kFirstWithA : kFirstWithF) ? nullptr : found;
}

absl::StatusOr<Device> MakeCuda(std::string_view name, std::span<const GivenOption> given) {
  const GivenOption* option = Find(given, "arch");
  const std::string_view arch = !name.empty() ? name : option != nullptr ? option->value : "";
  const CudaArch* known = FindCudaArch(arch);
  if (known == nullptr) {
    std::vector<std::string_view> names;
    for (const CudaArch& a : kCudaArchs) names.push_back(a.name);
    return absl::InvalidArgumentError(Cat({"target 'cuda' needs an architecture such as cuda:sm_90, not '", Shown(arch),
                                           "'; known: ", Join(names, ", ")}));
  }
  return GpuTarget{.arch = std::string(arch),
                   .shared_bytes = known->shared_kib << 10,
                   .group_threads = 1024,
                   .warp_width = 32,
                   .compute_units = known->units,
                   .unit_threads = known->unit_threads,
                   .unit_groups = known->unit_groups,
                   .unit_shared_bytes = known->unit_shared_kib << 10,
                   .unit_fmas = known->unit_fmas,
                   .unit_tensor_fmas = known->unit_tensor_fmas,
                   .unit_team_fmas = known->team_fmas,
                   .unit_bank_bytes = known->bank_bytes,
                   .unit_memory_bytes = known->memory_bytes,
                   .l2_bytes = known->l2_kib << 10,
                   .shuffles = true,
                   .tensor_cores = known->unit_tensor_fmas > 0};
}

constexpr GeneratorDef kGenerators[] = {
    {"llvm", "'llvm:NAME' or 'llvm -mcpu=... -mattr=...'", MakeLlvm, kLlvmOptions},
    {"interpreter", "'interpreter'", MakeInterpreter, kInterpreterOptions},
    {"opencl", "'opencl'", MakeOpencl, kOpenclOptions},
    {"cuda", "'cuda:sm_90'", MakeCuda, kCudaOptions},
};

}  // namespace

std::span<const GeneratorDef> Generators() { return kGenerators; }

const GeneratorDef* FindGenerator(std::string_view name) {
  const auto found = std::ranges::find(kGenerators, name, &GeneratorDef::name);
  return found == std::end(kGenerators) ? nullptr : found;
}

}  // namespace temper
