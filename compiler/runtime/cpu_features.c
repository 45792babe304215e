/* Which instructions this CPU, and the system on it, can run. */
#include <string.h>

#include "compiler/runtime/plan.h"

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { EAX, EBX, ECX, EDX };
enum { STATE_NONE = 0, STATE_AVX = 0x6, STATE_AVX512 = 0xe6, STATE_AMX = 0x60000 }; /* bits of XCR0 */

typedef struct feature {
  const char* name;
  uint32_t leaf, subleaf;
  int reg, bit;
  uint32_t state; /* registers the system must save */
} feature;

static const feature kFeatures[] = {
    {"sse3", 1, 0, ECX, 0, STATE_NONE},
    {"pclmul", 1, 0, ECX, 1, STATE_NONE},
    {"ssse3", 1, 0, ECX, 9, STATE_NONE},
    {"fma", 1, 0, ECX, 12, STATE_AVX},
    {"cx16", 1, 0, ECX, 13, STATE_NONE},
    {"sse4.1", 1, 0, ECX, 19, STATE_NONE},
    {"sse4.2", 1, 0, ECX, 20, STATE_NONE},
    {"movbe", 1, 0, ECX, 22, STATE_NONE},
    {"popcnt", 1, 0, ECX, 23, STATE_NONE},
    {"aes", 1, 0, ECX, 25, STATE_NONE},
    {"xsave", 1, 0, ECX, 26, STATE_NONE},
    {"avx", 1, 0, ECX, 28, STATE_AVX},
    {"f16c", 1, 0, ECX, 29, STATE_AVX},
    {"sse", 1, 0, EDX, 25, STATE_NONE},
    {"sse2", 1, 0, EDX, 26, STATE_NONE},
    {"bmi", 7, 0, EBX, 3, STATE_NONE},
    {"avx2", 7, 0, EBX, 5, STATE_AVX},
    {"bmi2", 7, 0, EBX, 8, STATE_NONE},
    {"avx512f", 7, 0, EBX, 16, STATE_AVX512},
    {"avx512dq", 7, 0, EBX, 17, STATE_AVX512},
    {"adx", 7, 0, EBX, 19, STATE_NONE},
    {"avx512ifma", 7, 0, EBX, 21, STATE_AVX512},
    {"avx512cd", 7, 0, EBX, 28, STATE_AVX512},
    {"sha", 7, 0, EBX, 29, STATE_NONE},
    {"avx512bw", 7, 0, EBX, 30, STATE_AVX512},
    {"avx512vl", 7, 0, EBX, 31, STATE_AVX512},
    {"avx512vbmi", 7, 0, ECX, 1, STATE_AVX512},
    {"avx512vbmi2", 7, 0, ECX, 6, STATE_AVX512},
    {"gfni", 7, 0, ECX, 8, STATE_NONE},
    {"vaes", 7, 0, ECX, 9, STATE_AVX},
    {"vpclmulqdq", 7, 0, ECX, 10, STATE_AVX},
    {"avx512vnni", 7, 0, ECX, 11, STATE_AVX512},
    {"avx512bitalg", 7, 0, ECX, 12, STATE_AVX512},
    {"avx512vpopcntdq", 7, 0, ECX, 14, STATE_AVX512},
    {"avx512vp2intersect", 7, 0, EDX, 8, STATE_AVX512},
    {"amx-bf16", 7, 0, EDX, 22, STATE_AMX},
    {"avx512fp16", 7, 0, EDX, 23, STATE_AVX512},
    {"amx-tile", 7, 0, EDX, 24, STATE_AMX},
    {"amx-int8", 7, 0, EDX, 25, STATE_AMX},
    {"avxvnni", 7, 1, EAX, 4, STATE_AVX},
    {"avx512bf16", 7, 1, EAX, 5, STATE_AVX512},
    {"lzcnt", 0x80000001u, 0, ECX, 5, STATE_NONE},
};

static uint32_t saved_state(void) {
  uint32_t r[4];
  if (!__get_cpuid_count(1, 0, &r[EAX], &r[EBX], &r[ECX], &r[EDX]) || !(r[ECX] >> 27 & 1)) return 0;
  uint32_t low, high;
  __asm__ __volatile__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

/* Linux lets a process use the tiles' registers once it has asked for them. */
static int may_use_tiles(void) {
  enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };
  return syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}

static int has_feature(const char* name) {
  for (size_t i = 0; i < sizeof kFeatures / sizeof kFeatures[0]; ++i) {
    const feature* f = &kFeatures[i];
    if (strcmp(f->name, name) != 0) continue;
    uint32_t r[4];
    return __get_cpuid_count(f->leaf, f->subleaf, &r[EAX], &r[EBX], &r[ECX], &r[EDX]) && (r[f->reg] >> f->bit & 1) &&
           (saved_state() & f->state) == f->state && (f->state != STATE_AMX || may_use_tiles());
  }
  return 0;
}
#elif defined(__aarch64__)
#include <sys/auxv.h>

/* What Linux says of the CPU, by bits of two words; those of a feature, all of which must be set. */
typedef struct feature {
  const char* name;
  unsigned long first, second;
} feature;

static const feature kFeatures[] = {
    {"neon", 1ul << 1, 0},  {"fullfp16", 1ul << 9 | 1ul << 10, 0}, {"dotprod", 1ul << 20, 0}, {"i8mm", 0, 1ul << 13},
    {"bf16", 0, 1ul << 14},
};

static int has_feature(const char* name) {
  const unsigned long first = getauxval(AT_HWCAP), second = getauxval(AT_HWCAP2);
  for (size_t i = 0; i < sizeof kFeatures / sizeof kFeatures[0]; ++i) {
    const feature* f = &kFeatures[i];
    if (strcmp(f->name, name) == 0) return (first & f->first) == f->first && (second & f->second) == f->second;
  }
  return 0;
}
#else
static int has_feature(const char* name) { return 0; }
#endif

int temper_cpu_lacks(const char* const* features, int64_t count, char* missing, size_t size) {
  int lacks = 0;
  size_t used = 0;
  missing[0] = '\0';
  for (int64_t i = 0; i < count; ++i) {
    if (has_feature(features[i])) continue;
    const size_t length = strlen(features[i]);
    if (used + length + 2 <= size) {
      if (lacks) missing[used++] = ' ';
      memcpy(missing + used, features[i], length + 1);
      used += length;
    }
    lacks = 1;
  }
  return lacks;
}
