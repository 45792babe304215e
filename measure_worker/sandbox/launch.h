// The way from this process to a confined measuring child:
//
//   worker ── keeper ── measuring child ── whatever it starts
//
// The keeper is a few system calls: it leads the session, and is the first process where there is a namespace for them.
// When the child ends, when the worker does and on SIGTERM it kills all that is left, and ends after the last of them.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <array>

#include "measure_worker/sandbox/confinement.h"

namespace temper::worker {

// A measuring child reads orders from this descriptor.
inline constexpr int kChildFd = 3;

// All that is needed between fork and exec, where nothing can be allocated. Pointers are the caller's.
struct Launch {
  const Confinement* confinement = nullptr;
  char* const* command = nullptr;  // a path and its arguments; none: the child ends well as soon as it is confined
  char* const* environment = nullptr;
  char* const* libraries = nullptr;     // files that it reads beside what every program reads
  char* const* driver_files = nullptr;  // what it reads and writes beside its temporary folder
  int socket = -1, stderr_pipe = -1;
  int status_pipe = -1;               // where the keeper writes how the child ended, as waitpid tells it
  int far_socket = -1;                // the worker's end
  std::array<int, 2> groups{-1, -1};  // entrances of control groups
  const char* scratch = nullptr;
  const char* scratch_options = nullptr;  // of the file system that is mounted there
  const char *uid_map = nullptr, *gid_map = nullptr;
  uid_t uid = 0;  // with a user of its own
  rlim_t data_bytes = RLIM_INFINITY, file_bytes = RLIM_INFINITY, processes = RLIM_INFINITY;
};

// Returns the keeper's process id in the worker's namespace, or -1 with errno. What fails later is told on the pipe for
// stderr, and the child ends with kNotConfined. It dies with the thread that called this.
pid_t StartKeeper(const Launch& launch);
inline constexpr int kNotConfined = 126;

}  // namespace temper::worker
