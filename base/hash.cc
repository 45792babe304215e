#include "base/hash.h"

#include "absl/strings/str_format.h"
#include "base/rng.h"

namespace temper {

uint64_t StableHash(std::string_view bytes) {
  uint64_t h = 0xcbf29ce484222325ull;
  for (unsigned char c : bytes) h = (h ^ c) * 0x100000001b3ull;
  return Rng(h).Next();
}

std::string HashText(uint64_t hash) { return absl::StrFormat("%016x", hash); }

}  // namespace temper
