// temper pretrain: measures drawn shapes, trains the boosters that Temper ships, and says how much they help. What is
// measured lies in the database, so that an interrupted run goes on where it was, and training alone costs seconds.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "cli/command.h"
#include "cli/local_fleet.h"
#include "cli/report/progress.h"
#include "compiler/codegen/codegen.h"
#include "compiler/ops/legal_configs.h"
#include "cost_model/booster.h"
#include "cost_model/training_shapes.h"

namespace temper {
namespace {

constexpr size_t kShapesAJob = 8;
constexpr int kHeldOutEvery = 5;        // shapes, to see whether boosters help with what they were not trained on
constexpr size_t kFewestSamples = 200;  // of a template: fewer make no booster
constexpr TrainOptions kTraining{.rounds = 60, .depth = 5, .eta = 0.15, .least_weight = 8};

struct PretrainOptions {
  RecordOptions records;
  std::string out, time_budget = "15m", cores;
  int shapes = 400, configs = 32;
  uint64_t seed = 1;
};

// One drawn shape and what is known of it.
struct DrawnShape {
  Workload workload;
  std::string text;
  std::vector<Record> records;  // searched; of this build's template versions and spaces
};

std::vector<DrawnShape> DrawShapes(const PretrainOptions& o) {
  ShapeGenerator generator(o.seed, BenchShapes());
  std::vector<DrawnShape> shapes;
  for (int i = 0; i < o.shapes; ++i) {
    Workload w = generator.Next();
    std::string text = Text(w);
    shapes.push_back({std::move(w), std::move(text), {}});
  }
  return shapes;
}

// Fills in what the database holds of the shapes, all for the target that most of it is for, and returns that; nullopt:
// it holds nothing, or is not there yet.
absl::StatusOr<std::optional<Target>> ReadRecords(const PretrainOptions& o, std::vector<DrawnShape>* shapes) {
  const std::string path = DatabasePath(o.records);
  if (!std::filesystem::exists(path)) return std::nullopt;
  TEMPER_ASSIGN_OR_RETURN(const std::unique_ptr<Store> store, OpenStore(path, OpenMode::kReadOnly));
  std::map<std::string, int> targets;
  for (DrawnShape& shape : *shapes) {
    shape.records.clear();
    const RecordFilter filter{.workload = shape.text, .device_key = o.records.device, .purpose = "search"};
    TEMPER_RETURN_IF_ERROR(store->Scan(filter, [&](const Record& r) {
      const absl::StatusOr<Target> made_for = ParseTarget(r.target);
      const bool ours =
          IsOfThisBuild(r.template_name, r.template_version) && made_for.ok() && r.codegen_id == CodegenId(*made_for);
      if (!ours || r.outcome == Outcome::kInfrastructure) return;
      shape.records.push_back(r);
      ++targets[r.target];
    }));
  }
  if (targets.empty()) return std::nullopt;
  const std::string target = std::max_element(targets.begin(), targets.end(), [](const auto& a, const auto& b) {
                               return a.second < b.second;
                             })->first;
  TEMPER_ASSIGN_OR_RETURN(const Target made_for, ParseTarget(target));
  for (DrawnShape& shape : *shapes) {
    LegalConfigs legal(shape.workload, made_for);
    std::erase_if(shape.records,
                  [&](const Record& r) { return r.target != target || !legal.Read(r.template_name, r.config).ok(); });
  }
  return made_for;
}

// Measures a job's worth of shapes. OK when it is done or its time is over.
absl::Status MeasureShapes(const PretrainOptions& o, std::span<const DrawnShape* const> shapes, absl::Duration left,
                           TunerClient& client, StopSignal* stop, int* trials) {
  v1::SubmitJobRequest request;
  request.set_model("pretrain");
  for (const DrawnShape* shape : shapes) request.add_workloads(shape->text);
  request.set_device_key(o.records.device);
  request.set_tuner("xgb");
  request.set_trials_per_task(o.configs);
  request.set_time_budget_ms(std::max<int64_t>(1, absl::ToInt64Milliseconds(left)));
  request.set_seed(o.seed);
  request.set_wait_for_device_ms(30'000);
  request.set_close_with_command(true);
  request.set_no_booster(true);
  TEMPER_ASSIGN_OR_RETURN(const int64_t job, client.SubmitJob(request));
  WatchedJob view;
  const absl::Status watched = client.WatchJob(
      job,
      [&](const v1::JobEvent& event) {
        view.Apply(event);
        return true;
      },
      absl::Seconds(1), stop);
  if (!watched.ok()) (void)client.CancelJob(job);
  TEMPER_RETURN_IF_ERROR(watched);
  *trials += view.latest.trials();
  // A shape of which nothing can be measured is none to train on, and no reason to stop.
  if (view.latest.state() != "done" && view.latest.trials() > 0) return absl::AbortedError(view.latest.reason());
  return absl::OkStatus();
}

absl::Status Measure(const PretrainOptions& o, absl::Duration budget, const std::vector<DrawnShape>& shapes) {
  const absl::Duration start = Clock::System().Monotonic();
  std::vector<const DrawnShape*> missing;
  for (const DrawnShape& shape : shapes) {
    if (shape.records.size() < static_cast<size_t>(o.configs) / 2) missing.push_back(&shape);
  }
  if (missing.empty() || budget <= absl::ZeroDuration()) return absl::OkStatus();
  StopSignal stop;
  Interrupts interrupts([&] { stop.Cancel(); });
  LocalFleet fleet;
  std::unique_ptr<TunerClient> client;
  TEMPER_RETURN_IF_ERROR(StartLocal(o.records, o.cores, &fleet, &client, [&] { stop.Cancel(); }).status());
  int trials = 0;
  for (size_t first = 0; first < missing.size(); first += kShapesAJob) {
    const absl::Duration used = Clock::System().Monotonic() - start;
    if (used >= budget) break;
    const std::span some = std::span(missing).subspan(first, std::min(kShapesAJob, missing.size() - first));
    const absl::Status measured = MeasureShapes(o, some, budget - used, *client, &stop, &trials);
    if (interrupts.interrupted())
      return absl::CancelledError("interrupted: what was measured is kept, the same command goes on from there");
    if (const std::string broken = fleet.Broken(); !measured.ok() && !broken.empty()) return absl::AbortedError(broken);
    TEMPER_RETURN_IF_ERROR(measured);
    std::fprintf(stderr, "%zu of %zu shapes, %d trials, %.0f s\n", first + some.size(), missing.size(), trials,
                 absl::ToDoubleSeconds(Clock::System().Monotonic() - start));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Booster>> Train(const std::vector<DrawnShape>& shapes, const Target& target, bool hold_out) {
  BoosterTrainer trainer(target, {});
  for (size_t i = 0; i < shapes.size(); ++i) {
    if (hold_out && i % kHeldOutEvery == 0) continue;
    for (const Record& r : shapes[i].records) {
      TEMPER_ASSIGN_OR_RETURN(const Config config, ParseConfig(r.config));
      TEMPER_RETURN_IF_ERROR(
          trainer.Add(shapes[i].workload, static_cast<int>(i), r.template_name, config, MedianCost(r)));
    }
  }
  return trainer.Train(kTraining, kFewestSamples);
}

// How much slower the best of the first `trials` is than the best known, where what is known of the shape is tried in
// the order of the draft as the boosters correct it.
absl::StatusOr<double> Regret(const DrawnShape& shape, const Target& target, std::span<const Booster> boosters,
                              int trials) {
  std::vector<std::pair<double, double>> by_draft;  // and seconds
  double best = std::numeric_limits<double>::infinity(), found = best;
  for (const Record& r : shape.records) {
    TEMPER_ASSIGN_OR_RETURN(const Config config, ParseConfig(r.config));
    const TemplateDef& def = *FindTemplate(r.template_name);
    by_draft.emplace_back(CorrectedDraft(boosters, shape.workload, def, config, target), MedianCost(r));
    best = std::min(best, MedianCost(r));
  }
  std::sort(by_draft.begin(), by_draft.end());
  for (size_t i = 0; i < by_draft.size() && i < static_cast<size_t>(trials); ++i)
    found = std::min(found, by_draft[i].second);
  return found / best - 1;
}

absl::Status PrintHelp(const std::vector<DrawnShape>& shapes, const Target& target) {
  TEMPER_ASSIGN_OR_RETURN(const std::vector<Booster> boosters, Train(shapes, target, true));
  std::printf(
      "held-out shapes, tried in order of their draft: slower than the best known after so many trials, median\n");
  for (int trials : {1, 2, 4, 8, 16}) {
    std::vector<double> without, with;
    for (size_t i = 0; i < shapes.size(); i += kHeldOutEvery) {
      const auto works = [](const Record& r) { return r.ok(); };
      if (std::none_of(shapes[i].records.begin(), shapes[i].records.end(), works)) continue;
      TEMPER_ASSIGN_OR_RETURN(without.emplace_back(), Regret(shapes[i], target, {}, trials));
      TEMPER_ASSIGN_OR_RETURN(with.emplace_back(), Regret(shapes[i], target, boosters, trials));
    }
    if (with.empty()) return absl::OkStatus();
    const auto median = [](std::vector<double>& v) {
      std::nth_element(v.begin(), v.begin() + std::ssize(v) / 2, v.end());
      return 100 * v[v.size() / 2];
    };
    std::printf("  %2d trials: %6.2f %% by the draft alone, %6.2f %% with boosters (%zu shapes)\n", trials,
                median(without), median(with), with.size());
  }
  return absl::OkStatus();
}

absl::Status Write(const std::string& path, const std::string& text) {
  std::ofstream out(path);
  out << text;
  out.close();
  if (!out) return absl::UnavailableError(absl::StrCat("cannot write ", path));
  return absl::OkStatus();
}

absl::Status Pretrain(PretrainOptions o) {
  absl::Duration budget;
  if (!absl::ParseDuration(o.time_budget, &budget) || budget < absl::ZeroDuration())
    return absl::InvalidArgumentError(absl::StrCat("--time-budget ", o.time_budget, ": expected a time such as 10m"));
  if (o.records.device.empty()) o.records.device = kLocalDevice;
  std::vector<DrawnShape> shapes = DrawShapes(o);
  TEMPER_RETURN_IF_ERROR(ReadRecords(o, &shapes).status());
  TEMPER_RETURN_IF_ERROR(Measure(o, budget, shapes));
  TEMPER_ASSIGN_OR_RETURN(const std::optional<Target> target, ReadRecords(o, &shapes));
  std::erase_if(shapes, [](const DrawnShape& shape) { return shape.records.empty(); });
  std::vector<Booster> boosters;
  if (target.has_value()) {
    TEMPER_ASSIGN_OR_RETURN(boosters, Train(shapes, *target, false));
  }
  if (boosters.empty())
    return absl::FailedPreconditionError("too little was measured to train on: give more --shapes or --time-budget");
  TEMPER_RETURN_IF_ERROR(PrintHelp(shapes, *target));
  std::error_code ignored;  // writing says what is wrong
  std::filesystem::create_directories(o.out, ignored);
  for (const Booster& b : boosters) {
    const std::string path = absl::StrCat(o.out, "/", b.template_name, "-", b.isa, ".booster"), text = Text(b);
    TEMPER_RETURN_IF_ERROR(Write(path, text));
    std::printf("%s: version %d, %d shapes, %d samples, %zu KiB\n", path.c_str(), b.template_version, b.tasks,
                b.samples, text.size() >> 10);
  }
  return absl::OkStatus();
}

}  // namespace

void AddPretrain(CLI::App& app, Action* action) {
  auto o = std::make_shared<PretrainOptions>();
  CLI::App* command = app.add_subcommand(
      "pretrain", "measure drawn shapes, none near a benchmark's, and train the boosters that searches begin at");
  command->add_option("--db", o->records.db, "database that keeps the measurements; a run goes on from what it holds")
      ->required();
  command->add_option("-o,--output", o->out, "folder for the boosters (Temper's own: cost_model/boosters)")->required();
  command->add_option("--shapes", o->shapes, "number of shapes to draw")->check(AboveZero())->capture_default_str();
  command->add_option("--configs", o->configs, "number of configs to measure of each shape")
      ->check(AboveZero())
      ->capture_default_str();
  command->add_option("--time-budget", o->time_budget, "time for measuring; 0: only train")->capture_default_str();
  command->add_option("--seed", o->seed, "seed of the shapes and the searches")->capture_default_str();
  command->add_option("--device", o->records.device, "device key of the records (default: local)");
  command->add_option("--target", o->records.target, "what to generate code for, such as llvm:haswell");
  command->add_option("--cores", o->cores, "cores to measure on, such as cpu:0-1");
  command->footer("Example:\n  temper pretrain --db pretrain.db -o cost_model/boosters");
  command->callback([o, action] { *action = [o] { return Pretrain(*o); }; });
}

}  // namespace temper
