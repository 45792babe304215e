// Files that hold secrets, and those that lie beside them.
#pragma once

#include <string>

#include "base/status.h"

namespace temper {

enum class Secrecy { kPrivate, kPublic };   // mode 0600 from its first moment, or 0644
enum class Existing { kRefuse, kReplace };  // kRefuse: kAlreadyExists

// The file is there whole and durable, or not at all. The folder has to be there.
absl::Status WriteWholeFile(const std::string& path, const std::string& content, Secrecy secrecy, Existing existing);

// At most 64 KiB. kNotFound; kPermissionDenied if it is private and others may read it: others than its owner, or,
// where another user owns it and made it this one's by its group, others than that group.
absl::StatusOr<std::string> ReadSmallFile(const std::string& path, Secrecy secrecy);

}  // namespace temper
