// What a device says it is: a line that stays the same from start to start on the same machine.
#pragma once

#include <string>

namespace temper::worker {

// "AMD EPYC 9654; 2 threads; L1 32K L2 1M L3 32M; 84 GFLOP/s; 21 GB/s". Peak and bandwidth are of one core, measured
// once (about 50 ms) and then read from `cache_directory`, since they differ a little each time; an empty one, or one
// that can not be written, means measuring anew.
std::string Fingerprint(const std::string& cache_directory);
std::string FingerprintDirectory();  // $XDG_CACHE_HOME/temper, or ~/.cache/temper; empty if there is neither

}  // namespace temper::worker
