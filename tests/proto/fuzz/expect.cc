#include <cstdio>
#include <cstdlib>

#include "tests/proto/fuzz/targets.h"

namespace temper::fuzz {

void Expect(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::abort();
}

}  // namespace temper::fuzz
