// A store that can be made to fail, as a full disk does.
#pragma once

#include <atomic>
#include <functional>
#include <memory>

#include "storage/store.h"

namespace temper {

class FallibleStore : public Store {
 public:
  absl::StatusOr<std::vector<int64_t>> Commit(const Changes& changes) override {
    if (full) return absl::ResourceExhaustedError("the disk is full");
    return below_->Commit(changes);
  }
  absl::StatusOr<std::vector<int64_t>> Import(std::span<const Record> records) override {
    return below_->Import(records);
  }
  absl::Status Scan(const RecordFilter& filter, const std::function<void(const Record&)>& visit) override {
    if (before_scan) before_scan(filter);
    return below_->Scan(filter, visit);
  }
  absl::StatusOr<int64_t> HighestCandidate() override { return below_->HighestCandidate(); }
  absl::StatusOr<std::optional<BestAnswer>> Best(const BestQuery& query) override {
    if (before_best) before_best();
    return below_->Best(query);
  }
  absl::Status ScanBest(const RecordFilter& filter, const std::function<void(const Record&)>& visit) override {
    return below_->ScanBest(filter, visit);
  }
  absl::StatusOr<int64_t> CreateJob(const JobRow& job) override {
    if (before_create) before_create();
    return below_->CreateJob(job);
  }
  absl::Status UpdateJob(const JobRow& job) override {
    if (full_for_jobs) return absl::ResourceExhaustedError("the disk is full");
    return below_->UpdateJob(job);
  }
  absl::StatusOr<JobRow> GetJob(int64_t id) override { return below_->GetJob(id); }
  absl::StatusOr<std::vector<JobRow>> Jobs(const JobFilter& filter) override { return below_->Jobs(filter); }
  absl::StatusOr<std::optional<JobRow>> LatestVerdict(const std::string& model_hash, const std::string& target,
                                                      const std::string& device_key) override {
    return below_->LatestVerdict(model_hash, target, device_key);
  }
  absl::StatusOr<std::vector<LeaseRow>> Leases() override { return below_->Leases(); }
  absl::StatusOr<Pruned> Prune(const PruneOptions& options) override { return below_->Prune(options); }
  absl::Status Health() const override {
    return damaged ? absl::DataLossError("the database is damaged") : absl::OkStatus();
  }
  AccessStore& access() override { return below_->access(); }
  Overview& overview() override { return below_->overview(); }

  std::atomic<bool> full = false, full_for_jobs = false;  // trials; jobs that change
  std::atomic<bool> damaged = false;
  // Set before the server has calls.
  std::function<void()> before_best, before_create;
  std::function<void(const RecordFilter&)> before_scan;

 private:
  std::unique_ptr<Store> below_ = *OpenStore("memory:");
};

}  // namespace temper
