// What the server counts and measures about itself, for Prometheus. One table in metrics.cc has all there is: docs,
// dashboard and tests are checked against it.
//
// Thread-safe and cheap: a lock that is free, and an addition. The number of series is bounded: a label has the values
// that the table lists, or (device keys) the first so many; anything else counts as "other".
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace temper {

enum class Metric : uint8_t {
  // As of the moment they are asked for: Set and SetAll.
  kPendingCandidates,  // by device key
  kLeases,
  kWorkers,  // by state
  kJobs,     // by state
  kParkedCalls,
  kTickAge,
  kSnapshotAge,
  kDescriptors,
  kDescriptorLimit,
  kResidentBytes,
  kBuildInfo,
  // Events: Add.
  kTrials,     // by outcome
  kFailures,   // by class
  kJobsEnded,  // by state
  kAcks,
  kRejectedMessages,  // by reason
  kDeniedCalls,       // by reason
  kSnapshots,         // by result
  // Distributions: Observe.
  kStoreCommitSeconds,
  kCommitGroupResults,
  kSyncSeconds,
};

enum class MetricType : uint8_t { kGauge, kCounter, kHistogram };

struct MetricDef {
  Metric metric;
  MetricType type;
  std::string name, help;
  std::string label;                // its name; empty: none
  std::vector<std::string> values;  // the label's; empty: whatever comes, up to kMostOpenValues of them
  std::vector<double> buckets;      // kHistogram: upper bounds, rising
};
// In the order of Metric.
std::span<const MetricDef> AllMetrics();

inline constexpr size_t kMostOpenValues = 100;
inline constexpr std::string_view kOtherValue = "other";

class Metrics {
 public:
  Metrics();  // counters with listed values start at 0, so that their rates are right from the first event on
  ~Metrics();

  // `value`: the label's, empty for metrics without one.
  void Add(Metric counter, std::string_view value = "", double amount = 1);
  // Of a count that is kept elsewhere: adds what it grew by since the last call. Never shrinks.
  void Raise(Metric counter, std::string_view value, double total);
  void Observe(Metric histogram, double measured);
  void Set(Metric gauge, double now);
  // All values of a label at once: those that are missing are gone.
  void SetAll(Metric gauge, const std::map<std::string, double>& now);

  // The text that Prometheus reads, version 0.0.4.
  std::string Text() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace temper
