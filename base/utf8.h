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

// Whether it holds a character that moves a terminal's cursor or worse (below space, DEL, U+0080 to U+009F), or that
// makes a text look like another: those that change the direction of what follows, line ends of Unicode, and what shows
// nothing at all. Those that scripts need to join or part their letters are none of them.
bool HasControls(std::string_view text);
// For one line of a terminal: control characters as above, and what is no character, become "\x1b", byte by byte.
std::string Escaped(std::string_view text);

}  // namespace temper
