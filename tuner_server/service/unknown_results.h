// Results of work that the dispatcher does not know: of a server before this one, of long ago, or of nothing at all.
#pragma once

#include "base/status.h"
#include "storage/store.h"
#include "tuner_server/service/core_state.h"

namespace temper {

// Says in the plan which of them are acknowledged: those that the store has just so. What contradicts the record of its
// execution is refused, as it would be had this server seen the first. What the store has no record of is not
// acknowledged, for nothing keeps it; but a worker's own failure never is kept. Looks into the store: not under a lock.
absl::Status JudgeUnknown(Store& store, CoreState::CommitPlan& plan);

}  // namespace temper
