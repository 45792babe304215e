#include <string.h>

#include "compiler/runtime/plan.h"

static uint64_t mixed(uint64_t lane, const char* p) {
  uint64_t word;
  memcpy(&word, p, sizeof word);
  lane = (lane ^ word) * 0x9fb21c651e98df25u;
  return lane ^ lane >> 32;
}

/* Four lanes by name: in an array they would go through memory. */
uint64_t temper_weights_hash_chunk(const void* chunk, size_t bytes) {
  enum { BLOCK = 4 * sizeof(uint64_t) };
  uint64_t a = 0x9e3779b97f4a7c15u, b = 0xbf58476d1ce4e5b9u, c = 0x94d049bb133111ebu, d = 0xd6e8feb86659fd93u;
  uint64_t hash = bytes;
  const char* p = chunk;
  for (; bytes >= BLOCK; bytes -= BLOCK, p += BLOCK) {
    a = mixed(a, p);
    b = mixed(b, p + 8);
    c = mixed(c, p + 16);
    d = mixed(d, p + 24);
  }
  const uint64_t lanes[] = {a, b, c, d};
  for (int i = 0; i < 4; ++i) hash = (hash ^ lanes[i]) * 0x9fb21c651e98df25u, hash ^= hash >> 29;
  for (; bytes > 0; --bytes, ++p) hash = (hash ^ (unsigned char)*p) * 0x100000001b3u;
  return hash ^ hash >> 32;
}

uint64_t temper_weights_hash_join(uint64_t before, uint64_t chunk) {
  const uint64_t hash = (before ^ chunk) * 0x9fb21c651e98df25u;
  return hash ^ hash >> 32;
}

uint64_t temper_weights_hash(const void* data, size_t bytes) {
  uint64_t hash = 0;
  for (size_t at = 0; at < bytes; at += TEMPER_HASH_CHUNK) {
    const size_t chunk = bytes - at < TEMPER_HASH_CHUNK ? bytes - at : TEMPER_HASH_CHUNK;
    hash = temper_weights_hash_join(hash, temper_weights_hash_chunk((const char*)data + at, chunk));
  }
  return hash;
}
