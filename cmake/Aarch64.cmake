# Who compiles C for 64-bit ARM on a machine of x86-64: packages for it have a runtime in C. TEMPER_AARCH64_CC is a
# command that also links, and its options. Empty: there is nobody, and `temper compile` refuses such targets.
set(TEMPER_AARCH64_ROOT /usr/aarch64-linux-gnu)  # of Debian's libc6-dev-arm64-cross
find_program(TEMPER_CLANG NAMES clang-19 clang HINTS /usr/lib/llvm-19/bin)
find_program(TEMPER_AARCH64_GCC aarch64-linux-gnu-gcc)

set(TEMPER_AARCH64_CC "")
set(TEMPER_AARCH64_TRIED ${CMAKE_BINARY_DIR}/CMakeFiles/aarch64)
file(WRITE ${TEMPER_AARCH64_TRIED}.c "#include <pthread.h>\n#include <sys/auxv.h>\n#include <sys/syscall.h>\n")
foreach(candidate "${TEMPER_CLANG};--target=aarch64-linux-gnu;-isystem;${TEMPER_AARCH64_ROOT}/include;-fuse-ld=lld"
                  "${TEMPER_AARCH64_GCC}")
  list(GET candidate 0 program)
  if(program AND NOT TEMPER_AARCH64_CC AND CMAKE_SYSTEM_PROCESSOR STREQUAL x86_64)
    execute_process(
      COMMAND ${candidate} -mno-outline-atomics -r -nostdlib ${TEMPER_AARCH64_TRIED}.c -o ${TEMPER_AARCH64_TRIED}.o
      RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
    if(NOT failed)
      set(TEMPER_AARCH64_CC ${candidate})
    endif()
  endif()
endforeach()
if(NOT TEMPER_AARCH64_CC AND CMAKE_SYSTEM_PROCESSOR STREQUAL x86_64)
  message(STATUS "No compiler and C library's headers for aarch64: this build makes no packages for it")
endif()
