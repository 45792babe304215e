// What this process takes of the machine.
#pragma once

#include <cstdint>

namespace temper {

struct ProcessUse {
  int64_t descriptors = 0, descriptor_limit = 0;
  int64_t resident_bytes = 0;
};
ProcessUse ReadProcessUse();

}  // namespace temper
