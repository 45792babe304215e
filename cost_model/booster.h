// Boosters: trees trained beforehand, on the measurements of many tasks, that say of one template's configs how far the
// draft is wrong. A search begins at the draft as its boosters correct it.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "compiler/ops/legal_configs.h"
#include "cost_model/labels.h"
#include "cost_model/xgboost/forest.h"
#include "cost_model/xgboost/trainer.h"

namespace temper {

struct Booster {
  std::string template_name;
  int template_version = 0;
  const FootprintSchema* schema = nullptr;  // of the template's footprints, which the features are made of
  std::string isa;                          // IsaFamily of the targets that it was trained on
  std::vector<std::string> knobs;           // their values follow the closed-form features in its rows
  int tasks = 0, samples = 0;               // that it was trained on
  Forest forest;                            // of log(draft / seconds), up to a constant for each task
};

// Targets whose machine code is alike: "avx512", "avx2", "sse42", "neon"; else the GPU's architecture, or the code
// generator.
std::string IsaFamily(const Target& t);

// The form in files: a few lines of "name value", the trees, and a digest.
std::string Text(const Booster& b);
// kInvalidArgument: no booster, or a damaged one; kFailedPrecondition: made for other features, or for a template that
// this build lacks. One line that says so.
absl::StatusOr<Booster> ParseBooster(std::string_view text);

// How a booster reads rows of features: for each of its columns the column of the rows, or -1 if the rows lack it. Rows
// hold the closed-form features first, and the values of `knobs` from `first_knob` on.
std::vector<int> ColumnsOf(const Booster& b, std::span<const std::string> knobs, size_t first_knob);
// Adds to each row's margin the logarithm of draft / seconds that the booster expects.
void AddMargins(const Booster& b, std::span<const float> rows, size_t width, std::span<const int> columns,
                std::span<float> margins);

// A candidate's seconds by its draft, corrected by the boosters of its template.
double CorrectedDraft(std::span<const Booster> boosters, const Workload& w, const TemplateDef& def,
                      const Config& config, const Target& t);

// Gathers measurements of any tasks of one target, and trains boosters on them. Not thread-safe.
class BoosterTrainer {
 public:
  // What is trained goes on from where `base`, which must outlive it, leaves off.
  BoosterTrainer(Target target, std::span<const Booster> base) : target_(std::move(target)), base_(base) {}
  BoosterTrainer(const BoosterTrainer&) = delete;  // its groups refer to its target
  BoosterTrainer& operator=(const BoosterTrainer&) = delete;

  // A candidate of the task `group`, whose workload is always the same; infinite seconds are a failure.
  // kInvalidArgument: no such template, none for this workload on the target, no config of its space, a cost that is no
  // positive number.
  absl::Status Add(const Workload& w, int group, std::string_view template_name, const Config& config, double cost_s);
  size_t samples(std::string_view template_name) const;
  // Keeps the newest so many of each template.
  void Forget(size_t most);
  // One booster for each template of `least` samples or more.
  absl::StatusOr<std::vector<Booster>> Train(const TrainOptions& options, size_t least) const;

 private:
  struct Sample {
    std::string config;  // text; what it says of features takes ten times the memory, and is made when it is needed
    int group;
    double log_cost;
  };
  struct Row {
    std::vector<float> closed;  // features
    Config config;
    double log_draft = 0;  // as `base` corrects it
  };
  struct Matrix {
    std::vector<std::string> knobs;
    std::vector<float> rows;
    size_t width = 0;
  };
  absl::StatusOr<std::vector<Row>> RowsOf(const std::string& template_name, std::span<const Sample> samples) const;
  static Matrix MatrixOf(std::span<const Row> rows);
  static Row RowOf(std::span<const Booster> base, const Workload& w, const TemplateDef& def, const Config& config,
                   const Target& t);
  friend double CorrectedDraft(std::span<const Booster> boosters, const Workload& w, const TemplateDef& def,
                               const Config& config, const Target& t);

  const Target target_;
  const std::span<const Booster> base_;
  struct Group {
    const Workload workload;
    LegalConfigs legal;
    Group(const Workload& w, const Target& t) : workload(w), legal(workload, t) {}
  };
  std::map<int, std::unique_ptr<Group>> groups_;
  std::map<std::string, std::vector<Sample>, std::less<>> by_template_;
};

}  // namespace temper
