// Lock files: writing them, and what changes from one to another.
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/utf8.h"
#include "cli/build.h"
#include "cli/command.h"
#include "cli/json_line.h"
#include "cli/report/words.h"
#include "compiler/codegen/codegen.h"
#include "compiler/ops/describe.h"
#include "lock/lock.h"
#include "lock/lock_diff.h"

namespace temper {
namespace {

struct LockOptions {
  ModelOptions model;
  RecordOptions records;
  std::string output, min_coverage = "0";
  bool json = false;
};

absl::StatusOr<LockEntry> EntryOf(const BuildPlan& plan, const ModelOptions& model) {
  LockPins pins;
  pins.target = Text(plan.target);
  pins.model_hash = plan.model_hash;
  pins.shapes = model.shapes;
  pins.dims = model.dims;
  pins.values = model.values;
  pins.winograd = model.winograd.empty() ? "on" : model.winograd;
  pins.tf32 = model.tf32.empty() ? "off" : model.tf32;
  pins.bf16 = model.bf16.empty() ? "off" : model.bf16;
  pins.codegen_id = CodegenId(plan.target);
  pins.tools = CodegenTools(plan.target);
  pins.verdict = plan.verdict;
  pins.alternatives = plan.alternatives;
  LockEvidence evidence;
  evidence.device = plan.device;
  evidence.verdict_job = plan.verdict_job;
  for (const ChosenKernel& kernel : plan.kernels) {
    const std::string workload = Text(kernel.workload);
    const KernelChoice& choice = kernel.choice;
    const TemplateDef* def = FindTemplate(choice.template_name);
    if (def == nullptr) return absl::InternalError(absl::StrCat("no template is called ", choice.template_name));
    pins.kernels.push_back({workload, kernel.uses, choice.template_name, def->version, Text(choice.config)});
    KernelEvidence& known = evidence.kernels[KernelId(workload)];
    known = {kernel.source, choice.device, 0, kernel.seconds, kernel.measured, kernel.share, choice.stale};
    if (!choice.record.empty() && !absl::SimpleAtoi(choice.record, &known.record))
      return absl::InternalError(absl::StrCat("'", choice.record, "' is no record's number"));
  }
  return MakeEntry(std::move(pins), std::move(evidence));
}

absl::Status WriteEntry(const LockOptions& o) {
  TEMPER_ASSIGN_OR_RETURN(const double min_coverage, ParseShare("--min-coverage", o.min_coverage));
  const std::string name = ModelName(o.model.path);
  Lock lock{o.output, name, {}};
  std::error_code error;
  if (std::filesystem::exists(o.output, error)) {
    TEMPER_ASSIGN_OR_RETURN(lock, ReadLock(o.output));
    if (lock.model != name) {
      return absl::FailedPreconditionError(
          absl::StrCat(o.output, " is the lock of ", lock.model, ", not of ", name, ": choose another file"));
    }
  }
  TEMPER_ASSIGN_OR_RETURN(const BuildPlan plan, PlanFromRecords(o.model, o.records));
  TEMPER_RETURN_IF_ERROR(CheckCoverage(plan, min_coverage, o.model, o.records));
  TEMPER_ASSIGN_OR_RETURN(LockEntry entry, EntryOf(plan, o.model));
  const std::string digest = entry.digest;
  PutEntry(lock, std::move(entry));
  TEMPER_RETURN_IF_ERROR(WriteLock(lock, o.output));
  if (o.json) {
    const nlohmann::ordered_json said = {{"lock", o.output},
                                         {"target", Text(plan.target)},
                                         {"kernels", plan.kernels.size()},
                                         {"coverage", CoverageOf(plan.kernels)},
                                         {"digest", digest},
                                         {"targets", lock.entries.size()}};
    std::printf("%s\n", JsonText(said).c_str());
    return absl::OkStatus();
  }
  std::printf("%s: %s for %s, %.1f %% of the time decided by measurements; digest %s; targets: %zu\n", o.output.c_str(),
              Counted(std::ssize(plan.kernels), "kernel").c_str(), plan.target.name().c_str(),
              100 * CoverageOf(plan.kernels), digest.substr(0, 12).c_str(), lock.entries.size());
  return absl::OkStatus();
}

// --- diff ---

struct DiffOptions {
  std::string before, after;
  bool json = false;
};

std::string WhatOf(const std::string& workload) {
  const absl::StatusOr<Workload> w = ParseWorkload(workload);
  return Escaped(w.ok() ? Describe(*w) : workload);
}

std::string Shown(const std::string& choice) { return choice.empty() ? "none" : Escaped(choice); }

void Print(const EntryDiff& diff) {
  std::printf("target %s\n", Escaped(diff.target).c_str());
  for (const std::string& setting : diff.settings) std::printf("  %s\n", Escaped(setting).c_str());
  for (const KernelChange& k : diff.kernels) {
    std::printf("  %dx %s\n      %s -> %s\n      %s", k.uses, WhatOf(k.workload).c_str(), Shown(k.before).c_str(),
                Shown(k.after).c_str(), Escaped(k.why).c_str());
    if (k.before_s > 0 && k.after_s > 0) {
      std::printf("; measured %.4f -> %.4f ms, %.2fx", k.before_s * 1e3, k.after_s * 1e3, k.before_s / k.after_s);
    } else if (k.after_s > 0) {
      std::printf("; measured %.4f ms now, not before", k.after_s * 1e3);
    }
    std::printf("\n");
  }
  if (diff.before_s > 0) {
    std::printf("  measured in both: %.4f -> %.4f ms, %.2fx\n", diff.before_s * 1e3, diff.after_s * 1e3,
                diff.before_s / diff.after_s);
  }
}

nlohmann::ordered_json ToJson(const EntryDiff& diff) {
  nlohmann::ordered_json kernels = nlohmann::ordered_json::array();
  for (const KernelChange& k : diff.kernels) {
    kernels.push_back({{"workload", k.workload},
                       {"uses", k.uses},
                       {"before", k.before},
                       {"after", k.after},
                       {"why", k.why},
                       {"before_ms", k.before_s * 1e3},
                       {"after_ms", k.after_s * 1e3}});
  }
  return {{"target", diff.target},
          {"settings", diff.settings},
          {"kernels", kernels},
          {"before_ms", diff.before_s * 1e3},
          {"after_ms", diff.after_s * 1e3}};
}

absl::Status Diff(const DiffOptions& o) {
  TEMPER_ASSIGN_OR_RETURN(const Lock before, ReadLock(o.before));
  TEMPER_ASSIGN_OR_RETURN(const Lock after, ReadLock(o.after));
  for (const Lock* lock : {&before, &after}) {
    for (const LockEntry& entry : lock->entries) TEMPER_RETURN_IF_ERROR(CheckWhole(*lock, entry));
  }
  const std::vector<EntryDiff> diffs = DiffLocks(before, after);
  for (const EntryDiff& diff : diffs) {
    if (o.json)
      std::printf("%s\n", JsonText(ToJson(diff)).c_str());
    else
      Print(diff);
  }
  if (diffs.empty() && !o.json) std::printf("the same code for every target\n");
  return absl::OkStatus();
}

}  // namespace

void AddLock(CLI::App& app, Action* action) {
  auto o = std::make_shared<LockOptions>();
  CLI::App* command = app.add_subcommand("lock", "pin what decides a model's code, for `temper compile --lock`");
  AddModelOptions(command, &o->model, "MODEL.onnx");
  AddRecordOptions(command, &o->records);
  AddThreadsOption(command, &o->records);
  command
      ->add_option("-o,--output", o->output, "the lock file; if it exists, only the entry of this target is replaced")
      ->required();
  command->add_option("--target", o->records.target, "what to lock for (default: the device's, or this machine)");
  command->add_option("--min-coverage", o->min_coverage,
                      "fail if less than this share of the model's time, such as 90% or 0.9, is in measured kernels");
  command->add_flag("--untuned", o->records.untuned, "use default configs only");
  command->add_flag("--json", o->json, "say what was locked as a JSON object");
  command->footer(
      "Example:\n  temper lock resnet50.onnx --device epyc-zen5 -o resnet50.lock && temper lock resnet50.onnx --target "
      "llvm:haswell -o resnet50.lock");
  command->callback([o, action] { *action = [o] { return WriteEntry(*o); }; });
}

void AddDiff(CLI::App& app, Action* action) {
  auto o = std::make_shared<DiffOptions>();
  CLI::App* command =
      app.add_subcommand("diff", "say which kernels change from one lock to another, why, and the gain");
  command->add_option("before", o->before, "A.lock")->required();
  command->add_option("after", o->after, "B.lock")->required();
  command->add_flag("--json", o->json, "one JSON object a target");
  command->footer("Example:\n  temper diff release.lock resnet50.lock");
  command->callback([o, action] { *action = [o] { return Diff(*o); }; });
}

}  // namespace temper
