#include "cli/build.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/utf8.h"
#include "cli/json_line.h"
#include "cli/report/words.h"
#include "compiler/graph/alternatives.h"
#include "compiler/graph/extract.h"
#include "compiler/ops/describe.h"
#include "compiler/package/shared_constants.h"
#include "compiler/target/threads.h"

namespace temper {
namespace {

std::vector<std::string> Ids(const std::vector<Workload>& workloads) {
  std::vector<std::string> ids;
  for (const Workload& w : workloads) ids.push_back(KernelId(Text(w)));
  return ids;
}

// Alternatives of the same kernels are decided alike, also in several variants: as where they are met first.
absl::Status DecideAlternatives(const Graph& graph, std::vector<bool>& taken, std::vector<LockedAlternative>& known) {
  TEMPER_ASSIGN_OR_RETURN(const std::vector<AlternativeKernels> all, KernelsOfAlternatives(graph));
  for (size_t i = 0; i < all.size(); ++i) {
    LockedAlternative a{Ids(all[i].replaced), Ids(all[i].instead), taken[i]};
    const auto met = std::ranges::find_if(
        known, [&](const LockedAlternative& k) { return k.replaced == a.replaced && k.instead == a.instead; });
    if (met == known.end())
      known.push_back(std::move(a));
    else
      taken[i] = met->taken;
  }
  return absl::OkStatus();
}

// Calls `add` with each variant's graph, optimised for the plan's target, and its name, and keeps it in the plan.
template <typename F>
absl::Status LoadVariants(const ModelOptions& model, BuildPlan& plan, const F& add) {
  TEMPER_ASSIGN_OR_RETURN(std::vector<ModelVariant> variants, VariantsOf(model));
  SharedConstants constants;
  for (ModelVariant& v : variants) {
    absl::StatusOr<Graph> graph = LoadModel(v.options, plan.target);
    if (!graph.ok() && variants.size() > 1)
      return absl::Status(graph.status().code(), absl::StrCat(v.name, ": ", std::string(graph.status().message())));
    TEMPER_RETURN_IF_ERROR(graph.status());
    if (variants.size() > 1) constants.Share(*graph);
    TEMPER_RETURN_IF_ERROR(add(*graph, v.name));
    plan.variants.push_back({std::move(v.name), *std::move(graph)});
  }
  return absl::OkStatus();
}

// The lock decides; what was said on the command line too may not be something else.
absl::StatusOr<ModelOptions> OptionsOf(const ModelOptions& given, const Lock& lock, const LockPins& pins) {
  ModelOptions model = given;
  for (std::vector<std::string>* said : {&model.shapes, &model.dims, &model.values}) std::ranges::sort(*said);
  const auto other = [&](const char* what, const std::vector<std::string>& said,
                         const std::vector<std::string>& pinned) {
    if (said.empty() || said == pinned) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat(lock.path, " was made with other ", what, " gives"));
  };
  TEMPER_RETURN_IF_ERROR(other("shapes than --shape", model.shapes, pins.shapes));
  TEMPER_RETURN_IF_ERROR(other("dimensions than --dim", model.dims, pins.dims));
  TEMPER_RETURN_IF_ERROR(other("values than --value", model.values, pins.values));
  const auto contradicts = [&](const char* option, const std::string& said, const std::string& pinned) {
    if (said.empty() || said == pinned) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrCat(lock.path, " was made with ", option, " ", pinned, ", not ", said));
  };
  TEMPER_RETURN_IF_ERROR(contradicts("--winograd", given.winograd, pins.winograd));
  TEMPER_RETURN_IF_ERROR(contradicts("--tf32", given.tf32, pins.tf32));
  TEMPER_RETURN_IF_ERROR(contradicts("--bf16", given.bf16, pins.bf16));
  model.shapes = pins.shapes;
  model.dims = pins.dims;
  model.values = pins.values;
  model.winograd = pins.winograd;
  model.tf32 = pins.tf32;
  model.bf16 = pins.bf16;
  return model;
}

std::string TuneAndLock(const ModelOptions& model, const RecordOptions& records, const Lock& lock) {
  std::string command =
      absl::StrCat(TuneCommand(model, records), " && temper lock ", Quoted(model.path), ModelFlags(model));
  if (!records.device.empty()) absl::StrAppend(&command, " --device ", Quoted(records.device));
  if (!records.target.empty()) absl::StrAppend(&command, " --target ", Quoted(records.target));
  return absl::StrCat(command, " -o ", Quoted(lock.path));
}

void PrintMissing(const LockFit& fit, const std::string& command) {
  std::fprintf(stderr, "kernels without a choice in the lock:\n");
  for (const Workload& w : fit.missing) std::fprintf(stderr, "  %s\n", Escaped(Describe(w)).c_str());
  std::fprintf(stderr, "to tune and lock them: %s\n", Escaped(command).c_str());
}

// Where the lock's choices came from, as its evidence says; what it does not say stays as it is.
void AddEvidence(const LockEvidence& evidence, std::vector<ChosenKernel>& kernels) {
  for (ChosenKernel& kernel : kernels) {
    const auto found = evidence.kernels.find(KernelId(Text(kernel.workload)));
    if (found == evidence.kernels.end()) continue;
    const KernelEvidence& known = found->second;
    kernel.source = known.source;
    kernel.seconds = known.seconds;
    kernel.measured = known.measured;
    kernel.share = known.share;
    kernel.choice.device = known.device;
    kernel.choice.stale = known.stale;
    if (known.record != 0) kernel.choice.record = std::to_string(known.record);
  }
}

absl::Status WriteReport(const BuildPlan& plan, const ModelOptions& model, const std::string& path) {
  const nlohmann::ordered_json report = {{"model", ModelName(model.path)},
                                         {"target", Text(plan.target)},
                                         {"device", plan.device},
                                         {"lock", plan.lock_digest},
                                         {"coverage", CoverageOf(plan.kernels)},
                                         {"kernels", CoverageReport(plan.kernels)}};
  std::ofstream out(path, std::ios::binary);
  out << JsonText(report, 1) << "\n";
  out.close();
  if (!out) return absl::UnavailableError(absl::StrCat("cannot write ", path));
  return absl::OkStatus();
}

// Where operators have no record, though they have some that another target or number of threads would take.
absl::Status TellOfOtherRecords(const BuildPlan& plan, Records& records) {
  const std::string wanted = Text(plan.target);
  std::set<int> threads;
  int operators = 0, of_threads = 0;
  for (const ChosenKernel& kernel : plan.kernels) {
    if (kernel.source != "default") continue;
    TEMPER_ASSIGN_OR_RETURN(std::set<std::string> targets, records.TargetsOf(kernel.workload));
    targets.erase(wanted);  // those are of another version of the template, or the default was no slower
    bool only_threads = false;
    for (const std::string& text : targets) {
      if (WithoutThreads(text) != WithoutThreads(wanted)) continue;
      TEMPER_ASSIGN_OR_RETURN(const Target target, ParseTarget(text));
      threads.insert(target.threads());
      only_threads = true;
    }
    operators += targets.empty() ? 0 : 1;
    of_threads += only_threads ? 1 : 0;
  }
  const auto counted = [](int n) { return absl::StrCat(Counted(n, "operator"), n == 1 ? " has" : " have"); };
  if (of_threads > 0) {
    std::fprintf(stderr, "note: %s records for %s threads, not for %d\n", counted(of_threads).c_str(),
                 absl::StrJoin(threads, " or ").c_str(), plan.target.threads());
  } else if (operators > 0) {
    std::fprintf(stderr, "note: %s records for other targets, not for %s: tune for it, or choose one by --target\n",
                 counted(operators).c_str(), plan.target.name().c_str());
  }
  return absl::OkStatus();
}

// A package's runtime takes what it can not read for nothing said.
absl::Status CheckThreadsVariable() {
  const char* text = std::getenv("TEMPER_NUM_THREADS");
  int threads = 0;
  if (text == nullptr || *text == '\0' || (absl::SimpleAtoi(text, &threads) && threads >= 0)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("TEMPER_NUM_THREADS is '", text, "', not a number of threads"));
}

// A package was compiled before: what was said of models would be passed over.
absl::Status CheckNothingIsForModels(const ModelOptions& model, const RecordOptions& records) {
  const std::pair<const char*, bool> given[] = {
      {"--shape", !model.shapes.empty()},     {"--dim", !model.dims.empty()},
      {"--value", !model.values.empty()},     {"--winograd", !model.winograd.empty()},
      {"--tf32", !model.tf32.empty()},        {"--bf16", !model.bf16.empty()},
      {"--print-passes", model.print_passes}, {"--db", !records.db.empty()},
      {"--server", !records.server.empty()},  {"--device", !records.device.empty()},
      {"--target", !records.target.empty()},  {"--untuned", records.untuned}};
  for (const auto& [option, is_given] : given) {
    if (is_given)
      return absl::InvalidArgumentError(absl::StrCat(model.path, " is a package: ", option, " is for models"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<BuildPlan> PlanFromRecords(const ModelOptions& model, const RecordOptions& options) {
  TEMPER_ASSIGN_OR_RETURN(std::unique_ptr<Records> records, Records::Open(options));
  BuildPlan plan;
  plan.device = options.device;
  TEMPER_ASSIGN_OR_RETURN(plan.target, records->ResolveTarget());
  const auto choose = [&](const Workload& w, const Target& t) { return records->Choose(w, t); };
  std::vector<std::string> hashes;
  std::set<std::string> verdicts;
  TEMPER_RETURN_IF_ERROR(LoadVariants(model, plan, [&](Graph& graph, const std::string& name) -> absl::Status {
    TEMPER_ASSIGN_OR_RETURN(const std::vector<Task> tasks, ExtractTasks(graph));
    hashes.push_back(ModelHash(tasks));
    TEMPER_RETURN_IF_ERROR(records->ObeyVerdict(hashes.back(), plan.target));
    const bool keeps_defaults = records->verdict() == "default";
    if (keeps_defaults) {
      const std::string own = name.empty() ? "default configs are used"
                                           : absl::StrCat(name, ": default configs are used for its own kernels");
      std::printf("%s: job %lld measured the tuned model as slower; to search on, tune again\n", Escaped(own).c_str(),
                  static_cast<long long>(records->verdict_job()));
    }
    verdicts.insert(records->verdict());
    plan.verdict_job = records->verdict_job();
    TEMPER_ASSIGN_OR_RETURN(std::vector<bool> faster, records->FasterAlternatives(graph, plan.target));
    TEMPER_RETURN_IF_ERROR(DecideAlternatives(graph, faster, plan.alternatives));
    TakeAlternatives(graph, faster);
    return ChooseKernels(graph, plan.target, choose, plan.device, keeps_defaults, plan.kernels);
  }));
  TEMPER_RETURN_IF_ERROR(EstimateTimes(plan.target, plan.kernels));
  plan.model_hash = HashOfVariants(hashes);
  if (verdicts.size() == 1) plan.verdict = *verdicts.begin();
  if (plan.verdict.empty()) plan.verdict_job = 0;
  if (!options.untuned) TEMPER_RETURN_IF_ERROR(TellOfOtherRecords(plan, *records));
  return plan;
}

absl::StatusOr<BuildPlan> PlanFromLock(const ModelOptions& given, const RecordOptions& records,
                                       const std::string& path) {
  TEMPER_ASSIGN_OR_RETURN(const Lock lock, ReadLock(path));
  std::string wanted;
  if (!records.target.empty()) {
    TEMPER_ASSIGN_OR_RETURN(const Target target, NamedTarget(records));
    const bool any_threads = records.threads == 0 && WithoutThreads(records.target) == records.target;
    wanted = any_threads ? WithoutThreads(Text(target)) : Text(target);
  }
  TEMPER_ASSIGN_OR_RETURN(const LockEntry* entry, FindEntry(lock, wanted, records.device));
  const absl::Status whole = CheckWhole(lock, *entry);
  BuildPlan plan;
  TEMPER_ASSIGN_OR_RETURN(plan.target, ParseTarget(entry->pins.target));
  if (whole.ok()) TEMPER_RETURN_IF_ERROR(CheckBuild(lock, *entry, plan.target));
  TEMPER_ASSIGN_OR_RETURN(const ModelOptions model, OptionsOf(given, lock, entry->pins));
  LockFitter fitter(*entry);
  TEMPER_RETURN_IF_ERROR(
      LoadVariants(model, plan, [&](Graph& graph, const std::string&) { return fitter.Add(graph); }));
  const LockFit fit = fitter.fit();
  const absl::Status fits = CheckFit(lock, *entry, fit, model.path);
  if (fit.knows_some && !fit.missing.empty()) {
    RecordOptions asked = records;
    if (asked.device.empty()) asked.device = entry->evidence.device;
    if (asked.target.empty() && asked.device.empty() && lock.entries.size() > 1) asked.target = entry->pins.target;
    PrintMissing(fit, TuneAndLock(model, asked, lock));
  }
  TEMPER_RETURN_IF_ERROR(whole);
  TEMPER_RETURN_IF_ERROR(fits);
  plan.device = entry->evidence.device;
  plan.lock_digest = entry->digest;
  plan.model_hash = entry->pins.model_hash;
  plan.verdict = entry->pins.verdict;
  for (const BuildPlan::Variant& v : plan.variants) {
    TEMPER_RETURN_IF_ERROR(
        ChooseKernels(v.graph, plan.target, ChooserOf(*entry), plan.device, plan.verdict == "default", plan.kernels));
  }
  TEMPER_RETURN_IF_ERROR(EstimateTimes(plan.target, plan.kernels));
  AddEvidence(entry->evidence, plan.kernels);
  return plan;
}

absl::Status CheckCoverage(const BuildPlan& plan, double least, const ModelOptions& model,
                           const RecordOptions& records) {
  constexpr double kRounding = 1e-9;  // shares that should sum up to 1
  const double coverage = CoverageOf(plan.kernels);
  if (coverage >= least - kRounding) return absl::OkStatus();
  RecordOptions asked = records;
  if (asked.device.empty()) asked.device = plan.device;
  return absl::FailedPreconditionError(
      absl::StrFormat("measurements decided on %.1f %% of the model's time, and --min-coverage wants %.1f %%; "
                      "to tune the rest: %s",
                      100 * coverage, 100 * least, TuneCommand(model, asked)));
}

absl::StatusOr<PackageReport> WritePlan(const BuildPlan& plan, const std::string& dir, const std::string& prefix) {
  std::map<std::string, const KernelChoice*> choices;
  for (const ChosenKernel& kernel : plan.kernels) choices[Text(kernel.workload)] = &kernel.choice;
  const auto choose = [&](const Workload& w, const Target&) -> absl::StatusOr<KernelChoice> {
    const auto found = choices.find(Text(w));
    if (found == choices.end()) return absl::InternalError(absl::StrCat("nothing was planned for ", Text(w)));
    KernelChoice choice = *found->second;
    // Records and devices are a lock's evidence: what a package says of them may not change its bytes.
    if (!plan.lock_digest.empty()) {
      choice.record.clear();
      choice.stale = false;
    }
    return choice;
  };
  std::vector<PackageVariant> variants;
  for (const BuildPlan::Variant& v : plan.variants) variants.push_back({v.graph, v.name});
  return WritePackage(variants, plan.target, choose, dir, {.prefix = prefix, .lock = plan.lock_digest});
}

absl::StatusOr<PackageReport> BuildPackage(const ModelOptions& model, const RecordOptions& records,
                                           const std::string& dir, const BuildOptions& options) {
  TEMPER_ASSIGN_OR_RETURN(const BuildPlan plan, options.lock.empty() ? PlanFromRecords(model, records)
                                                                     : PlanFromLock(model, records, options.lock));
  if (!options.report.empty()) TEMPER_RETURN_IF_ERROR(WriteReport(plan, model, options.report));
  TEMPER_RETURN_IF_ERROR(CheckCoverage(plan, options.min_coverage, model, records));
  return WritePlan(plan, dir, options.prefix);
}

absl::StatusOr<PackageAtHand> FindOrBuildPackage(const ModelOptions& model, const RecordOptions& records) {
  if (records.threads == 0) TEMPER_RETURN_IF_ERROR(CheckThreadsVariable());
  PackageAtHand package{model.path, {}};
  if (IsPackage(model.path)) {
    TEMPER_RETURN_IF_ERROR(CheckNothingIsForModels(model, records));
    return package;
  }
  TEMPER_ASSIGN_OR_RETURN(package.temporary, TemporaryDirectory::Make());
  package.dir = package.temporary.path() + "/package";
  TEMPER_RETURN_IF_ERROR(BuildPackage(model, records, package.dir).status());
  return package;
}

}  // namespace temper
