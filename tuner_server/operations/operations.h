// All that watches over a running server, behind a handful of options: the pages of --http and the chores.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "tuner_server/operations/fleet_status.h"
#include "tuner_server/operations/http.h"
#include "tuner_server/operations/metrics.h"
#include "tuner_server/operations/retention.h"
#include "tuner_server/operations/snapshots.h"

namespace temper {

struct OperationsOptions {
  std::string http;              // HOST:PORT of the pages; empty: none
  bool beyond_loopback = false;  // they may be where other machines reach them
  SnapshotOptions snapshots;     // no directory: none are taken
  RetentionOptions retention;    // looked at once a day
};

// "90s", "30m", "6h", "1h30m", "7d". kInvalidArgument: none of these, or less than a second.
absl::StatusOr<absl::Duration> ParsePeriod(std::string_view text);

class Operations {
 public:
  // `database`: the url of `store`. What is passed in outlives it; `status` may be called from any thread. `more`: what
  // --http serves beside the pages for machines.
  static absl::StatusOr<std::unique_ptr<Operations>> Start(const OperationsOptions& options,
                                                           const std::string& database, Store& store, Metrics& metrics,
                                                           std::function<FleetStatus()> status, const Clock& clock,
                                                           std::vector<HttpRoute> more = {});
  ~Operations();

  const std::string& http_address() const;  // with the port that was chosen; empty: no pages

 private:
  struct Impl;
  explicit Operations(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace temper
