// Figures for people.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace temper {

// In the unit that leaves digits to read: "1.234 ms", below a tenth "34.5 µs".
inline std::string TimeText(double ms) {
  return ms > 0 && ms < 0.1 ? absl::StrFormat("%.1f µs", ms * 1e3) : absl::StrFormat("%.3f ms", ms);
}

// "1 kernel", "2 kernels".
inline std::string Counted(int64_t count, const char* what) {
  return absl::StrCat(count, " ", what, count == 1 ? "" : "s");
}

}  // namespace temper
