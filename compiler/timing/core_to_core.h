// How far the threads' cores are from each other. It decides what activations cost that one thread writes and another
// reads, and with them the start and the end of every kernel.
#pragma once

#include "compiler/runtime/kernel_abi.h"

namespace temper {

// Seconds until the farthest of the launcher's threads sees what the caller's has written, the best of many times
// within about `seconds` in all. 0 where there is one thread. Below 1e-7 the cores share a cache; above, they mostly do
// not. A virtual machine's may move from the one to the other while it runs.
double MeasureCoreToCore(temper_launcher* launcher, double seconds);

}  // namespace temper
