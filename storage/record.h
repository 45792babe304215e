// What is kept: a trial, with all that is needed to use it, to doubt it and to repeat it; the jobs that asked for
// trials; the leases that were open. Values only: storage knows no compiler types, workloads and configs are their
// canonical texts. check.h has the limits of every field.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trial/outcome.h"

namespace temper {

struct Record {
  int64_t id = 0;        // given by the store
  std::string workload;  // canonical text; its hash is StableHash of it
  std::string anchor;    // AnchorText
  std::string target;    // canonical text
  std::string device_key;
  std::string fingerprint;  // of the device that measured
  int threads = 1;
  std::string cache_policy = "model";  // "model", "warm", "flushed"
  std::string template_name;
  int template_version = 1;
  std::string config;
  std::string codegen_id;
  std::string purpose = "search";  // "search", "final", "canary", "revalidate"
  Outcome outcome = Outcome::kOk;
  std::string error;            // first lines, at most 1 KiB; empty when ok
  std::vector<double> costs_s;  // seconds, raw samples; all finite and positive when ok, else empty
  std::string tuner;
  int64_t job = 0;  // of this store; 0: not of a job, or of another store's
  int64_t time_unix_ms = 0;
  // The execution that this is the result of: (candidate, attempt) of a fleet. 0: not from a fleet. One execution is
  // one record.
  int64_t candidate = 0;
  int attempt = 0;
  // "measured"; "put": by hand, by somebody whose word counts for less than a measurement; "trusted": by hand, and an
  // admin says that it counts as measured.
  std::string origin = "measured";

  bool ok() const { return outcome == Outcome::kOk; }
};
double MedianCost(const Record& r);                // seconds; infinite unless ok
bool SameTrial(const Record& a, const Record& b);  // alike in all but id, job, execution and origin

struct JobRow {
  int64_t id = 0;  // given by the store
  std::string model, target, device_key, tuner, codegen_id;
  std::string owner;  // who asked for it; empty: nobody in particular
  int priority = 0;
  std::string state = "queued";  // "queued", "running", "done", "failed", "cancelled", "abandoned"
  std::string reason;            // why it failed or was abandoned
  int64_t trials = 0;
  double best_ms = 0;      // end to end, 0 if not measured yet
  std::string model_hash;  // of its tasks: what tells one model from another (see ModelHash)
  // What the end-to-end measurement said to build the model with: "tuned", "default" (the tuned one was slower), or
  // empty: not measured.
  std::string build_with;
  int64_t created_unix_ms = 0, updated_unix_ms = 0;
  // Not in listings, only in what GetJob gives:
  std::string spec;     // options of the request, for people (JSON, opaque to storage)
  std::string summary;  // JSON of the end-to-end result, when done
  // The request as it came, opaque bytes, from which a job goes on after a restart. Kept until the job is final.
  std::string request;
};
// Whether a job in this state will never change again: "done", "failed", "cancelled", "abandoned".
bool IsFinalJobState(std::string_view state);

// Another priority for a job.
struct JobPriority {
  int64_t job = 0;
  int priority = 0;
};

// Work in a worker's hands, kept so that its results are known again after the server's restart.
struct LeaseRow {
  int64_t id = 0;        // given by who grants it
  std::string instance;  // the worker that holds it
  int64_t job = 0;
  std::string work;  // opaque bytes
  int64_t granted_unix_ms = 0;
};

}  // namespace temper
