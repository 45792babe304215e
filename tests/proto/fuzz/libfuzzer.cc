// libFuzzer's way in, for the target that the build names.
#include <cstddef>
#include <cstdint>

#include "tests/proto/fuzz/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  temper::fuzz::TEMPER_FUZZ_TARGET({reinterpret_cast<const char*>(data), size});
  return 0;
}
