// Where what outlives a process is kept that is no one's data.
#pragma once

#include <string>

namespace temper {

// $XDG_STATE_HOME/temper, or ~/.local/state/temper; empty where there is neither. It may not be there yet.
std::string StateDirectory();

}  // namespace temper
