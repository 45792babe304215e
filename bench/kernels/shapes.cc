#include "bench/kernels/shapes.h"

#include <algorithm>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "measure_worker/compare.h"
#include "measure_worker/sampling.h"

namespace temper::bench {
namespace {

constexpr int64_t kSampleUs = 3000;

bool IsContraction(const Workload::Call& call) { return FindOp(call.op)->pattern == OpPattern::kAnchor; }

absl::Status ReadLines(std::istream& in, const std::string& name, bool several, std::set<std::string>* seen,
                       std::vector<Workload>* anchors) {
  for (std::string line; std::getline(in, line);) {
    const nlohmann::json task = nlohmann::json::parse(line, nullptr, false);
    if (!task.is_object() || !task.contains("workload"))
      return absl::InvalidArgumentError(absl::StrCat(name, ": not a line of `temper tasks --json`: ", line));
    TEMPER_ASSIGN_OR_RETURN(const Workload whole, ParseWorkload(task["workload"].get<std::string>()));
    if (!IsContraction(whole.calls[static_cast<size_t>(whole.anchor)])) continue;
    const bool keeps_all = several && std::ranges::count_if(whole.calls, IsContraction) > 1;
    const std::string text = keeps_all ? Text(whole) : AnchorText(whole);
    if (!seen->insert(text).second) continue;
    TEMPER_ASSIGN_OR_RETURN(Workload anchor, ParseWorkload(text));
    anchors->push_back(std::move(anchor));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<Workload>> ReadAnchors(const std::vector<std::string>& files, bool several) {
  std::set<std::string> seen;
  std::vector<Workload> anchors;
  for (const std::string& file : files) {
    if (file == "-") {
      TEMPER_RETURN_IF_ERROR(ReadLines(std::cin, "standard input", several, &seen, &anchors));
      continue;
    }
    std::ifstream in(file);
    if (!in) return absl::NotFoundError(absl::StrCat("cannot open ", file));
    TEMPER_RETURN_IF_ERROR(ReadLines(in, file, several, &seen, &anchors));
  }
  return anchors;
}

std::string ShortText(const Workload& w) {
  const Workload::Call& call = w.calls[0];
  std::string text = absl::StrCat(call.op, " ", ShapeText(w.TypeOf(call.args[0]).shape), " * ",
                                  ShapeText(w.TypeOf(call.args[1]).shape));
  const int64_t group = call.attrs.Int("group", 1);
  const std::vector<int64_t> strides = call.attrs.Ints("strides");
  if (!strides.empty() && strides[0] != 1) absl::StrAppend(&text, " /", strides[0]);
  if (group > 1) absl::StrAppend(&text, " g", group);
  if (call.attrs.Int("trans_a", 0) != 0) absl::StrAppend(&text, " ta");
  if (call.attrs.Int("trans_b", 0) != 0) absl::StrAppend(&text, " tb");
  return text;
}

absl::StatusOr<Bench> Bench::Make(const std::string& target, int threads, const std::string& cache_policy) {
  Bench b;
  TEMPER_ASSIGN_OR_RETURN(b.target, ParseTarget(target));
  if (CpuTarget* cpu = b.target.cpu()) cpu->threads = temper_pool_resolve_threads(threads);
  b.device = std::make_unique<worker::CpuDevice>();
  TEMPER_RETURN_IF_ERROR(b.device->Use(b.target));
  b.code = std::make_unique<worker::CodeCache>(*b.device);
  TEMPER_ASSIGN_OR_RETURN(b.cache, worker::MakeCachePlan(cache_policy, b.device->caches()));
  b.cache.handed_over = false;  // oneDNN's activations, in arrays of its own, are warm: ours too
  return b;
}

absl::StatusOr<Contender> OurKernel(const Bench& bench, const std::shared_ptr<worker::WorkloadState>& state,
                                    const std::string& name, const std::string& template_name, const Config& config) {
  Contender c;
  c.name = name;
  c.what = absl::StrCat(template_name, " ", Text(config));
  TEMPER_ASSIGN_OR_RETURN(const Kernel kernel, BuildKernel(state->workload, template_name, config, bench.target));
  TEMPER_ASSIGN_OR_RETURN(worker::LoadedKernel code, bench.code->Load(kernel));
  c.program = worker::NewProgram(std::move(code), state, bench.cache);
  if (absl::Status status = c.program->Verify().status(); !status.ok())
    return absl::Status(status.code(), absl::StrCat(c.what, ": ", status.message()));
  c.error = worker::OutputError(state->output->address(0), state->reference);
  return c;
}

void TakeSample(Contender& c) {
  const worker::TimeFn time = [&](int64_t calls) { return c.program->Time(calls); };
  if (c.samples_s.empty())
    c.calls = worker::FindCalls(time, kSampleUs);
  else
    time(1);
  c.samples_s.push_back(time(c.calls) / static_cast<double>(c.calls));
}

}  // namespace temper::bench
