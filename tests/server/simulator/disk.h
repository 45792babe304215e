// The server's disk: a store that outlives servers, whose writes fail when told to, and that refuses what a database
// refuses.
#pragma once

#include <memory>

#include "storage/store.h"
#include "tests/server/simulator/faults.h"
#include "tests/server/simulator/promises.h"
#include "tests/server/simulator/world.h"

namespace temper::simulator {

class Disk : public Store {
 public:
  Disk(World& world, const Faults& faults, Promises& promises)
      : world_(world), faults_(faults), promises_(promises), rows_(*OpenStore("memory:")) {}

  absl::StatusOr<std::vector<int64_t>> Commit(const Changes& changes) override;
  absl::StatusOr<std::vector<int64_t>> Import(std::span<const Record> records) override {
    return rows_->Import(records);
  }
  absl::Status Scan(const RecordFilter& filter, const std::function<void(const Record&)>& visit) override {
    return rows_->Scan(filter, visit);
  }
  absl::StatusOr<int64_t> HighestCandidate() override { return rows_->HighestCandidate(); }
  absl::StatusOr<std::optional<BestAnswer>> Best(const BestQuery& query) override { return rows_->Best(query); }
  absl::Status ScanBest(const RecordFilter& filter, const std::function<void(const Record&)>& visit) override {
    return rows_->ScanBest(filter, visit);
  }
  absl::StatusOr<int64_t> CreateJob(const JobRow& job) override;
  absl::Status UpdateJob(const JobRow& job) override;
  absl::StatusOr<JobRow> GetJob(int64_t id) override { return rows_->GetJob(id); }
  absl::StatusOr<std::vector<JobRow>> Jobs(const JobFilter& filter) override { return rows_->Jobs(filter); }
  absl::StatusOr<std::optional<JobRow>> LatestVerdict(const std::string& model_hash, const std::string& target,
                                                      const std::string& device_key) override {
    return rows_->LatestVerdict(model_hash, target, device_key);
  }
  absl::StatusOr<std::vector<LeaseRow>> Leases() override { return rows_->Leases(); }
  absl::StatusOr<Pruned> Prune(const PruneOptions& options) override { return rows_->Prune(options); }
  AccessStore& access() override { return rows_->access(); }
  Overview& overview() override { return rows_->overview(); }

 private:
  absl::Status Fails(const char* what);

  World& world_;
  const Faults& faults_;
  Promises& promises_;
  std::unique_ptr<Store> rows_;
  int failed_in_a_row_ = 0;  // commits
};

}  // namespace temper::simulator
