// A dispatcher under a clock of the test's, and work for it.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/clock.h"
#include "tuner_server/dispatch/dispatcher.h"

namespace temper {

inline WorkerInfo Worker(const std::string& name, const std::string& key = "k") {
  return {.device_key = key, .fingerprint = "f", .target = "t", .codegen_id = "c", .name = name, .slots = 9};
}

inline Work Batch(int items, int64_t job = 1, const std::string& key = "k") {
  Work work;
  work.job = job;
  work.device_key = key;
  work.target = "t";
  work.codegen_id = "c";
  work.workload = "w";
  for (int i = 0; i < items; ++i)
    work.items.push_back({{.template_name = "template", .config = "x=" + std::to_string(i)}});
  return work;
}

inline std::vector<int> Attempts(const Dispatcher::Grant& grant) {
  std::vector<int> attempts;
  for (const WorkItem& item : grant.work->items) attempts.push_back(item.attempt);
  return attempts;
}

inline ItemResult Ok(const Dispatcher::Grant& grant, size_t i, double cost = 1e-3) {
  return {.lease = grant.lease,
          .item = grant.work->items[i].id,
          .attempt = grant.work->items[i].attempt,
          .trial = {.outcome = Outcome::kOk, .costs_s = {cost}}};
}
inline ItemResult Broken(const Dispatcher::Grant& grant, size_t i) {
  return {.lease = grant.lease,
          .item = grant.work->items[i].id,
          .attempt = grant.work->items[i].attempt,
          .trial = {.outcome = Outcome::kInfrastructure, .error = "no memory"}};
}

class DispatcherTest : public ::testing::Test {
 protected:
  absl::Duration Now() const { return clock_.Monotonic(); }
  // Time passes as it does in a live server.
  void Pass(absl::Duration d) {
    for (; d > absl::ZeroDuration(); d -= absl::Seconds(1)) {
      clock_.Advance(std::min(d, absl::Seconds(1)));
      dispatcher_.Tick(Now());
    }
  }
  std::vector<Dispatcher::Grant> Take(const std::string& session, int slots = 1, std::vector<int64_t> held = {}) {
    return dispatcher_.Sync(session, held, slots, Now()).grants;
  }

  FakeClock clock_;
  Dispatcher dispatcher_{DispatchOptions{}};
};

}  // namespace temper
