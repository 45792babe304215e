#include "tuner_server/service/stored_lease.h"

#include "absl/strings/str_cat.h"
#include "proto/check.h"
#include "proto/convert_trial.h"
#include "temper/v1/stored.pb.h"
#include "tuner_server/service/wire.h"

namespace temper {

std::optional<LeaseRow> ToRow(const Dispatcher::Grant& grant, const WorkerInfo& worker, absl::Time wall) {
  const Work& work = *grant.work;
  if (work.kind != WorkKind::kBatch) return std::nullopt;
  v1::StoredLease stored;
  *stored.mutable_lease() = ToWire(grant);
  *stored.mutable_worker() = ToWire(worker);
  stored.set_anchor(work.anchor);
  stored.set_codegen_id(work.codegen_id);
  stored.set_tuner(work.tuner);
  stored.set_owner(work.owner);
  stored.set_priority(work.priority);
  stored.set_holder(worker.holder);
  return LeaseRow{grant.lease, worker.instance, work.job, stored.SerializeAsString(), absl::ToUnixMillis(wall)};
}

absl::StatusOr<RestoredLease> FromRow(const LeaseRow& row) {
  v1::StoredLease stored;
  if (!stored.ParseFromString(row.work) || !stored.lease().has_batch()) {
    return absl::DataLossError(absl::StrCat("lease ", row.id, " of job ", row.job, " can not be read"));
  }
  TEMPER_RETURN_IF_ERROR(CheckMessage(stored.lease()));
  TEMPER_RETURN_IF_ERROR(CheckMessage(stored.worker()));
  RestoredLease restored{.worker = FromWire(stored.worker())};
  restored.worker.holder = stored.holder();
  const BatchWork batch = FromWire(stored.lease().batch());
  Work& work = restored.work;
  work.job = row.job;
  work.device_key = restored.worker.device_key;
  work.target = batch.target;
  work.codegen_id = stored.codegen_id();
  work.tuner = stored.tuner();
  work.owner = stored.owner();
  work.priority = stored.priority();
  work.workload = batch.workload;
  work.anchor = stored.anchor();
  work.incumbent_s = batch.incumbent_s;
  work.plan = batch.plan;
  for (const Candidate& candidate : batch.candidates) work.items.push_back({candidate});
  return restored;
}

}  // namespace temper
