// How much of what is bounded one caller may take.
#pragma once

#include <cstddef>
#include <string>

namespace temper {

// Whether one who has `own` of `most` may take `more`, where `all` are taken in sum: what he then has is no more than
// what he leaves to others. His first is taken wherever there is room, and so is all of who has no name.
inline bool LeavesEnough(const std::string& who, size_t own, size_t more, size_t all, size_t most) {
  if (all > most || more > most - all) return false;
  return who.empty() || own == 0 || own + more <= most - all - more;
}

}  // namespace temper
