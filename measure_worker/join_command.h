// temper-worker join: how a machine becomes one of a fleet.
#pragma once

namespace temper::worker {

int RunJoin(int argc, char** argv);  // argv[0]: "join"; returns the exit status

}  // namespace temper::worker
