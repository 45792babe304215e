// manifest.json, which says what a package is: docs/package-format.md.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "base/status.h"

namespace temper {

// The manifest of the package in `dir`: an object of today's version, whose single values, where they are there, are of
// the types that the document says, and whose variants have lists. What the lists hold is not checked. kNotFound: `dir`
// is no package. kInvalidArgument: the file is damaged. kFailedPrecondition: the package is of another version.
absl::StatusOr<nlohmann::json> ReadManifest(const std::string& dir);

}  // namespace temper
