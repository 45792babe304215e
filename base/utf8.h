// Text that others gave us: compilers, dying processes, strangers on the network.
#pragma once

#include <string>
#include <string_view>

namespace temper {

bool IsUtf8(std::string_view text);
// At most `most` bytes of it, cut between characters. `text` is UTF-8.
std::string_view CutUtf8(std::string_view text, size_t most);
// What is no character becomes '?', byte by byte.
std::string ToUtf8(std::string_view text);

}  // namespace temper
