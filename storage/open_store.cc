// The kinds of stores, by the scheme of their url.
#include "storage/memory/memory_store.h"
#include "storage/sqlite/sqlite_store.h"
#include "storage/store.h"

namespace temper {
namespace {

struct Kind {
  std::string_view scheme;
  absl::StatusOr<std::unique_ptr<Store>> (*open)(const std::string& rest, OpenMode mode);
  absl::Status (*snapshot)(const std::string& rest, const std::string& to);
  absl::StatusOr<std::string> (*restore)(const std::string& from, const std::string& rest);
};

constexpr Kind kKinds[] = {{"sqlite:", OpenSqliteStore, SnapshotSqliteStore, RestoreSqliteStore},
                           {"memory:", OpenMemoryStore, SnapshotMemoryStore, RestoreMemoryStore}};

// The kind of `url`, and what of it is left. A url without a known scheme is a path: a file may be called anything.
std::pair<const Kind*, std::string> Split(const std::string& url) {
  for (const Kind& kind : kKinds) {
    if (url.starts_with(kind.scheme)) return {&kind, url.substr(kind.scheme.size())};
  }
  return {&kKinds[0], url};
}

}  // namespace

absl::StatusOr<std::unique_ptr<Store>> OpenStore(const std::string& url, OpenMode mode) {
  const auto [kind, rest] = Split(url);
  return kind->open(rest, mode);
}

absl::Status SnapshotStore(const std::string& from, const std::string& to) {
  const auto [kind, rest] = Split(from);
  return kind->snapshot(rest, to);
}

absl::StatusOr<std::string> RestoreStore(const std::string& from, const std::string& to) {
  const auto [kind, rest] = Split(to);
  return kind->restore(from, rest);
}

}  // namespace temper
