// What the programs have in common before they begin.
#pragma once

#include <csignal>
#include <string>

namespace temper {

// What is wrong with a command line and its environment, whatever the options mean; empty: nothing. A value that is
// empty is a variable of a script's that was not set: `--lock "$lock"` must not become a command without a lock, nor
// `--dir "$dir"` a server that knows nobody. And what is no UTF-8 no call could carry.
std::string WrongCommandLine(int argc, char** argv);

// Those that end a program in order: SIGTERM, SIGINT, and SIGHUP where nohup does not keep it away.
sigset_t EndSignals();

}  // namespace temper
