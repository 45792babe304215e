// Kernels beside oneDNN and the machine's own limits: every distinct convolution, dense layer and matmul of models,
// with its default schedule, its tuned one (where a database has it) and oneDNN's, in alternating rounds of one run.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "bench/kernels/onednn.h"
#include "bench/kernels/report.h"
#include "measure_worker/sampling.h"
#include "storage/store.h"

namespace temper::bench {
namespace {

struct Options {
  std::vector<std::string> files;
  std::string target = "host", db, device, cache = "model", json;
  int threads = 0, rounds = 20;
  bool no_peer = false;
};

constexpr double kDirectBound = 1e-5;     // of the largest output
constexpr double kMostOfCeiling = 1.01;   // more is a mistake in the measurement
constexpr double kCeilingSeconds = 0.01;  // each time
// OpenMP's threads spin for some milliseconds after a region, on the cores of ours.
constexpr std::chrono::milliseconds kPeersRest{10};

absl::StatusOr<std::optional<BestAnswer>> BestRecord(Store& store, const Options& o, const Workload& w,
                                                     const Target& t) {
  BestQuery query;
  query.workload = Text(w);
  query.anchor = AnchorText(w);
  query.target = Text(t);
  query.device_key = o.device;
  query.threads = t.threads();
  for (const TemplateDef* def : TemplatesFor(w, t)) query.templates.emplace_back(std::string(def->name), def->version);
  return store.Best(query);
}

// None if there is no record, or if its config is of those that the anchor only has where it is fused to others.
absl::StatusOr<std::optional<Contender>> TunedKernel(const Bench& bench,
                                                     const std::shared_ptr<worker::WorkloadState>& state, Store& store,
                                                     const Options& o) {
  const Workload& w = state->workload;
  TEMPER_ASSIGN_OR_RETURN(const std::optional<BestAnswer> best, BestRecord(store, o, w, bench.target));
  const TemplateDef* const def = best.has_value() ? FindTemplate(best->record.template_name) : nullptr;
  if (def == nullptr) return std::nullopt;
  TEMPER_ASSIGN_OR_RETURN(const Config config, ParseConfig(best->record.config));
  if (!def->space(w, bench.target).Check(config).ok()) return std::nullopt;
  return OurKernel(bench, state, "tuned", best->record.template_name, config);
}

absl::StatusOr<Row> MakeRow(const Workload& w, const Bench& bench, Store* store, const Options& o) {
  Row row;
  row.shape = ShortText(w);
  row.workload = Text(w);
  row.flops = Flops(w);
  row.bytes = CompulsoryBytes(w);
  TEMPER_ASSIGN_OR_RETURN(const auto state, worker::MakeWorkloadState(*bench.device, w, 1));
  TEMPER_ASSIGN_OR_RETURN(const Choice choice, DefaultChoice(w, bench.target));
  TEMPER_ASSIGN_OR_RETURN(Contender untuned,
                          OurKernel(bench, state, "default", std::string(choice.def->name), choice.config));
  row.contenders.push_back(std::move(untuned));
  if (store != nullptr) {
    TEMPER_ASSIGN_OR_RETURN(std::optional<Contender> tuned, TunedKernel(bench, state, *store, o));
    if (tuned.has_value()) row.contenders.push_back(*std::move(tuned));
  }
  for (const Contender& c : row.contenders) {
    if (c.error > kDirectBound && !c.winograd())
      return absl::DataLossError(absl::StrCat(row.workload, ": ", c.what, " is off by ", c.error));
  }
  if (o.no_peer) return row;
  absl::StatusOr<Contender> peer = OneDnnKernel(bench, state);
  if (peer.ok())
    row.contenders.push_back(*std::move(peer));
  else
    row.no_peer = std::string(peer.status().message());
  return row;
}

absl::Status Measure(Row& row, const Bench& bench, const Options& o) {
  const int n = static_cast<int>(row.contenders.size());
  const auto raise_ceiling = [&] {
    const double flops = MeasureFlops(bench.launcher(), bench.target.cpu()->vector_bits, kCeilingSeconds);
    row.roofline.flops_per_s = std::max(row.roofline.flops_per_s, flops);
  };
  for (int round = 0; round < o.rounds; ++round) {
    raise_ceiling();
    for (int turn = 0; turn < n; ++turn) {
      if (bench.target.threads() > 1) std::this_thread::sleep_for(kPeersRest);
      TakeSample(row.contenders[static_cast<size_t>(worker::InterleavedIndex(round, turn, n))]);
    }
  }
  raise_ceiling();
  for (Contender& c : row.contenders) {
    if (absl::Status status = c.program->CheckAfterwards(); !status.ok())
      return absl::Status(status.code(), absl::StrCat(row.shape, ": ", c.name, ": ", status.message()));
    c.program.reset();
  }
  return absl::OkStatus();
}

absl::Status CheckCeiling(const std::vector<Row>& rows) {
  for (const Row& row : rows) {
    for (const Contender& c : row.contenders) {
      if (c.name == "onednn" || c.winograd() || row.OfCeiling(c) <= kMostOfCeiling) continue;
      return absl::InternalError(absl::StrCat(row.shape, ": ", c.name, " at ", 100 * row.OfCeiling(c),
                                              " % of the ceiling: the measurement is wrong"));
    }
  }
  return absl::OkStatus();
}

absl::Status Run(const Options& o) {
  TEMPER_ASSIGN_OR_RETURN(const Bench bench, Bench::Make(o.target, o.threads, o.cache));
  TEMPER_RETURN_IF_ERROR(SetUpOneDnn(*bench.target.cpu()));
  TEMPER_ASSIGN_OR_RETURN(const std::vector<Workload> anchors, ReadAnchors(o.files));
  std::unique_ptr<Store> store;
  if (!o.db.empty()) {
    TEMPER_ASSIGN_OR_RETURN(store, OpenStore(o.db, OpenMode::kReadOnly));
  }
  constexpr double kRooflineSeconds = 0.5;
  const auto measure_machine = [&] {
    return MeasureRoofline(bench.launcher(), bench.target.cpu()->vector_bits, bench.target.cpu()->l3_bytes,
                           kRooflineSeconds);
  };
  Roofline machine = measure_machine();
  std::printf("%s; %d threads, caches as in '%s', %d rounds; %.1f GFLOP/s, %.1f GB/s, ridge %.1f FLOP/B\n",
              Text(bench.target).c_str(), bench.target.threads(), o.cache.c_str(), o.rounds, machine.flops_per_s * 1e-9,
              machine.bytes_per_s * 1e-9, machine.ridge());
  PrintHeader();
  std::vector<Row> rows;
  for (const Workload& w : anchors) {
    TEMPER_ASSIGN_OR_RETURN(Row row, MakeRow(w, bench, store.get(), o));
    row.roofline.bytes_per_s = machine.bytes_per_s;
    TEMPER_RETURN_IF_ERROR(Measure(row, bench, o));
    PrintRow(row);
    rows.push_back(std::move(row));
  }
  machine.Raise(measure_machine());
  nlohmann::ordered_json json = {{"target", Text(bench.target)},
                                 {"threads", bench.target.threads()},
                                 {"cache_policy", o.cache},
                                 {"rounds", o.rounds},
                                 {"ceiling_gflops", machine.flops_per_s * 1e-9},
                                 {"bandwidth_gbytes_per_s", machine.bytes_per_s * 1e-9},
                                 {"rows", nlohmann::ordered_json::array()}};
  for (Row& row : rows) {
    row.roofline.bytes_per_s = machine.bytes_per_s;
    json["rows"].push_back(ToJson(row));
  }
  for (const std::string name : {"default", "tuned"}) {
    const Summary summary = Summarize(rows, name);
    if (summary.shapes == 0) continue;
    PrintSummary(name, summary);
    json["summary"][name] = ToJson(summary);
  }
  if (!o.json.empty()) {
    std::ofstream out(o.json);
    out << json.dump(1) << "\n";
    if (!out.flush()) return absl::UnavailableError(absl::StrCat("cannot write ", o.json));
  }
  return CheckCeiling(rows);
}

int Main(int argc, char** argv) {
  Options o;
  CLI::App app("Times kernels beside oneDNN and the machine's limits.");
  app.add_option("tasks", o.files, "files of `temper tasks MODEL --json`; - is standard input")->required();
  app.add_option("--target", o.target, "what to compile for: host, llvm:haswell, ...");
  app.add_option("--db", o.db, "records: the best is timed beside the default");
  app.add_option("--device", o.device, "device key of the records");
  app.add_option("--threads", o.threads, "threads (default: TEMPER_NUM_THREADS, else the affinity mask)");
  app.add_option("--rounds", o.rounds, "alternating rounds, a sample of each a round")->check(CLI::PositiveNumber);
  app.add_option("--cache", o.cache, "how calls find the caches: model, warm or flushed");
  app.add_option("--json", o.json, "file for all that was measured");
  app.add_flag("--no-peer", o.no_peer, "without oneDNN");
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = Run(o);
  if (!status.ok()) std::fprintf(stderr, "bench_kernels: %s\n", std::string(status.message()).c_str());
  return status.ok() ? 0 : 1;
}

}  // namespace
}  // namespace temper::bench

int main(int argc, char** argv) { return temper::bench::Main(argc, argv); }
