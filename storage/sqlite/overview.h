// The SQL of what people look at: see storage/overview.h.
#pragma once

#include "storage/overview.h"
#include "storage/sqlite/database.h"

namespace temper {

class SqliteOverview : public Overview {
 public:
  explicit SqliteOverview(Database& database) : database_(database) {}  // which outlives it

  absl::StatusOr<BestPage> Bests(const BestFilter& filter) override;
  absl::StatusOr<std::vector<ModelRow>> Models(int64_t limit) override;
  absl::StatusOr<JobCurve> Curve(int64_t job) override;
  absl::StatusOr<FailureRows> Failures(int64_t job, int64_t records, int64_t limit) override;

 private:
  Database& database_;
};

}  // namespace temper
