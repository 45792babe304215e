#include "compiler/package/embedded.h"

// The assembler includes the files as they are; the paths come from CMakeLists.txt.
#define TEMPER_EMBED(name, path)                                                                 \
  __asm__(".section .rodata\n.globl " #name "\n.globl " #name                                    \
          "_end\n"                                                                               \
          ".balign 64\n" #name ":\n.incbin \"" path "\"\n" #name "_end:\n.byte 0\n.previous\n"); \
  extern "C" const char name[];                                                                  \
  extern "C" const char name##_end[];

TEMPER_EMBED(temper_embedded_runtime, TEMPER_RUNTIME_OBJECT_PATH)
#ifdef TEMPER_AARCH64_RUNTIME_OBJECT_PATH
TEMPER_EMBED(temper_embedded_aarch64_runtime, TEMPER_AARCH64_RUNTIME_OBJECT_PATH)
#endif
TEMPER_EMBED(temper_embedded_header, TEMPER_MODEL_HEADER_PATH)

namespace temper {

std::string_view RuntimeObject(CpuArch arch) {
  if (arch == HostArch())
    return {temper_embedded_runtime, static_cast<size_t>(temper_embedded_runtime_end - temper_embedded_runtime)};
#ifdef TEMPER_AARCH64_RUNTIME_OBJECT_PATH
  if (arch == CpuArch::kArm) {
    return {temper_embedded_aarch64_runtime,
            static_cast<size_t>(temper_embedded_aarch64_runtime_end - temper_embedded_aarch64_runtime)};
  }
#endif
  return {};
}
std::string_view ModelHeader() {
  return {temper_embedded_header, static_cast<size_t>(temper_embedded_header_end - temper_embedded_header)};
}

}  // namespace temper
