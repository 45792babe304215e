#include "lock/lock_diff.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace temper {
namespace {

const KernelEvidence& EvidenceOf(const LockEntry& entry, const std::string& workload) {
  static const KernelEvidence kNone;
  const auto found = entry.evidence.kernels.find(KernelId(workload));
  return found == entry.evidence.kernels.end() ? kNone : found->second;
}

double Measured(const KernelEvidence& evidence) { return evidence.measured ? evidence.seconds : 0; }

std::string ChoiceText(const LockedKernel& kernel) { return absl::StrCat(kernel.template_name, " ", kernel.config); }

// Of two choices for one workload that differ.
std::string Why(const LockedKernel& a, const KernelEvidence& ea, const LockedKernel& b, const KernelEvidence& eb) {
  if (a.template_name == b.template_name && a.template_version != b.template_version)
    return absl::StrCat("template version ", a.template_version, " -> ", b.template_version);
  if (ChoiceText(a) == ChoiceText(b)) return absl::StrCat("runs ", a.uses, " -> ", b.uses, " times");
  if (ea.source != eb.source) return absl::StrCat("choice from: ", ea.source, " -> ", eb.source);
  if (ea.device != eb.device) return absl::StrCat("record of device: ", ea.device, " -> ", eb.device);
  if (Measured(ea) > 0 && Measured(eb) > 0 && eb.seconds < ea.seconds) return "a faster record";
  return absl::StrCat("another record: ", ea.record, " -> ", eb.record);
}

void AddSetting(EntryDiff& diff, const char* what, const std::string& before, const std::string& after) {
  const auto shown = [](const std::string& text) { return text.empty() ? std::string("none") : text; };
  if (before != after) diff.settings.push_back(absl::StrCat(what, ": ", shown(before), " -> ", shown(after)));
}

EntryDiff DiffEntries(const LockEntry& a, const LockEntry& b) {
  EntryDiff diff;
  diff.target = b.pins.target;
  AddSetting(diff, "code generator", a.pins.codegen_id, b.pins.codegen_id);
  AddSetting(diff, "tools", a.pins.tools, b.pins.tools);
  AddSetting(diff, "shapes", absl::StrJoin(a.pins.shapes, " "), absl::StrJoin(b.pins.shapes, " "));
  AddSetting(diff, "dimensions", absl::StrJoin(a.pins.dims, " "), absl::StrJoin(b.pins.dims, " "));
  AddSetting(diff, "values", absl::StrJoin(a.pins.values, " "), absl::StrJoin(b.pins.values, " "));
  AddSetting(diff, "winograd", a.pins.winograd, b.pins.winograd);
  AddSetting(diff, "tf32", a.pins.tf32, b.pins.tf32);
  AddSetting(diff, "bf16", a.pins.bf16, b.pins.bf16);
  AddSetting(diff, "verdict", a.pins.verdict, b.pins.verdict);
  AddSetting(diff, "model", a.pins.model_hash, b.pins.model_hash);
  const auto taken = [](const LockPins& pins) {
    return absl::StrCat(std::ranges::count(pins.alternatives, true, &LockedAlternative::taken));
  };
  AddSetting(diff, "alternatives taken", taken(a.pins), taken(b.pins));
  std::map<std::string, std::pair<const LockedKernel*, const LockedKernel*>> kernels;
  for (const LockedKernel& k : a.pins.kernels) kernels[k.workload].first = &k;
  for (const LockedKernel& k : b.pins.kernels) kernels[k.workload].second = &k;
  for (const auto& [workload, both] : kernels) {
    const auto& [before, after] = both;
    const KernelEvidence &was = EvidenceOf(a, workload), &is = EvidenceOf(b, workload);
    if (before != nullptr && after != nullptr && Measured(was) > 0 && Measured(is) > 0) {
      diff.before_s += after->uses * was.seconds;
      diff.after_s += after->uses * is.seconds;
    }
    if (before != nullptr && after != nullptr && *before == *after) continue;
    KernelChange& change = diff.kernels.emplace_back();
    change.workload = workload;
    change.uses = (after != nullptr ? after : before)->uses;
    if (before != nullptr) {
      change.before = ChoiceText(*before);
      change.before_s = Measured(was);
    }
    if (after != nullptr) {
      change.after = ChoiceText(*after);
      change.after_s = Measured(is);
    }
    change.why = before == nullptr  ? "runs now, and did not before"
                 : after == nullptr ? "does not run any more"
                                    : Why(*before, was, *after, is);
  }
  return diff;
}

}  // namespace

std::vector<EntryDiff> DiffLocks(const Lock& before, const Lock& after) {
  std::map<std::string, std::pair<const LockEntry*, const LockEntry*>> entries;
  for (const LockEntry& e : before.entries) entries[e.pins.target].first = &e;
  for (const LockEntry& e : after.entries) entries[e.pins.target].second = &e;
  std::vector<EntryDiff> diffs;
  for (const auto& [target, both] : entries) {
    if (both.first != nullptr && both.second != nullptr) {
      EntryDiff diff = DiffEntries(*both.first, *both.second);
      if (!diff.settings.empty() || !diff.kernels.empty()) diffs.push_back(std::move(diff));
      continue;
    }
    EntryDiff& diff = diffs.emplace_back();
    diff.target = target;
    diff.settings.emplace_back(both.first == nullptr ? "a new target" : "no such target any more");
  }
  return diffs;
}

}  // namespace temper
