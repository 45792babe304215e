// The embedded store: one SQLite file. docs/store-schema.md says what is in it.
#pragma once

#include "storage/store.h"

namespace temper {

absl::StatusOr<std::unique_ptr<Store>> OpenSqliteStore(const std::string& path, OpenMode mode);  // see OpenStore
absl::Status SnapshotSqliteStore(const std::string& from, const std::string& to);                // see SnapshotStore
absl::StatusOr<std::string> RestoreSqliteStore(const std::string& from, const std::string& to);  // see RestoreStore

}  // namespace temper
