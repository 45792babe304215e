// What a caller has to know of a device's code: its kernels, what they take, how each is launched.
#pragma once

#include <algorithm>
#include <string_view>

#include "compiler/driver/session.h"

namespace temper::driver {

struct Kernel {
  struct Launch {
    std::string function;
    std::array<size_t, 3> groups, threads;
    int64_t shared_bytes = 0;  // as LaunchShape has it
  };
  std::vector<int64_t> parameter_bytes;
  int64_t workspace_bytes = 0;  // of the functions' last argument; 0: they have none
  std::vector<Launch> launches;

  // What is read from a file may not be.
  bool possible() const {
    return workspace_bytes >= 0 && !launches.empty() &&
           std::ranges::all_of(parameter_bytes, [](int64_t bytes) { return bytes >= 0; });
  }
};

struct Program {
  Code code;
  std::vector<std::pair<std::string, Kernel>> kernels;  // by symbol

  const Kernel* Find(std::string_view symbol) const;  // null: there is none
};

// A kernel that can be launched.
struct Loaded {
  Kernel kernel;
  std::vector<Function> functions;  // one for each launch

  static absl::StatusOr<Loaded> Make(Session& session, const Code& code, Kernel kernel);
  // `arguments`: the parameters', then the workspace's where there is one.
  LaunchCall Call(int64_t launch, std::span<void* const> arguments) const;
};

}  // namespace temper::driver
