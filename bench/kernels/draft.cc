// The draft against the clock: of each shape's configs the ones the draft likes best and others drawn at random are
// timed, and the time of the draft's first choice is set beside the best that was found.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "base/rng.h"
#include "bench/kernels/shapes.h"
#include "compiler/timing/roofline.h"

namespace temper::bench {
namespace {

struct Options {
  std::vector<std::string> files;
  std::string target = "host", cache = "model", json, replay;
  int threads = 0, first = 16, random = 48, samples = 5;
};

struct Candidate {
  const TemplateDef* def;
  Config config;
  double draft_s, measured_s = 0;
};

// All configs, the draft's favourites first, cut to those that shall be timed.
std::vector<Candidate> Pick(const Workload& w, const Bench& bench, const Options& o, Rng& rng) {
  constexpr int64_t kLimit = 16384;
  std::vector<Candidate> all;
  for (const TemplateDef* def : TemplatesFor(w, bench.target)) {
    for (Config& config : def->space(w, bench.target).Enumerate(kLimit)) {
      const double draft_s = def->footprint(w, config, bench.target).draft_s;
      all.push_back({def, std::move(config), draft_s});
    }
  }
  std::ranges::stable_sort(all, {}, &Candidate::draft_s);
  const size_t first = std::min(all.size(), static_cast<size_t>(o.first));
  const size_t wanted = std::min(all.size(), first + static_cast<size_t>(o.random));
  for (size_t i = first; i < wanted; ++i) std::swap(all[i], all[i + rng.Below(all.size() - i)]);
  all.resize(wanted);
  return all;
}

// In turns, so that a noisy moment meets all of them.
absl::Status Time(std::vector<Candidate>& candidates, const Bench& bench,
                  const std::shared_ptr<worker::WorkloadState>& state, int samples) {
  std::vector<Contender> contenders;
  for (const Candidate& c : candidates) {
    TEMPER_ASSIGN_OR_RETURN(Contender made, OurKernel(bench, state, "candidate", std::string(c.def->name), c.config));
    contenders.push_back(std::move(made));
  }
  for (int i = 0; i < samples; ++i) {
    for (Contender& c : contenders) TakeSample(c);
  }
  for (size_t i = 0; i < candidates.size(); ++i)
    candidates[i].measured_s = *std::ranges::min_element(contenders[i].samples_s);
  return absl::OkStatus();
}

nlohmann::ordered_json ToJson(const Candidate& c, const Workload& w, const Target& t) {
  nlohmann::ordered_json footprint;
  const Footprint f = c.def->footprint(w, c.config, t);
  for (size_t i = 0; i < f.values.size(); ++i) footprint[std::string(f.schema->names[i])] = f.values[i];
  return {{"shape", ShortText(w)},
          {"workload", Text(w)},
          {"template", c.def->name},
          {"config", Text(c.config)},
          {"draft_s", c.draft_s},
          {"measured_s", c.measured_s},
          {"footprint", std::move(footprint)}};
}

// One line a shape, and how much of the best the draft's first choices have in the geometric mean.
class Report {
 public:
  void Add(const Workload& w, const std::vector<Candidate>& candidates, const std::string& note) {
    const Candidate& first = *std::ranges::min_element(candidates, {}, &Candidate::draft_s);
    const Candidate& best = *std::ranges::min_element(candidates, {}, &Candidate::measured_s);
    const auto gflops = [&](const Candidate& c) { return Flops(w) / c.measured_s * 1e-9; };
    const double share = best.measured_s / first.measured_s;
    std::printf("%-44s %sfirst choice %s: %.1f GFLOP/s, %.3f of the best of %zu, %s: %.1f\n", ShortText(w).c_str(),
                note.c_str(), Text(first.config).c_str(), gflops(first), share, candidates.size(),
                Text(best.config).c_str(), gflops(best));
    std::fflush(stdout);
    log_share_ += std::log(share);
    ++shapes_;
  }
  void End() const {
    if (shapes_ > 0)
      std::printf("first choices have %.4f of the best of %d shapes\n", std::exp(log_share_ / shapes_), shapes_);
  }

 private:
  double log_share_ = 0;
  int shapes_ = 0;
};

absl::StatusOr<Candidate> ParseCandidate(const nlohmann::json& line, const Workload& w, const Target& t) {
  const TemplateDef* def = FindTemplate(line.at("template").get<std::string>());
  if (def == nullptr || !def->matches(w, t)) return absl::InvalidArgumentError("a template that does not fit");
  TEMPER_ASSIGN_OR_RETURN(Config config, ParseConfig(line.at("config").get<std::string>()));
  TEMPER_RETURN_IF_ERROR(def->space(w, t).Check(config));
  const double draft_s = def->footprint(w, config, t).draft_s;
  return Candidate{def, std::move(config), draft_s, line.at("measured_s").get<double>()};
}

// What an earlier run measured, held against the draft as it is now. Configs that there are no more are left out.
absl::Status Replay(const Options& o, const Target& t) {
  std::ifstream in(o.replay);
  std::map<std::string, std::vector<Candidate>> measured;
  std::vector<Workload> shapes;
  for (std::string text; std::getline(in, text);) {
    const nlohmann::json line = nlohmann::json::parse(text, nullptr, false);
    for (const char* field : {"workload", "template", "config", "measured_s"}) {
      if (!line.is_object() || !line.contains(field))
        return absl::InvalidArgumentError(absl::StrCat(o.replay, " has a line without ", field));
    }
    const std::string name = line.at("workload").get<std::string>();
    TEMPER_ASSIGN_OR_RETURN(Workload w, ParseWorkload(name));
    absl::StatusOr<Candidate> candidate = ParseCandidate(line, w, t);
    if (!candidate.ok()) continue;
    std::vector<Candidate>& all = measured[name];
    if (all.empty()) shapes.push_back(std::move(w));
    all.push_back(*std::move(candidate));
  }
  Report report;
  for (const Workload& w : shapes) report.Add(w, measured[Text(w)], "");
  report.End();
  return absl::OkStatus();
}

absl::Status Run(const Options& o) {
  TEMPER_ASSIGN_OR_RETURN(const Bench bench, Bench::Make(o.target, o.threads, o.cache));
  if (!o.replay.empty()) return Replay(o, bench.target);
  TEMPER_ASSIGN_OR_RETURN(const std::vector<Workload> anchors, ReadAnchors(o.files, /*several=*/true));
  std::ofstream json;
  if (!o.json.empty()) json.open(o.json);
  Rng rng(1);
  Report report;
  for (const Workload& w : anchors) {
    TEMPER_ASSIGN_OR_RETURN(const auto state, worker::MakeWorkloadState(*bench.device, w, 1));
    std::vector<Candidate> candidates = Pick(w, bench, o, rng);
    const double ceiling = MeasureFlops(bench.launcher(), bench.target.cpu()->vector_bits, 0.05);
    TEMPER_RETURN_IF_ERROR(Time(candidates, bench, state, o.samples));
    if (json.is_open()) {
      for (const Candidate& c : candidates) json << ToJson(c, w, bench.target).dump() << std::endl;
    }
    report.Add(w, candidates, absl::StrCat("ceiling ", std::lround(ceiling * 1e-9), "; "));
  }
  report.End();
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  Options o;
  CLI::App app("Times configs that the draft likes, and others, and shows what the draft's choice loses.");
  CLI::Option_group* const what = app.add_option_group("what", "to time, or was timed");
  what->require_option(1);
  what->add_option("tasks", o.files, "files of `temper tasks MODEL --json`; - is standard input");
  app.add_option("--target", o.target, "what to compile for: host, llvm:haswell, ...");
  app.add_option("--threads", o.threads, "threads (default: TEMPER_NUM_THREADS, else the affinity mask)");
  app.add_option("--cache", o.cache, "how calls find the caches: model, warm or flushed");
  app.add_option("--first", o.first, "configs from the head of the draft's order")->check(CLI::PositiveNumber);
  app.add_option("--random", o.random, "and others, drawn at random")->check(CLI::NonNegativeNumber);
  app.add_option("--samples", o.samples, "samples of each, the best of which counts")->check(CLI::PositiveNumber);
  what->add_option("--replay", o.replay, "what --json wrote: nothing is timed, and the draft of today chooses")
      ->check(CLI::ExistingFile);
  app.add_option("--json", o.json, "file for one line a config: times, draft, footprint");
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = Run(o);
  if (!status.ok()) std::fprintf(stderr, "bench_draft: %s\n", std::string(status.message()).c_str());
  return status.ok() ? 0 : 1;
}

}  // namespace
}  // namespace temper::bench

int main(int argc, char** argv) { return temper::bench::Main(argc, argv); }
