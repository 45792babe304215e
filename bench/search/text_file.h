#pragma once

#include <string>

#include "base/status.h"

namespace temper {

// A file's text, compressed by gzip or not. kNotFound: it can not be read. kInvalidArgument: it is damaged.
absl::StatusOr<std::string> ReadTextFile(const std::string& path);

}  // namespace temper
