// temper-server init and renew: what looks after a server's directory before and beside the server itself.
#pragma once

namespace temper {

// Runs the command that argv[1] names, and tells its exit status in `*exit`; false: it names none.
bool RunDirectoryCommand(int argc, char** argv, int* exit);

}  // namespace temper
