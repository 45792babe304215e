#include "tuner_server/operations/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <mutex>

namespace temper {
namespace {

constexpr MetricType kGauge = MetricType::kGauge, kCounter = MetricType::kCounter, kHistogram = MetricType::kHistogram;

const std::vector<MetricDef>& Table() {
  static const auto& table = *new std::vector<MetricDef>{
      {Metric::kPendingCandidates, kGauge, "temper_pending_candidates", "Candidates that wait for a worker.", "key"},
      {Metric::kLeases, kGauge, "temper_leases", "Leases in the hands of workers."},
      {Metric::kWorkers, kGauge, "temper_workers", "Workers that the server knows.", "state"},
      {Metric::kJobs, kGauge, "temper_jobs", "Jobs in memory; those that ended stay for ten minutes.", "state"},
      {Metric::kParkedCalls, kGauge, "temper_parked_calls", "Sync calls that wait for work."},
      {Metric::kTickAge, kGauge, "temper_tick_age_seconds", "Time since the server last looked at its leases."},
      {Metric::kSnapshotAge, kGauge, "temper_snapshot_age_seconds", "Age of the newest snapshot; -1: there is none."},
      {Metric::kDescriptors, kGauge, "temper_open_descriptors", "File descriptors in use."},
      {Metric::kDescriptorLimit, kGauge, "temper_descriptor_limit", "File descriptors that the process may have."},
      {Metric::kResidentBytes, kGauge, "temper_resident_bytes", "Memory in use (RSS)."},
      {Metric::kBuildInfo, kGauge, "temper_build_info", "1, with the version that runs.", "version"},

      {Metric::kTrials,
       kCounter,
       "temper_trials_total",
       "Results taken into the store, by how the trial ended.",
       "outcome",
       {"ok", "raced_out", "illegal_config", "build_failed", "build_timeout", "wrong_answer", "run_crashed",
        "run_timeout", "unfit", "quarantined", "infrastructure"}},
      {Metric::kFailures,
       kCounter,
       "temper_failures_total",
       "What went wrong in the fleet, by class.",
       "class",
       {"lease_expired", "worker_lost", "worker_drained", "given_up", "conflicting_result", "store"}},
      {Metric::kJobsEnded,
       kCounter,
       "temper_jobs_ended_total",
       "Jobs that ended, by their final state.",
       "state",
       {"done", "failed", "cancelled", "abandoned"}},
      {Metric::kAcks, kCounter, "temper_acks_total", "Results acknowledged: they are in the store."},
      {Metric::kRejectedMessages,
       kCounter,
       "temper_rejected_messages_total",
       "Messages refused for what they hold, by reason.",
       "reason",
       {"no_deadline", "too_large", "bad_field", "unreadable"}},
      {Metric::kDeniedCalls,
       kCounter,
       "temper_denied_calls_total",
       "Calls refused for who makes them, by reason.",
       "reason",
       {"unauthenticated", "forbidden"}},
      {Metric::kSnapshots,
       kCounter,
       "temper_snapshots_total",
       "Scheduled snapshots, by how they went.",
       "result",
       {"ok", "failed"}},

      {Metric::kStoreCommitSeconds,
       kHistogram,
       "temper_store_commit_seconds",
       "How long the store takes to make a group of results durable.",
       "",
       {},
       {.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}},
      {Metric::kCommitGroupResults,
       kHistogram,
       "temper_commit_group_results",
       "Results that share one commit.",
       "",
       {},
       {1, 2, 4, 8, 16, 32, 64, 128, 256}},
      {Metric::kSyncSeconds,
       kHistogram,
       "temper_sync_seconds",
       "How long the server works on a Sync until it answers or parks it.",
       "",
       {},
       {.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1}},
  };
  return table;
}

const MetricDef& DefOf(Metric metric) { return Table()[static_cast<size_t>(metric)]; }

}  // namespace

std::span<const MetricDef> AllMetrics() { return Table(); }

struct Metrics::Impl {
  prometheus::Registry registry;
  // Of each metric the family of its type; the series of histograms and of what has no label.
  struct Entry {
    prometheus::Family<prometheus::Gauge>* gauges = nullptr;
    prometheus::Family<prometheus::Counter>* counters = nullptr;
    prometheus::Histogram* histogram = nullptr;
    std::map<std::string, prometheus::Gauge*, std::less<>> gauge_of;      // by the label's value
    std::map<std::string, prometheus::Counter*, std::less<>> counter_of;  // likewise
  };
  std::vector<Entry> entries;
  std::mutex mutex;  // the maps

  static prometheus::Labels LabelsOf(const MetricDef& def, std::string_view value) {
    if (def.label.empty()) return {};
    return {{def.label, std::string(value)}};
  }

  // The series of a value, made when it is met first. `series` is one of an entry's maps.
  template <typename T>
  T& Find(const MetricDef& def, prometheus::Family<T>& family, std::map<std::string, T*, std::less<>>& series,
          std::string_view value) {
    if (def.label.empty()) value = "";
    if (const auto known = series.find(value); known != series.end()) return *known->second;
    const bool listed = std::find(def.values.begin(), def.values.end(), value) != def.values.end();
    const bool room = def.values.empty() && series.size() < kMostOpenValues;
    if (!def.label.empty() && !listed && !room) value = kOtherValue;
    T*& found = series[std::string(value)];
    if (found == nullptr) found = &family.Add(LabelsOf(def, value));
    return *found;
  }
};

Metrics::Metrics() : impl_(std::make_unique<Impl>()) {
  for (const MetricDef& def : Table()) {
    Impl::Entry& entry = impl_->entries.emplace_back();
    switch (def.type) {
      case MetricType::kGauge:
        entry.gauges = &prometheus::BuildGauge().Name(def.name).Help(def.help).Register(impl_->registry);
        break;
      case MetricType::kCounter:
        entry.counters = &prometheus::BuildCounter().Name(def.name).Help(def.help).Register(impl_->registry);
        for (const std::string& value : def.values) Add(def.metric, value, 0);
        if (def.label.empty()) Add(def.metric, "", 0);
        break;
      case MetricType::kHistogram:
        entry.histogram = &prometheus::BuildHistogram()
                               .Name(def.name)
                               .Help(def.help)
                               .Register(impl_->registry)
                               .Add({}, prometheus::Histogram::BucketBoundaries(def.buckets));
        break;
    }
  }
}

Metrics::~Metrics() = default;

void Metrics::Add(Metric counter, std::string_view value, double amount) {
  Impl::Entry& entry = impl_->entries[static_cast<size_t>(counter)];
  std::lock_guard lock(impl_->mutex);
  impl_->Find(DefOf(counter), *entry.counters, entry.counter_of, value).Increment(amount);
}

void Metrics::Raise(Metric counter, std::string_view value, double total) {
  Impl::Entry& entry = impl_->entries[static_cast<size_t>(counter)];
  std::lock_guard lock(impl_->mutex);
  prometheus::Counter& series = impl_->Find(DefOf(counter), *entry.counters, entry.counter_of, value);
  series.Increment(std::max(0.0, total - series.Value()));
}

void Metrics::Observe(Metric histogram, double measured) {
  impl_->entries[static_cast<size_t>(histogram)].histogram->Observe(measured);
}

void Metrics::Set(Metric gauge, double now) { SetAll(gauge, {{"", now}}); }

void Metrics::SetAll(Metric gauge, const std::map<std::string, double>& now) {
  Impl::Entry& entry = impl_->entries[static_cast<size_t>(gauge)];
  const MetricDef& def = DefOf(gauge);
  std::lock_guard lock(impl_->mutex);
  for (const auto& [value, series] : entry.gauge_of) entry.gauges->Remove(series);
  entry.gauge_of.clear();
  for (const auto& [value, amount] : now) impl_->Find(def, *entry.gauges, entry.gauge_of, value).Increment(amount);
}

std::string Metrics::Text() const {
  std::lock_guard lock(impl_->mutex);  // no gauge is half replaced
  return prometheus::TextSerializer().Serialize(impl_->registry.Collect());
}

}  // namespace temper
