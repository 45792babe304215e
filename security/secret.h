// How secrets are kept and compared. Thread-safe.
#pragma once

#include <string>
#include <string_view>

namespace temper {

std::string Sha256Hex(std::string_view bytes);  // 64 lower-case hex digits
// Takes as long whatever the bytes are, so that a guess learns nothing from the time.
bool SameSecret(std::string_view a, std::string_view b);

}  // namespace temper
