// What is kept: a trial, with all that is needed to use it, to doubt it and to repeat it. Values only: storage knows
// no compiler types, workloads and configs are their canonical texts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

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
  std::string outcome = "ok";      // or a failure class, see Outcome in measure/outcome.h
  std::string error;               // first lines, at most 1 KiB; empty when ok
  std::vector<double> costs_s;     // seconds, raw samples; all finite and positive when ok, else empty
  std::string tuner;
  int64_t job = 0;
  int64_t time_unix_ms = 0;

  bool ok() const { return outcome == "ok"; }
};
double MedianCost(const Record& r);                // seconds; infinite unless ok
bool SameTrial(const Record& a, const Record& b);  // alike in all but id and job

// A provisional record (search, not yet final) is believed to beat the default where it is faster by this factor: its
// few samples were the luckiest of many candidates, taken at another time than the default's.
inline constexpr double kProvisionalMargin = 1.1;

// The classes of outcomes: "ok", "illegal_config" (template refused), "build_failed", "build_timeout", "wrong_answer",
// "run_crashed", "run_timeout", "raced_out" (a worker's word for ok but stopped early, slower than the incumbent by the
// racing factor: kept as "ok" with its one sample, which is too few to be best), "infrastructure" (not the candidate's
// fault).
bool IsOutcome(std::string_view name);

struct JobRow {
  int64_t id = 0;
  std::string model, target, device_key, tuner, codegen_id;
  std::string spec;              // the request, opaque to storage (JSON)
  std::string state = "queued";  // "queued", "running", "done", "failed", "cancelled", "abandoned"
  std::string reason;            // why it failed or was abandoned
  std::string summary;           // JSON of the end-to-end result, when done
  int64_t trials = 0;
  double best_ms = 0;      // end to end, 0 if not measured yet
  std::string model_hash;  // of its tasks: what tells one model from another (see ModelHash)
  // What the end-to-end measurement said to build the model with: "tuned", "default" (the tuned one was slower), or
  // empty: not measured.
  std::string build_with;
  int64_t created_unix_ms = 0, updated_unix_ms = 0;
};

}  // namespace temper
