// What null workers claim to be.
#pragma once

#include <string>

#include "compiler/target/target.h"

namespace temper::bench {

inline constexpr char kNullCodegen[] = "null-codegen", kNullKey[] = "null-device";
inline std::string NullTarget() {
  return Text(Target{.device = CpuTarget{.cpu = "x86-64-v3", .features = {"avx2", "fma"}, .vector_bits = 256}});
}

}  // namespace temper::bench
