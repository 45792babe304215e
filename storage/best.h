// The rule of best: which records may serve a build, which of them stand, and which one serves a query. It is written
// here and nowhere else: stores find the rows that it needs, and ask it.
#pragma once

#include <compare>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "storage/record.h"
#include "storage/store.h"

namespace temper {

inline constexpr size_t kProvisionalSamples = 3;  // of a search; fewer say too little to serve a config by
// A provisional record (search, not yet final) is believed to beat the default where it is faster by this factor: its
// few samples were the luckiest of many candidates, taken at another time than the default's.
inline constexpr double kProvisionalMargin = 1.1;

bool MayBeBest(const Record& r);    // by outcome, purpose and number of samples
bool IsConfirmed(const Record& r);  // measured beside its rivals: a final or a revalidation
bool IsPut(const Record& r);        // by hand, and nobody vouches for it

// How good a record is that may be best. Less is better: measured before put, confirmed before provisional, then the
// smaller median, then the older record.
struct Rank {
  bool put = false, provisional = false;
  double median_s = 0;
  int64_t record = 0;
  std::partial_ordering operator<=>(const Rank&) const = default;
};
Rank RankOf(const Record& r);

// A candidate's own failure: what was measured of it before, in the same place, stands no longer.
bool Refutes(const Record& r);
// A revalidation that went well, and was not put: of the same workload, target, device key and threads, what another
// code generator made and older times of its own config stand no longer.
bool Retires(const Record& r);
// A final of one of this store's jobs: only beside its rivals of the same job does its time tell who is faster, so what
// was confirmed before of the same workload, target, device key, threads and code generator stands no longer. Who won
// there is among the later job's finalists.
bool DecidesAnew(const Record& r);
// Those of `records` that may be best and that no later one refutes or retires. A failure that was put speaks only
// against others that were put. `records` holds all of each workload, target, device key and threads that it has one
// of, in any order. Time: n log n, and n for each revalidation.
std::vector<Record> Standing(std::vector<Record> records);

// Of all records of one workload and target, the ids of those that no answer depends on and that are not among the
// `keep` newest, by id: without them every query that allows all templates is answered as before. `is_running` tells
// jobs that still need their records.
std::vector<int64_t> Dispensable(std::vector<Record> records, int64_t keep,
                                 const std::function<bool(int64_t job)>& is_running);
// Of all jobs, newest first, the ids of those that are final, not among the `keep` newest, and not the latest verdict
// on their model.
std::vector<int64_t> DispensableJobs(std::span<const JobRow> jobs, int64_t keep);

// A standing record, as far as the choice among them depends on it; its workload or its anchor is the query's, and its
// target is.
struct Contender {
  std::string_view device_key, fingerprint;
  int threads = 1;
  std::string_view template_name;
  int template_version = 1;
  Rank rank;
};

// Finds the contender that serves a query. Measured before put; among these the nearest: of the query's own workload
// with its fingerprint and threads ("exact"), its device key ("key"), neither ("target"), and then, in the same order,
// of another workload with the same anchor ("borrowed"); among the nearest the best by rank.
class BestChoice {
 public:
  explicit BestChoice(const BestQuery& query) : query_(query) {}  // `query` outlives it
  void Offer(const Contender& contender, bool borrowed);
  bool NothingBorrowedWins() const { return best_.has_value() && !best_->put && best_->distance < kBorrowed; }

  struct Chosen {
    int64_t record;
    std::string_view level;  // see BestAnswer
  };
  std::optional<Chosen> chosen() const;

 private:
  static constexpr int kBorrowed = 3;
  struct Standpoint {
    bool put;
    int distance;
    Rank rank;
    std::partial_ordering operator<=>(const Standpoint&) const = default;
  };
  const BestQuery& query_;
  std::optional<Standpoint> best_;
};

// Whether a chosen record has to beat the default's own measurement by kProvisionalMargin, and whether `other` is such
// a measurement, in the same place, that it does not beat.
bool NeedsALead(const BestQuery& query, const Record& best);
bool DeniesTheLead(const BestQuery& query, const Record& best, const Record& other);

}  // namespace temper
