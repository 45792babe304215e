#include "tuner_server/service/unknown_results.h"

#include <optional>

#include "base/log.h"
#include "tuner_server/service/results.h"

namespace temper {

absl::Status JudgeUnknown(Store& store, CoreState::CommitPlan& plan) {
  for (const auto& [place, i] : plan.unknown) {
    CoreState::Submission& submission = plan.submissions[place];
    const ItemResult& result = submission.results[i];
    std::optional<Record> record;
    if (result.item != 0) {
      TEMPER_RETURN_IF_ERROR(store.Scan({.limit = 1, .candidate = result.item, .attempt = result.attempt},
                                        [&](const Record& kept) { record = kept; }));
    }
    const bool same = record && IsRecordOf(*record, result.trial);
    submission.acks[i] = same || (!record && result.outcome() == Outcome::kInfrastructure);
    if (!record || same) continue;
    if (submission.contradicting++ > 0) continue;  // one line is enough
    LogWarn({.job = record->job, .lease = result.lease, .key = record->device_key},
            "item {} attempt {}: a result contradicts the record that there is, and is refused", result.item,
            result.attempt);
  }
  return absl::OkStatus();
}

}  // namespace temper
