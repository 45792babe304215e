/* The one line that tells why a call failed. Plain C: it is compiled into every package. */
#pragma once

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "compiler/runtime/plan.h"

enum { TEMPER_ERROR_BYTES = 512 }; /* of each line */

/* Writes the line; returns `code`. */
static inline int temper_fail(char* line, int code, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(line, TEMPER_ERROR_BYTES, format, arguments);
  va_end(arguments);
  return code;
}

/* Of what a plan's device was asked in vain: what the device says of it stands behind the line. Returns `code`. */
static inline int temper_device_failed(const temper_plan* plan, char* line, int code) {
  const char* why = (*plan->device)->error();
  const size_t used = strlen(line);
  if (*why) snprintf(line + used, TEMPER_ERROR_BYTES - used, ": %s", why);
  return code;
}
