// The pages of `temper-server --http`: what Prometheus, Kubernetes and KEDA ask for.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "tuner_server/operations/fleet_status.h"
#include "tuner_server/operations/http.h"
#include "tuner_server/operations/metrics.h"

namespace temper {

// A server whose core did not look at its leases for so long does not live: restart it.
inline constexpr absl::Duration kLongestTickAge = absl::Seconds(30);

struct PageSources {
  Metrics* metrics;
  std::function<FleetStatus()> status;
  // nullopt: no snapshots are asked for, or there is none yet.
  std::function<std::optional<absl::Duration>()> snapshot_age;
};

// What `sources` names outlives the pages.
//   /metrics        all metrics, as they are now
//   /healthz        200 while the core looks after its leases, else 503
//   /readyz         200 while results can be stored and the server does not stop, else 503
//   /pending?key=K  {"key": "K", "pending": N}: how much wants a worker of this device key. N counts candidates queued
//                   and leased; and as a job queues nothing before it found a worker, it is at least its number of
//                   jobs.
std::vector<HttpRoute> OperationsPages(PageSources sources);

}  // namespace temper
