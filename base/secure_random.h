// Numbers that nobody can guess, for names that are rights: leases, sessions, tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace temper {

uint64_t SecureRandom();                // from the kernel; does not fail
std::string SecureBytes(size_t count);  // so many of the same kind
std::string SecureHex();                // 128 bits, 32 digits

}  // namespace temper
