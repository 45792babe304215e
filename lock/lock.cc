#include "lock/lock.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/hash.h"
#include "compiler/codegen/codegen.h"
#include "compiler/graph/alternatives.h"
#include "compiler/graph/extract.h"
#include "compiler/ops/legal_configs.h"
#include "compiler/target/threads.h"

namespace temper {
namespace {

const LockedKernel* FindKernel(const LockPins& pins, const std::string& workload) {
  const auto found = std::ranges::lower_bound(pins.kernels, workload, {}, &LockedKernel::workload);
  return found != pins.kernels.end() && found->workload == workload ? &*found : nullptr;
}

std::vector<std::string> Ids(const std::vector<Workload>& workloads) {
  std::vector<std::string> ids;
  for (const Workload& w : workloads) ids.push_back(KernelId(Text(w)));
  return ids;
}

// The shortest that --target takes for it, where there is a short one: canonical texts have up to 250 characters.
std::string ShortName(const std::string& text) {
  const absl::StatusOr<Target> target = ParseTarget(text);
  if (!target.ok()) return absl::StrCat("'", text, "'");
  for (const std::string& name : {std::string("host"), absl::StrCat(target->generator, ":", target->name())}) {
    const absl::StatusOr<Target> named = ParseTarget(name);
    if (!named.ok() || WithoutThreads(Text(*named)) != WithoutThreads(text)) continue;
    if (WithoutThreads(text) == text) return name;
    return absl::StrCat(name, " with ", target->threads(), target->threads() == 1 ? " thread" : " threads");
  }
  return absl::StrCat("'", text, "'");
}

std::string NameOf(const LockEntry& entry) {
  const std::string name = ShortName(entry.pins.target);
  return entry.evidence.device.empty() ? name : absl::StrCat(name, " (device ", entry.evidence.device, ")");
}

}  // namespace

std::string KernelId(const std::string& workload) { return HashText(StableHash(workload)); }

LockEntry MakeEntry(LockPins pins, LockEvidence evidence) {
  for (std::vector<std::string>* said : {&pins.shapes, &pins.dims, &pins.values}) std::ranges::sort(*said);
  std::ranges::sort(pins.kernels, {}, &LockedKernel::workload);
  LockEntry entry;
  entry.digest = DigestOf(pins);
  entry.kernel_count = static_cast<int>(pins.kernels.size());
  entry.pins = std::move(pins);
  entry.evidence = std::move(evidence);
  return entry;
}

void PutEntry(Lock& lock, LockEntry entry) {
  std::erase_if(lock.entries, [&](const LockEntry& e) { return e.pins.target == entry.pins.target; });
  lock.entries.push_back(std::move(entry));
  std::ranges::sort(lock.entries, {}, [](const LockEntry& e) { return e.pins.target; });
}

absl::StatusOr<const LockEntry*> FindEntry(const Lock& lock, const std::string& target, const std::string& device) {
  std::vector<const LockEntry*> found;
  for (const LockEntry& entry : lock.entries) {
    const bool fits = target.empty() ? device.empty() || entry.evidence.device == device
                                     : entry.pins.target == target || WithoutThreads(entry.pins.target) == target;
    if (fits) found.push_back(&entry);
  }
  if (found.size() == 1) return found[0];
  const std::string asked =
      !target.empty() ? absl::StrCat(found.empty() ? "no entry" : "several entries", " for target ", ShortName(target))
      : !device.empty() ? absl::StrCat(found.empty() ? "no entry" : "several entries", " for device '", device, "'")
                        : "entries for several targets";
  const std::string names =
      absl::StrJoin(lock.entries, ", ", [](std::string* out, const LockEntry& e) { out->append(NameOf(e)); });
  return absl::NotFoundError(
      absl::StrCat(lock.path, " has ", asked, ": choose by --target, --threads or --device among ", names));
}

absl::Status CheckWhole(const Lock& lock, const LockEntry& entry) {
  const int kept = static_cast<int>(entry.pins.kernels.size());
  if (kept != entry.kernel_count) {
    return absl::FailedPreconditionError(
        absl::StrCat(lock.path, ": ", entry.kernel_count, " choices were locked and ", kept,
                     " are there, so some were removed or added since: `temper lock` makes it anew"));
  }
  if (DigestOf(entry.pins) != entry.digest) {
    return absl::FailedPreconditionError(absl::StrCat(
        lock.path, ": what is pinned was changed since `temper lock` wrote it, as its digest shows: lock again"));
  }
  return absl::OkStatus();
}

absl::Status CheckBuild(const Lock& lock, const LockEntry& entry, const Target& target) {
  const LockPins& pins = entry.pins;
  const std::string id = CodegenId(target), tools = CodegenTools(target);
  if (pins.codegen_id != id || pins.tools != tools) {
    const auto both = [](const std::string& a, const std::string& b) {
      return b.empty() ? a : absl::StrCat(a, ", ", b);
    };
    return absl::FailedPreconditionError(absl::StrCat(lock.path, " was made with code generator ",
                                                      both(pins.codegen_id, pins.tools), ", this is ", both(id, tools),
                                                      ", whose code is another: lock again"));
  }
  for (const LockedKernel& kernel : pins.kernels) {
    const TemplateDef* def = FindTemplate(kernel.template_name);
    if (def == nullptr)
      return absl::FailedPreconditionError(
          absl::StrCat(lock.path, " wants the template ", kernel.template_name, ", which this build has not"));
    if (def->version != kernel.template_version) {
      return absl::FailedPreconditionError(absl::StrCat(lock.path, ": template ", kernel.template_name, " has version ",
                                                        def->version, " here and ", kernel.template_version,
                                                        " in the lock: tune and lock again"));
    }
  }
  return absl::OkStatus();
}

std::string HashOfVariants(const std::vector<std::string>& hashes) {
  return hashes.size() == 1 ? hashes.front() : HashText(StableHash(absl::StrJoin(hashes, " ")));
}

absl::Status LockFitter::Add(Graph& graph) {
  TEMPER_ASSIGN_OR_RETURN(const std::vector<Task> tasks, ExtractTasks(graph));
  hashes_.push_back(ModelHash(tasks));
  TEMPER_ASSIGN_OR_RETURN(const std::vector<AlternativeKernels> alternatives, KernelsOfAlternatives(graph));
  std::vector<bool> taken;
  for (const AlternativeKernels& kernels : alternatives) {
    const LockedAlternative wanted{Ids(kernels.replaced), Ids(kernels.instead), false};
    const auto found = std::ranges::find_if(entry_.pins.alternatives, [&](const LockedAlternative& a) {
      return a.replaced == wanted.replaced && a.instead == wanted.instead;
    });
    const bool known = found != entry_.pins.alternatives.end();
    fit_.alternatives_missing += known ? 0 : 1;
    taken.push_back(known && found->taken);
  }
  TakeAlternatives(graph, taken);
  TEMPER_ASSIGN_OR_RETURN(const std::vector<Task> kernels, KernelsOf(graph));
  for (const Task& kernel : kernels) {
    if (FindKernel(entry_.pins, Text(kernel.workload)) == nullptr)
      fit_.missing.push_back(kernel.workload);
    else
      fit_.knows_some = true;
  }
  return absl::OkStatus();
}

LockFit LockFitter::fit() const {
  LockFit fit = fit_;
  fit.same_model = HashOfVariants(hashes_) == entry_.pins.model_hash;
  return fit;
}

absl::Status CheckFit(const Lock& lock, const LockEntry& entry, const LockFit& fit, const std::string& model) {
  if (fit.same_model && fit.missing.empty() && fit.alternatives_missing == 0) return absl::OkStatus();
  if (!fit.knows_some) {
    return absl::FailedPreconditionError(absl::StrCat(lock.path, " is the lock of another model: it was made of ",
                                                      lock.model, ", and has a choice for no kernel of ", model));
  }
  const std::string missing =
      absl::StrCat(fit.missing.size(), fit.missing.size() == 1 ? " kernel" : " kernels", " without a choice");
  if (fit.same_model) {
    return absl::FailedPreconditionError(
        absl::StrCat(lock.path, ": choices were removed from it since ", "`temper lock` wrote it (", missing, ")"));
  }
  return absl::FailedPreconditionError(
      absl::StrCat(model, " has changed since ", lock.path, " was made of it (", missing, "): tune and lock again"));
}

ChooseFn ChooserOf(const LockEntry& entry) {
  return [&entry](const Workload& w, const Target& t) -> absl::StatusOr<KernelChoice> {
    const LockedKernel* kernel = FindKernel(entry.pins, Text(w));
    if (kernel == nullptr) return absl::NotFoundError(absl::StrCat("the lock has no choice for ", Text(w)));
    TEMPER_ASSIGN_OR_RETURN(KernelChoice choice, ChooseDefault(w, t));
    if (choice.template_name == kernel->template_name && Text(choice.config) == kernel->config) return choice;
    choice.template_name = kernel->template_name;
    const absl::StatusOr<Config> config = LegalConfigs(w, t).Read(kernel->template_name, kernel->config);
    if (!config.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("the lock's choice ", kernel->template_name, " ", kernel->config,
                                                     " is not legal in this build for ", Text(w),
                                                     ": tune and lock again"));
    }
    choice.config = *config;
    choice.level = "locked";
    return choice;
  };
}

}  // namespace temper
