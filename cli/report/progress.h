// A job's progress: a live table on a terminal, a plain line now and then elsewhere, or JSON for programs. Not
// thread-safe.
#pragma once

#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/time/time.h"
#include "client/tuner_client.h"

namespace temper {

// What the events of a job add up to.
struct WatchedJob {
  v1::JobEvent latest;  // its tasks are only those that changed last
  std::map<int, v1::TaskProgress> tasks;
  std::map<std::string, int64_t> outcomes;  // "ok" and failure classes, this job
  void Apply(const v1::JobEvent& event);
};

// The numbers of the plain line: "job", "state", "elapsed_s", "eta_s" (0: not known), "done" (the share of the search,
// from 0 to 1), "trials", "failed", "kernels_ms" and "untuned_ms" (0: not measured yet), both of the "measured" tasks
// of "tasks" that have both times, "expected_gain_ms", "warnings".
nlohmann::ordered_json EventJson(const WatchedJob& view, int64_t job);

class Progress {
 public:
  // Writes to `out`; `terminal`: redraws a table in place. `own_worker`: waiting for it is nothing to tell.
  Progress(std::FILE* out, bool terminal, bool own_worker) : out_(out), terminal_(terminal), own_worker_(own_worker) {}
  void Show(const WatchedJob& view, bool final);

 private:
  void Table(const WatchedJob& view);
  bool Line(const WatchedJob& view);  // false: there is nothing to tell yet

  std::FILE* out_;
  bool terminal_, own_worker_;
  int drawn_lines_ = 0;
  absl::Time last_line_ = absl::InfinitePast();
  int64_t last_cursor_ = -1;  // of the event that was shown last
};

}  // namespace temper
