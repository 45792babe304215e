#include "tests/server/simulator/disk.h"

#include <cmath>

#include "absl/strings/str_cat.h"

namespace temper::simulator {
namespace {

constexpr double kWriteFails = 0.05;
constexpr int kMostInARow = 2;  // commits: more may be a failure that lasts, which ends jobs

}  // namespace

absl::Status Disk::Fails(const char* what) {
  if (!faults_.store_fails || !world_.Chance(kWriteFails)) return absl::OkStatus();
  world_.Note(absl::StrCat("disk: ", what, " fails"));
  return absl::ResourceExhaustedError("the disk is full");
}

absl::StatusOr<std::vector<int64_t>> Disk::Commit(const Changes& changes) {
  if (failed_in_a_row_ < kMostInARow) {
    ++failed_in_a_row_;
    TEMPER_RETURN_IF_ERROR(Fails("Commit"));
  }
  failed_in_a_row_ = 0;
  return rows_->Commit(changes);
}

absl::StatusOr<int64_t> Disk::CreateJob(const JobRow& job) {
  TEMPER_RETURN_IF_ERROR(Fails("CreateJob"));
  return rows_->CreateJob(job);
}

absl::Status Disk::UpdateJob(const JobRow& job) {
  TEMPER_RETURN_IF_ERROR(Fails("UpdateJob"));
  // NaN is no number to a database: it becomes NULL, which the column does not take.
  if (!std::isfinite(job.best_ms)) return absl::InvalidArgumentError("job refused: best_ms is not a number");
  TEMPER_ASSIGN_OR_RETURN(const JobRow before, rows_->GetJob(job.id));
  TEMPER_RETURN_IF_ERROR(rows_->UpdateJob(job));
  if (before.state != job.state) world_.Note(absl::StrCat("disk: job ", job.id, " is ", job.state, " ", job.reason));
  promises_.JobStored(before, job);
  return absl::OkStatus();
}

}  // namespace temper::simulator
