#include "cost_model/booster.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/hash.h"

namespace temper {
namespace {

constexpr char kMagic[] = "temper-booster 1";

// Of names and meaning: a booster trained on other features says nothing of these.
std::string FeatureTag(const FootprintSchema& schema) {
  return absl::StrCat(schema.version, " ", HashText(StableHash(absl::StrJoin(FeatureNames(schema), ","))));
}

size_t WidthOf(const Booster& b) { return FeatureCount(*b.schema) + b.knobs.size(); }

absl::Status Damaged(const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("not a booster, or a damaged one: ", what));
}

// The lines in order, each "name value"; what follows them are trees.
struct Header {
  std::string_view rest;
  absl::StatusOr<std::string> Take(const std::string& name) {
    const size_t end = rest.find('\n');
    const std::string_view line = rest.substr(0, end);
    if (end == rest.npos || line.substr(0, name.size()) != name ||
        (line.size() > name.size() && line[name.size()] != ' '))
      return Damaged(absl::StrCat("no line '", name, "'"));
    rest.remove_prefix(end + 1);
    return std::string(line.substr(std::min(line.size(), name.size() + 1)));
  }
  absl::StatusOr<int> TakeNumber(const std::string& name) {
    TEMPER_ASSIGN_OR_RETURN(const std::string text, Take(name));
    int number = 0;
    if (!absl::SimpleAtoi(text, &number) || number < 0) return Damaged(absl::StrCat(name, " ", text));
    return number;
  }
};

}  // namespace

std::string IsaFamily(const Target& t) {
  const CpuTarget* cpu = t.cpu();
  if (cpu == nullptr) return t.name();
  if (cpu->Has("avx512f")) return "avx512";
  if (cpu->Has("avx2")) return "avx2";
  if (cpu->Has("neon")) return "neon";
  return cpu->Has("sse4.2") ? "sse42" : t.generator;
}

std::string Text(const Booster& b) {
  std::string text = absl::StrCat(kMagic, "\ntemplate ", b.template_name, "\nversion ", b.template_version, "\nisa ",
                                  b.isa, "\nfeatures ", FeatureTag(*b.schema), "\nknobs ", absl::StrJoin(b.knobs, " "),
                                  "\ntasks ", b.tasks, "\nsamples ", b.samples, "\n", b.forest.Text());
  absl::StrAppend(&text, "digest ", HashText(StableHash(text)), "\n");
  return text;
}

absl::StatusOr<Booster> ParseBooster(std::string_view text) {
  const size_t end = text.rfind("digest ");
  if (end == text.npos || text.substr(end) != absl::StrCat("digest ", HashText(StableHash(text.substr(0, end))), "\n"))
    return Damaged("its digest is not of it");
  Header header{text.substr(0, end)};
  TEMPER_ASSIGN_OR_RETURN(const std::string rest_of_magic, header.Take(kMagic));
  Booster b;
  TEMPER_ASSIGN_OR_RETURN(b.template_name, header.Take("template"));
  TEMPER_ASSIGN_OR_RETURN(b.template_version, header.TakeNumber("version"));
  TEMPER_ASSIGN_OR_RETURN(b.isa, header.Take("isa"));
  TEMPER_ASSIGN_OR_RETURN(const std::string features, header.Take("features"));
  const TemplateDef* def = FindTemplate(b.template_name);
  const std::string ours = def == nullptr ? "none: there is no such template" : FeatureTag(*def->schema);
  if (features != ours) {
    return absl::FailedPreconditionError(absl::StrCat("booster of ", b.template_name, " for ", b.isa,
                                                      ": made for features ", features, ", these are ", ours));
  }
  b.schema = def->schema;
  TEMPER_ASSIGN_OR_RETURN(const std::string knobs, header.Take("knobs"));
  b.knobs = absl::StrSplit(knobs, ' ', absl::SkipEmpty());
  TEMPER_ASSIGN_OR_RETURN(b.tasks, header.TakeNumber("tasks"));
  TEMPER_ASSIGN_OR_RETURN(b.samples, header.TakeNumber("samples"));
  TEMPER_ASSIGN_OR_RETURN(b.forest, Forest::FromText(header.rest, WidthOf(b)));
  return b;
}

std::vector<int> ColumnsOf(const Booster& b, std::span<const std::string> knobs, size_t first_knob) {
  std::vector<int> columns;
  for (size_t i = 0; i < FeatureCount(*b.schema); ++i) columns.push_back(static_cast<int>(i));
  for (const std::string& knob : b.knobs) {
    const auto found = std::find(knobs.begin(), knobs.end(), knob);
    columns.push_back(found == knobs.end() ? -1
                                           : static_cast<int>(first_knob) + static_cast<int>(found - knobs.begin()));
  }
  return columns;
}

void AddMargins(const Booster& b, std::span<const float> rows, size_t width, std::span<const int> columns,
                std::span<float> margins) {
  std::vector<float> own;
  own.reserve(margins.size() * columns.size());
  for (size_t i = 0; i < margins.size(); ++i) {
    for (int column : columns)
      own.push_back(column < 0 ? std::numeric_limits<float>::quiet_NaN()
                               : rows[i * width + static_cast<size_t>(column)]);
  }
  b.forest.AddTo(own, columns.size(), margins);
}

absl::Status BoosterTrainer::Add(const Workload& w, int group, std::string_view template_name, const Config& config,
                                 double cost_s) {
  if (!(cost_s > 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("no sample to train on: template ", std::string(template_name), ", ", cost_s, " s"));
  }
  const auto [known, fresh] = groups_.try_emplace(group, nullptr);
  if (fresh) known->second = std::make_unique<Group>(w, target_);
  TEMPER_RETURN_IF_ERROR(known->second->legal.Check(template_name, config));
  by_template_[std::string(template_name)].push_back({Text(config), group, std::log(cost_s)});
  return absl::OkStatus();
}

BoosterTrainer::Row BoosterTrainer::RowOf(std::span<const Booster> base, const Workload& w, const TemplateDef& def,
                                          const Config& config, const Target& t) {
  const Footprint footprint = def.footprint(w, config, t);
  Row row{std::vector<float>(FeatureCount(*def.schema)), config};
  Features(footprint, footprint.draft_s, row.closed);
  row.log_draft = std::log(footprint.draft_s);
  for (const Booster& b : base) {
    if (b.template_name != def.name) continue;
    const Matrix matrix = MatrixOf({&row, 1});
    float margin = 0;
    AddMargins(b, matrix.rows, matrix.width, ColumnsOf(b, matrix.knobs, row.closed.size()), {&margin, 1});
    row.log_draft -= margin;
  }
  return row;
}

double CorrectedDraft(std::span<const Booster> boosters, const Workload& w, const TemplateDef& def,
                      const Config& config, const Target& t) {
  return std::exp(BoosterTrainer::RowOf(boosters, w, def, config, t).log_draft);
}

size_t BoosterTrainer::samples(std::string_view template_name) const {
  const auto found = by_template_.find(template_name);
  return found == by_template_.end() ? 0 : found->second.size();
}

void BoosterTrainer::Forget(size_t most) {
  for (auto& [name, samples] : by_template_) {
    if (samples.size() > most) samples.erase(samples.begin(), samples.end() - static_cast<std::ptrdiff_t>(most));
  }
}

absl::StatusOr<std::vector<BoosterTrainer::Row>> BoosterTrainer::RowsOf(const std::string& template_name,
                                                                        std::span<const Sample> samples) const {
  std::vector<Row> rows;
  for (const Sample& s : samples) {
    TEMPER_ASSIGN_OR_RETURN(const Config config, ParseConfig(s.config));
    rows.push_back(RowOf(base_, groups_.at(s.group)->workload, *FindTemplate(template_name), config, target_));
  }
  return rows;
}

BoosterTrainer::Matrix BoosterTrainer::MatrixOf(std::span<const Row> rows) {
  std::map<std::string, size_t> columns;
  for (const Row& r : rows) {
    for (const auto& [knob, value] : r.config.values()) columns.emplace(knob, 0);
  }
  const size_t closed = rows.empty() ? 0 : rows[0].closed.size();
  Matrix matrix;
  for (auto& [knob, column] : columns) {
    column = closed + matrix.knobs.size();
    matrix.knobs.push_back(knob);
  }
  matrix.width = closed + matrix.knobs.size();
  matrix.rows.assign(rows.size() * matrix.width, std::numeric_limits<float>::quiet_NaN());
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::span row = std::span(matrix.rows).subspan(i * matrix.width, matrix.width);
    std::copy(rows[i].closed.begin(), rows[i].closed.end(), row.begin());
    for (const auto& [knob, value] : rows[i].config.values()) row[columns[knob]] = static_cast<float>(value);
  }
  return matrix;
}

absl::StatusOr<std::vector<Booster>> BoosterTrainer::Train(const TrainOptions& options, size_t least) const {
  // A task's templates are compared with one another too, so its samples are labelled together.
  Groups groups;
  std::vector<double> log_draft, log_cost;
  std::map<std::string, Matrix> matrices;
  for (const auto& [name, samples] : by_template_) {
    TEMPER_ASSIGN_OR_RETURN(const std::vector<Row> rows, RowsOf(name, samples));
    for (size_t i = 0; i < samples.size(); ++i) {
      groups[samples[i].group].push_back(log_cost.size());
      log_draft.push_back(rows[i].log_draft);
      log_cost.push_back(samples[i].log_cost);
    }
    matrices[name] = MatrixOf(rows);
  }
  const Labels labels = MakeLabels(groups, log_draft, log_cost, Objective::kResidual);
  std::vector<Booster> boosters;
  size_t first = 0;
  for (const auto& [name, samples] : by_template_) {
    const auto own = [&](const std::vector<float>& all) {
      const auto begin = all.begin() + static_cast<std::ptrdiff_t>(first);
      return std::vector<float>(begin, begin + std::ssize(samples));
    };
    if (samples.size() >= least) {
      Matrix& matrix = matrices[name];
      std::set<int> tasks;
      for (const Sample& s : samples) tasks.insert(s.group);
      const TemplateDef& def = *FindTemplate(name);
      Booster b{name, def.version, def.schema, IsaFamily(target_), std::move(matrix.knobs)};
      b.tasks = static_cast<int>(tasks.size());
      b.samples = static_cast<int>(samples.size());
      TEMPER_ASSIGN_OR_RETURN(
          b.forest,
          TrainForest({matrix.width, std::move(matrix.rows), own(labels.value), own(labels.weight)}, options));
      boosters.push_back(std::move(b));
    }
    first += samples.size();
  }
  return boosters;
}

}  // namespace temper
