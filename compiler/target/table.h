// The names that a target may be asked for by, and the features that a target can state. Inside this folder only.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/target/target.h"

namespace temper {

// Features in LLVM's spelling, sorted. A CPU's feature that is not here is neither stated nor used.
std::span<const std::string_view> KnownFeatures();

struct NamedCpu {
  std::string_view name;      // what the user writes
  std::string_view cpu;       // LLVM's name
  std::string_view features;  // comma-separated
  int64_t l1_bytes, l2_bytes, l3_bytes;
};
std::span<const NamedCpu> NamedCpus();
const NamedCpu* FindCpu(std::string_view name);
std::string CpuNames();  // "haswell, nehalem, ..." for messages

// The non-empty pieces between separators.
std::vector<std::string_view> Split(std::string_view text, char separator);
// Sorted and without duplicates, from "b,a".
std::vector<std::string> SplitFeatures(std::string_view list);
// vector_bits and vector_registers as the features say.
void DeriveVectors(Target& t);

}  // namespace temper
