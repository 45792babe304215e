// What people look at: pages and sums of what is stored. Each answer is bounded, and so is what is read for it but
// where a comment says otherwise. Values only.
//
// Thread-safe. One contract suite (tests/storage) runs on every implementation. Errors are those of store.h.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "trial/outcome.h"

namespace temper {

struct BestFilter {
  std::string text;        // part of the workload, upper and lower case alike; empty: any
  std::string device_key;  // empty: any
  int64_t before = 0;      // cursor: BestPage::next of the page before; 0: the first page
  int64_t limit = 100;     // at least 1. A page ends with all bests of a workload, so it may have some more
};
// The best of a workload, target and device key, as Store::Best would give it at level key.
struct BestRow {
  int64_t record = 0, job = 0;
  std::string workload, target, device_key, template_name, config;
  bool confirmed = false, put = false;  // else provisional; else measured
  double median_s = 0;
  int64_t time_unix_ms = 0;
};
struct BestPage {
  std::vector<BestRow> rows;  // workloads that were met last go first
  int64_t next = 0;           // 0: that was all
};

// All that was tuned under one name for one device key and target.
struct ModelRow {
  std::string model, target, device_key;
  int64_t jobs = 0, trials = 0;
  double best_ms = 0;    // end to end, of all its jobs; 0: none was measured
  int64_t best_job = 0;  // whose it is; 0: none
  int64_t latest_job = 0;
};

// A record of a job that was faster than all before it of the same workload.
struct CurveStep {
  int64_t trial = 0;  // from 1: its place among the job's trials
  std::string workload;
  double median_s = 0;
};
struct JobCurve {
  int64_t trials = 0;            // finals and noise left out
  std::vector<CurveStep> steps;  // in the order of the trials
};

// Failures with the same words.
struct FailureRow {
  Outcome outcome = Outcome::kInfrastructure;
  std::string error;
  int64_t count = 0;
  int64_t latest_record = 0;  // and of that one:
  int64_t time_unix_ms = 0;
  std::string device_key, template_name;
};
struct FailureRows {
  int64_t looked_at = 0;         // records, ok ones too
  std::vector<FailureRow> rows;  // the most frequent first
};

class Overview {
 public:
  virtual ~Overview() = default;

  virtual absl::StatusOr<BestPage> Bests(const BestFilter& filter) = 0;
  // The one with the newest job first, at most `limit`. Reads all jobs.
  virtual absl::StatusOr<std::vector<ModelRow>> Models(int64_t limit) = 0;
  virtual absl::StatusOr<JobCurve> Curve(int64_t job) = 0;  // reads all records of the job
  // Of the newest `records` records, or of those of a job (0: of all), at most `limit` rows.
  virtual absl::StatusOr<FailureRows> Failures(int64_t job, int64_t records, int64_t limit) = 0;
};

}  // namespace temper
