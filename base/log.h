// Logging goes to stderr through spdlog. Programs call SetUpLogging once; libraries just use spdlog::info and friends.
#pragma once

#include <spdlog/spdlog.h>

namespace temper {

// Level from TEMPER_LOG (trace, debug, info, warn, error, off) if set, else info under `verbose`, else warn.
void SetUpLogging(bool verbose);

}  // namespace temper
