// How the server stands at a moment, as its core tells it to who watches over it.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/time/time.h"

namespace temper {

struct FleetStatus {
  struct Key {
    int64_t pending = 0;   // candidates that wait for a worker
    int64_t leased = 0;    // candidates in the hands of workers
    int64_t jobs = 0;      // that have not ended
    bool awaited = false;  // a client waits for a first worker, to submit a job
  };
  std::map<std::string, Key> keys;          // by device key
  std::map<std::string, int64_t> workers;   // by state, as `temper devices` names it
  std::map<std::string, int64_t> jobs;      // by state, as `temper jobs` names it
  std::map<std::string, int64_t> failures;  // since the start, by their class in temper_failures_total
  int64_t leases = 0;
  int64_t parked_calls = 0;
  absl::Duration tick_age = absl::ZeroDuration();  // since the core last looked at its leases
  bool store_ok = true;                            // the last commit went well
  bool stopping = false;
};

}  // namespace temper
