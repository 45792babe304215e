// What secrets are made of and compared by. Thread-safe.
#pragma once

#include <string>
#include <string_view>

namespace temper {

std::string RandomBytes(size_t count);          // from the kernel; ends the process where the kernel has none to give
std::string RandomId();                         // 128 random bits as 32 hex digits
std::string Sha256Hex(std::string_view bytes);  // 64 lower-case hex digits
// Takes as long whatever the bytes are, so that a guess learns nothing from the time.
bool SameSecret(std::string_view a, std::string_view b);

}  // namespace temper
