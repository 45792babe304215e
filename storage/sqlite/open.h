// The way from a path to connections that are safe to use: what the file is, whose it is, which version, how it is
// opened.
#pragma once

#include <memory>
#include <string>

#include "storage/sqlite/connection.h"
#include "storage/sqlite/lock_file.h"

namespace temper {

inline constexpr int64_t kApplicationId = 0x54656D70;  // "Temp", in the header of every file of ours

// Links resolved, so that a file has one lock whatever it is called. kNotFound: no such folder.
absl::StatusOr<std::string> ResolvePath(const std::string& path);

// Creates the file if need be, brings its schema up to date; before that, an older file is copied to FILE.before-N, N
// being the new version. A file that is refused, or can not be brought up to date, is left as it was.
absl::StatusOr<std::unique_ptr<Connection>> OpenWriter(const std::string& path);

// How readers of this file are opened: immutable where a read-only folder leaves no other way.
absl::StatusOr<Access> ReaderAccess(const std::string& path);
absl::StatusOr<std::unique_ptr<Connection>> OpenReader(const std::string& path, Access access);
// How much of a file is read to see whether it is sound: of a large one as much as half a second allows, small tables
// first, or all of it however long that takes.
enum class CheckDepth { kBounded, kWhole };
// Of a database that this process writes, after somebody else wrote its files. kDataLoss: it is damaged, or is no
// longer the file it was.
absl::Status CheckAgain(const std::string& path);
// What has to be looked at once, not for each connection of a pool: whole pages, version.
absl::Status CheckReadable(const std::string& path, Connection& connection, CheckDepth depth);

}  // namespace temper
