// What a worker says of itself and of a trial, before it is believed and as it is kept.
#pragma once

#include "absl/time/time.h"
#include "base/status.h"
#include "storage/record.h"
#include "tuner_server/dispatch/work.h"

namespace temper {

// kInvalidArgument names what is wrong: records of its trials could not be stored.
absl::Status CheckWorker(const WorkerInfo& info);

// What a worker sends is not believed: a measurement without sound samples is the worker's failure.
ItemResult Checked(ItemResult result);

Record MakeRecord(const Work& work, const WorkItem& item, const WorkerInfo& worker, const TrialResult& result,
                  absl::Time wall);
// Whether the record is what MakeRecord made of this result.
bool IsRecordOf(const Record& record, const TrialResult& result);

}  // namespace temper
