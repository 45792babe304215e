// A lease as the store keeps it, so that a server that comes after this one goes on with it.
#pragma once

#include "base/status.h"
#include "storage/record.h"
#include "tuner_server/dispatch/dispatcher.h"

namespace temper {

// nullopt: it is not worth keeping. Finals and models' checks begin anew after a restart.
std::optional<LeaseRow> ToRow(const Dispatcher::Grant& grant, const WorkerInfo& worker, absl::Time wall);

struct RestoredLease {
  Work work;  // its items with their attempts
  WorkerInfo worker;
};
absl::StatusOr<RestoredLease> FromRow(const LeaseRow& row);  // kDataLoss: it can not be read

}  // namespace temper
