// Stable hashes: the same on every platform and in every version, fit to be persisted.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace temper {

uint64_t StableHash(std::string_view bytes);  // FNV-1a, then a SplitMix64 finish
std::string HashText(uint64_t hash);          // 16 lower-case hex digits

}  // namespace temper
