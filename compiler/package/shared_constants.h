// Graphs of one model for several shapes have mostly the same constants, each in memory of its own.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "compiler/graph/graph.h"

namespace temper {

// Gives equal constants of several graphs the memory of the first of them. Not thread-safe.
class SharedConstants {
 public:
  void Share(Graph& g);

 private:
  std::map<uint64_t, std::vector<NDArray>> known_;  // by the hash of their bytes
};

}  // namespace temper
