// The draft against the clock: of each shape's configs the ones the draft likes best and others drawn at random are
// timed, and the time of the draft's first choice is set beside the best that was found.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "base/rng.h"
#include "bench/kernels/shapes.h"
#include "compiler/timing/roofline.h"

namespace temper::bench {
namespace {

struct Options {
  std::vector<std::string> files;
  std::string target = "host", cache = "model", json;
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

absl::Status Run(const Options& o) {
  TEMPER_ASSIGN_OR_RETURN(const Bench bench, Bench::Make(o.target, o.threads, o.cache));
  TEMPER_ASSIGN_OR_RETURN(const std::vector<Workload> anchors, ReadAnchors(o.files));
  std::ofstream json;
  if (!o.json.empty()) json.open(o.json);
  Rng rng(1);
  for (const Workload& w : anchors) {
    TEMPER_ASSIGN_OR_RETURN(const auto state, worker::MakeWorkloadState(*bench.device, w, 1));
    std::vector<Candidate> candidates = Pick(w, bench, o, rng);
    const double ceiling = MeasureFlops(bench.launcher(), bench.target.cpu()->vector_bits, 0.05);
    TEMPER_RETURN_IF_ERROR(Time(candidates, bench, state, o.samples));
    if (json.is_open()) {
      for (const Candidate& c : candidates) json << ToJson(c, w, bench.target).dump() << std::endl;
    }
    const Candidate first = candidates.front();
    std::ranges::stable_sort(candidates, {}, &Candidate::measured_s);
    const auto gflops = [&](const Candidate& c) { return Flops(w) / c.measured_s * 1e-9; };
    std::printf("%-44s ceiling %.1f; first choice %s: %.1f GFLOP/s, %.3f of the best of %zu, %s: %.1f\n",
                ShortText(w).c_str(), ceiling * 1e-9, Text(first.config).c_str(), gflops(first),
                candidates[0].measured_s / first.measured_s, candidates.size(), Text(candidates[0].config).c_str(),
                gflops(candidates[0]));
    std::fflush(stdout);
  }
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  Options o;
  CLI::App app("Times configs that the draft likes, and others, and shows what the draft's choice loses.");
  app.add_option("tasks", o.files, "files of `temper tasks MODEL --json`; - is standard input")->required();
  app.add_option("--target", o.target, "what to compile for: host, llvm:haswell, ...");
  app.add_option("--threads", o.threads, "threads (default: TEMPER_NUM_THREADS, else the affinity mask)");
  app.add_option("--cache", o.cache, "how calls find the caches: model, warm or flushed");
  app.add_option("--first", o.first, "configs from the head of the draft's order")->check(CLI::PositiveNumber);
  app.add_option("--random", o.random, "and others, drawn at random")->check(CLI::NonNegativeNumber);
  app.add_option("--samples", o.samples, "samples of each, the best of which counts")->check(CLI::PositiveNumber);
  app.add_option("--json", o.json, "file for one line a config: times, draft, footprint");
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = Run(o);
  if (!status.ok()) std::fprintf(stderr, "bench_draft: %s\n", std::string(status.message()).c_str());
  return status.ok() ? 0 : 1;
}

}  // namespace
}  // namespace temper::bench

int main(int argc, char** argv) { return temper::bench::Main(argc, argv); }
