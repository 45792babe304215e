// Copies of a whole database, in one file.
#pragma once

#include <string>

#include "storage/sqlite/connection.h"

namespace temper {

// Writes what `source` sees into `to`, which is there whole or not at all, whenever the process or the machine dies; a
// file that is there is replaced. kUnavailable: another process is writing the same copy.
absl::Status CopyDatabase(Connection& source, const std::string& to);

}  // namespace temper
