// The tables of targets: who generates code, the names that a CPU may be asked for by, and the features that it can
// state. Inside this folder only.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/target/target.h"

namespace temper {

// Features in LLVM's spelling, sorted. A CPU's feature that is not here is neither stated nor used.
std::span<const std::string_view> KnownFeatures(CpuArch arch);

struct NamedCpu {
  std::string_view name;      // what the user writes
  std::string_view cpu;       // LLVM's name
  std::string_view features;  // comma-separated; with "neon": it is one of 64-bit ARM
  int64_t l1_bytes, l2_bytes, l3_bytes;
};
std::span<const NamedCpu> NamedCpus();
const NamedCpu* FindCpu(std::string_view name);
std::string CpuNames();  // "haswell, nehalem, ..." for messages

using Device = decltype(Target::device);

// "-l1=32768" of a target's text.
struct GivenOption {
  std::string_view key, value;
};
// What a generator's targets say of themselves, in the order of their text.
struct DeviceOption {
  std::string_view key;
  std::string (*get)(const Device& device);
  absl::Status (*set)(Device& device, std::string_view value);  // null: the generator's `make` has taken it
};
struct GeneratorDef {
  std::string_view name;
  std::string_view usage;  // for messages
  // The device before its options are set. `name`: what stands behind a colon, as in "llvm:haswell"; else empty.
  absl::StatusOr<Device> (*make)(std::string_view name, std::span<const GivenOption> given);
  std::span<const DeviceOption> options;
};
std::span<const GeneratorDef> Generators();  // generators.cc
const GeneratorDef* FindGenerator(std::string_view name);

// What was given, for a message: short, and without characters that are none to print.
std::string Shown(std::string_view text);
std::string Cat(std::initializer_list<std::string_view> parts);
template <typename Range>
std::string Join(const Range& words, std::string_view separator) {
  std::string out;
  for (const auto& w : words) out.append(out.empty() ? "" : separator).append(w);
  return out;
}
// The non-empty pieces between separators.
std::vector<std::string_view> Split(std::string_view text, char separator);
// Sorted and without duplicates, from "b,a".
std::vector<std::string> SplitFeatures(std::string_view list);
// vector_bits and vector_registers as the features say.
void DeriveVectors(CpuTarget& t);

}  // namespace temper
