// One task of a job: what was tried, what is best, and the tuner that says what to try next. Not thread-safe.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "compiler/graph/extract.h"
#include "storage/record.h"
#include "tuner_server/dispatch/work.h"
#include "tuner_server/search/tuner.h"
#include "tuner_server/tuning/course.h"

namespace temper {

// Calls `visit` with each record that is known of a task: those that were put, then those that were measured, both in
// the order in which they were made. They may be very many, so nobody keeps them.
using KnownRecords = std::function<void(const std::function<void(const Record&)>& visit)>;
using TunerFactory = std::function<absl::StatusOr<std::unique_ptr<Tuner>>(const TunerContext&)>;

// What people see of a task.
struct TaskView {
  std::string workload;
  int weight = 1;
  bool alternative = false;  // not part of the model unless it is chosen, see Graph::alternatives
  double flops = 0;
  int trials = 0;                   // ok, in this job
  std::map<Outcome, int> failures;  // by class, in this job
  double default_s = 0;             // 0: not measured yet
  double best_s = 0;
  std::string template_name, config;  // of the best
  bool done = false;
  std::string
      why_done;  // "trials", "exhausted", "early_stopping", "min_gain", "failures", "unfit", "budget", "revalidated"
};

// What was measured, as it would be were the device not slower than usual; 0: not measured.
double UsualSeconds(const TrialResult& result);

class TaskSearch {
 public:
  TaskSearch(Task task, Target target, uint64_t seed);

  // The default choice and the tuner; slow (it ranks many configs). Then what is known, so that no trial is repeated:
  // records of this workload, target and device whose template version is this build's.
  // Trials of `job` count as made in it, each config once, be its only record that of a slow device. What was put by
  // hand tells no time that a search could be held against: its fastest are tried first.
  absl::Status Prepare(const TunerFactory& make_tuner, const KnownRecords& known, int64_t job);
  // The default, and what is known; no search. Records of other versions count too where their config is still legal.
  absl::Status PrepareToRevalidate(const KnownRecords& known);
  bool prepared() const { return tuner_ != nullptr; }

  // Up to n candidates that were never tried, the default first. None: the space is exhausted, but for what is still
  // outstanding and may have to be measured again. Slow.
  absl::StatusOr<std::vector<WorkItem>> Propose(int n);
  // Cheap: told to the tuner with the next Propose. Whether it is one more trial: what failed is none, nor what Prepare
  // counted already.
  bool Observe(const Candidate& item, const TrialResult& result);
  // It was measured while the device was slow by `drift`, and might be best: it is measured again with the next batch.
  bool WorthAgain(const TrialResult& result) const;
  void MeasureAgain(WorkItem item);
  // All items of a batch are back: a round ends.
  void EndRound() { seen_ = true; }
  bool MarkTried(const Candidate& item);  // never proposed from now on; false: it was tried before
  bool TakeOver(const Candidate& item);   // the same of one that is under way; true also of what was to be tried first

  // The default and up to `contenders` that may beat it in the model, the default first. Empty: nothing was measured.
  std::vector<Candidate> Finalists(int contenders) const;
  // The default and up to n others, the best that are known. Empty: nothing is known.
  std::vector<Candidate> ToRevalidate(int n) const;
  // Finals decide: the lowest median of them is best, the default where it is as good.
  void ObserveFinal(const Candidate& item, const TrialResult& result);

  // The search is over, and finals as far as they came. A best that was in no final gives way to the winner of an
  // earlier job's; where there is none, it must beat the default by a margin, or the default is best.
  void Settle();

  void End(std::string why);
  // What the package should use. nullopt: nothing was measured, so the default.
  std::optional<KernelPick> Pick() const;
  // The package is the same with Pick and without.
  bool KeepsDefault() const;

  const TaskView& view() const { return view_; }
  const Workload& workload() const { return task_.workload; }
  const std::string& anchor() const { return anchor_; }
  bool seen() const { return seen_; }  // a round of it is over
  // The best that this search, or an earlier one, measured; 0: none. Finals measure in the model, which is no time to
  // race against.
  double incumbent_s() const { return incumbent_s_; }
  bool IsDefault(const Candidate& item) const { return KeyOf(item) == KeyOf(default_); }
  int since_better() const { return since_better_; }  // trials
  int failures_in_row() const { return failures_in_row_; }
  const Course& course() const { return course_; }  // of the search, earlier jobs' trials included
  int outstanding = 0;                              // batches in workers' hands
  int outstanding_items = 0;
  bool has_nothing_new = false;  // until an outstanding batch is back
  // Seconds of the whole model that the best saves over the default; 0 unless both were measured.
  double Gain() const;
  // Share of the model by the draft, until it is measured.
  double EstimatedSeconds() const;

 private:
  struct Known {
    Candidate item;
    double search_s = 0;  // median; 0: none
    double final_s = 0;   // of the latest job with finals
    double search_time() const { return search_s > 0 ? search_s : final_s; }
    bool final_here = false;  // decided in this job
  };
  absl::Status FindDefault();
  std::vector<const Known*> RankedBesideTheDefault() const;
  const Known* LastWinner() const;
  std::vector<Candidate> FinalistsOfFew(int contenders) const;
  void Learn(const Candidate& item, Outcome outcome, const std::vector<double>& costs, bool is_final);
  void Tell(const Candidate& item, Outcome outcome, double seconds);  // to the tuner
  void ForgetFinalsBefore(const Record& record);
  void Know(const Record& record, int64_t job);                  // one that was measured
  void TryFirst(std::vector<std::pair<double, Candidate>> put);  // with their medians
  void Choose();
  void SetBest(const Known& best, double seconds);
  std::string KeyOf(const Candidate& item) const;
  void DropHopeless();

  Task task_;
  Target target_;
  uint64_t seed_;
  std::string anchor_;
  std::unique_ptr<Tuner> tuner_;
  Candidate default_;
  double incumbent_s_ = 0;
  int64_t final_job_ = 0;  // the last whose finals are known
  double draft_s_ = 0;
  absl::flat_hash_set<uint64_t> tried_;    // proposed or known: hashes of template and config
  std::map<std::string, Known> ok_;        // the default, those that finals saw, and the fastest of the others
  std::map<std::string, Known> few_;       // while that is empty: what has too few samples to be best
  absl::flat_hash_set<uint64_t> counted_;  // by Prepare, of the same kind: those that may be proposed again
  std::vector<WorkItem> again_;
  std::vector<Observation> untold_;
  Course course_;
  int since_better_ = 0, failures_in_row_ = 0;
  bool seen_ = false;
  TaskView view_;
};

}  // namespace temper
