// Images of few channels, such as a network's input.
#pragma once

#include <cstdint>

namespace temper {

// An image of at most so many channels is read as it lies, a plane a channel: it is not worth another layout.
inline constexpr int64_t kFewChannels = 4;

}  // namespace temper
