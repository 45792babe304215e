// A lock file pins what decides a model's code, for each target that it is built for: tomorrow's build makes the
// kernels of today's, whatever the database holds by then, and without one. docs/builds.md describes the file.
//
// An entry has two parts. Its pins are the build's only source, and a digest of them stands beside. Its evidence says
// where they came from and what was measured; it is for people, for `temper diff` and for the gate of coverage, and a
// build's bytes never depend on it. Values only; nothing here measures or looks anywhere else.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "compiler/graph/graph.h"
#include "compiler/package/package.h"
#include "compiler/target/target.h"

namespace temper {

// Of the file. Files of a newer format are refused.
inline constexpr int kLockFormat = 1;

struct LockedKernel {
  std::string workload;  // canonical text
  int uses = 1;          // in the model
  std::string template_name;
  int template_version = 1;
  std::string config;  // canonical text
  bool operator==(const LockedKernel&) const = default;
};

// A part of the graph that could be cut in two ways, by the ids of the kernels of each.
struct LockedAlternative {
  std::vector<std::string> replaced, instead;  // KernelId
  bool taken = false;
  bool operator==(const LockedAlternative&) const = default;
};

struct LockPins {
  std::string target;               // canonical text, its threads included
  std::string model_hash;           // HashOfVariants
  std::vector<std::string> shapes;  // NAME=1,3,224,224, sorted
  std::vector<std::string> dims;    // NAME=1 or NAME=1,8, sorted; the file has them where there are any
  std::vector<std::string> values;  // NAME=true; the same
  std::string winograd = "on";      // or "off"
  std::string tf32 = "off";         // or "on"; the file says so where it is on
  std::string bf16 = "off";         // the same
  std::string codegen_id, tools;    // CodegenId, CodegenTools
  std::string verdict;              // "tuned", "default" (every choice is one), or empty: the whole was not measured
  std::vector<LockedAlternative> alternatives;  // each once
  std::vector<LockedKernel> kernels;            // by workload, each once
  bool operator==(const LockPins&) const = default;
};

// Of one kernel: where its choice came from, and what is known of its time.
struct KernelEvidence {
  std::string source;     // see ChosenKernel in cli/report/coverage.h
  std::string device;     // whose record it is; empty: no record
  int64_t record = 0;     // of the database it came from; 0: none
  double seconds = 0;     // of one run
  bool measured = false;  // else an estimate
  double share = 0;       // of the model's time
  bool stale = false;     // of the record: another code generator measured it
};

struct LockEvidence {
  std::string device;                             // the key that was asked for; empty: none
  int64_t verdict_job = 0;                        // of the database it came from
  std::map<std::string, KernelEvidence> kernels;  // by KernelId
};

struct LockEntry {
  LockPins pins;
  std::string digest;    // as the file has it
  int kernel_count = 0;  // as the file has it
  LockEvidence evidence;
};

struct Lock {
  std::string path;                // where it was read, for messages
  std::string model;               // the model's name
  std::vector<LockEntry> entries;  // by target, each once
};

std::string KernelId(const std::string& workload);  // 16 hex digits
std::string DigestOf(const LockPins& pins);         // SHA-256, hex
// Of the ModelHash of each variant's optimised graph: the only one's itself.
std::string HashOfVariants(const std::vector<std::string>& hashes);

// In the order that files have, with its digest.
LockEntry MakeEntry(LockPins pins, LockEvidence evidence);
// In the place of the entry of its target, if there is one.
void PutEntry(Lock& lock, LockEntry entry);

// kNotFound: no such file. kInvalidArgument: it is damaged, or no lock. kFailedPrecondition: it is of a newer format.
absl::StatusOr<Lock> ReadLock(const std::string& path);
// The file is there whole or not at all; texts and order are the same for the same lock.
absl::Status WriteLock(const Lock& lock, const std::string& path);

// The entry of the target, else of the device, else (both empty) the only one. A text without -threads= is that of any
// number of them. kNotFound names those that there are.
absl::StatusOr<const LockEntry*> FindEntry(const Lock& lock, const std::string& target, const std::string& device);

// OK, or a line that says which: a choice was removed since the lock was written, or its pins were changed.
absl::Status CheckWhole(const Lock& lock, const LockEntry& entry);
// OK, or a line that says what of this build makes other code than the lock's: code generator, its tools, a template.
absl::Status CheckBuild(const Lock& lock, const LockEntry& entry, const Target& target);

// How an entry fits a model's variants.
struct LockFit {
  std::vector<Workload> missing;  // kernels that the entry has no choice for
  bool same_model = false;        // by its hash
  bool knows_some = false;        // of the kernels
  int alternatives_missing = 0;   // that the entry says nothing about
};
class LockFitter {
 public:
  explicit LockFitter(const LockEntry& entry) : entry_(entry) {}  // which outlives it
  // Of a variant, optimised for the entry's target; those of its alternatives are taken that the entry says.
  absl::Status Add(Graph& graph);
  LockFit fit() const;  // of all that were added

 private:
  const LockEntry& entry_;
  LockFit fit_;
  std::vector<std::string> hashes_;
};
// OK, or a line that says which: choices were removed, the model has changed, or it is another model.
absl::Status CheckFit(const Lock& lock, const LockEntry& entry, const LockFit& fit, const std::string& model);

// The entry's choices; level "default" where it chose what would be chosen without it, else "locked". Refers to the
// entry. kNotFound: it has none for this workload; kInvalidArgument: its config is not legal.
ChooseFn ChooserOf(const LockEntry& entry);

}  // namespace temper
