// The simple store: lists, searched from end to end, gone with the process. Tests use it, and compare the fast one with
// it.
#pragma once

#include "storage/store.h"

namespace temper {

absl::StatusOr<std::unique_ptr<Store>> OpenMemoryStore(const std::string& name, OpenMode mode);    // an empty one
absl::Status SnapshotMemoryStore(const std::string& name, const std::string& to);                  // kUnimplemented
absl::StatusOr<std::string> RestoreMemoryStore(const std::string& from, const std::string& name);  // kUnimplemented

}  // namespace temper
