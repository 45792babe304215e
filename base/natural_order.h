// The order in which people number things: "device-2" goes before "device-10".
#pragma once

#include <string_view>

namespace temper {

// Whether `a` goes before `b`: runs of digits count as numbers of any length, all else by its bytes. Only equal texts
// are alike.
bool NaturalLess(std::string_view a, std::string_view b);

}  // namespace temper
