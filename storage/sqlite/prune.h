// Removes what nobody needs any more: see Store::Prune.
#pragma once

#include "storage/sqlite/database.h"

namespace temper {

absl::StatusOr<Pruned> PruneDatabase(Database& database, const PruneOptions& options);

}  // namespace temper
