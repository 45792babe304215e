// What failures have in common.
#pragma once

#include <string>
#include <string_view>

namespace temper {

// The error's first line with text, its numbers and addresses written as N: what differs only in these is one cause.
std::string CauseOf(std::string_view error);

}  // namespace temper
