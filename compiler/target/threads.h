// The number of threads in the text of a target.
#pragma once

#include <string>
#include <string_view>

namespace temper {

// A target's text as it is given or kept, less its -threads=N: what is left is the same for any number of them.
std::string WithoutThreads(std::string_view target);

}  // namespace temper
