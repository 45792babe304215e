// The lock's file. Objects keep their order, so that the same lock is the same text.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/str_cat.h"
#include "lock/lock.h"
#include "security/files.h"
#include "security/secret.h"

namespace temper {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::uintmax_t kMostBytes = 64 << 20;

std::string Dump(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);  // names come from model files
}

// --- pins ---

Json ToJson(const LockPins& pins) {
  Json alternatives = Json::array(), kernels = Json::array();
  for (const LockedAlternative& a : pins.alternatives)
    alternatives.push_back({{"replaced", a.replaced}, {"instead", a.instead}, {"taken", a.taken}});
  for (const LockedKernel& k : pins.kernels) {
    kernels.push_back({{"id", KernelId(k.workload)},
                       {"workload", k.workload},
                       {"uses", k.uses},
                       {"template", k.template_name},
                       {"version", k.template_version},
                       {"config", k.config}});
  }
  Json json = {{"model_hash", pins.model_hash}, {"shapes", pins.shapes}, {"winograd", pins.winograd},
               {"codegen_id", pins.codegen_id}, {"tools", pins.tools},   {"verdict", pins.verdict},
               {"alternatives", alternatives},  {"kernels", kernels}};
  // Locks from before there was a choice keep their digests.
  if (pins.tf32 != "off") json["tf32"] = pins.tf32;
  if (pins.bf16 != "off") json["bf16"] = pins.bf16;
  if (!pins.dims.empty()) json["dims"] = pins.dims;
  if (!pins.values.empty()) json["values"] = pins.values;
  return json;
}

LockPins PinsFrom(const std::string& target, const Json& json) {
  LockPins pins;
  pins.target = target;
  json.at("model_hash").get_to(pins.model_hash);
  json.at("shapes").get_to(pins.shapes);
  json.at("winograd").get_to(pins.winograd);
  pins.tf32 = json.value("tf32", pins.tf32);
  pins.bf16 = json.value("bf16", pins.bf16);
  pins.dims = json.value("dims", pins.dims);
  pins.values = json.value("values", pins.values);
  json.at("codegen_id").get_to(pins.codegen_id);
  json.at("tools").get_to(pins.tools);
  json.at("verdict").get_to(pins.verdict);
  for (const Json& a : json.at("alternatives")) {
    pins.alternatives.push_back({a.at("replaced").get<std::vector<std::string>>(),
                                 a.at("instead").get<std::vector<std::string>>(), a.at("taken").get<bool>()});
  }
  for (const Json& k : json.at("kernels")) {
    pins.kernels.push_back({k.at("workload"), k.at("uses").get<int>(), k.at("template"), k.at("version").get<int>(),
                            k.at("config").get<std::string>()});
  }
  return pins;
}

// --- evidence ---

Json ToJson(const LockEvidence& evidence) {
  Json kernels = Json::object();
  for (const auto& [id, k] : evidence.kernels) {
    kernels[id] = {{"source", k.source},     {"device", k.device}, {"record", k.record}, {"ms", k.seconds * 1e3},
                   {"measured", k.measured}, {"share", k.share},   {"stale", k.stale}};
  }
  return {{"device", evidence.device}, {"verdict_job", evidence.verdict_job}, {"kernels", kernels}};
}

LockEvidence EvidenceFrom(const Json& json) {
  LockEvidence evidence;
  json.at("device").get_to(evidence.device);
  json.at("verdict_job").get_to(evidence.verdict_job);
  for (const auto& [id, k] : json.at("kernels").items()) {
    evidence.kernels[id] = {k.at("source"),
                            k.at("device"),
                            k.at("record").get<int64_t>(),
                            k.at("ms").get<double>() * 1e-3,
                            k.at("measured").get<bool>(),
                            k.at("share").get<double>(),
                            k.at("stale").get<bool>()};
  }
  return evidence;
}

// --- the file ---

absl::Status Damaged(const std::string& path, std::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(path, " is damaged, or no lock file: ", std::string(what)));
}

// Throws what nlohmann's getters throw.
absl::StatusOr<Lock> FromJson(const std::string& path, const Json& json) {
  if (!json.is_object() || !json.contains("temper_lock")) return Damaged(path, "it does not say 'temper_lock'");
  const auto format = json.at("temper_lock").get<int64_t>();
  if (format != kLockFormat) {
    return absl::FailedPreconditionError(absl::StrCat(path, " has the lock format ", format, ", this program reads ",
                                                      kLockFormat,
                                                      format > kLockFormat ? ": a newer temper wrote it" : ""));
  }
  Lock lock{path, json.at("model"), {}};
  std::set<std::string> targets;
  for (const Json& e : json.at("entries")) {
    LockEntry entry;
    entry.pins = PinsFrom(e.at("target"), e.at("pins"));
    e.at("digest").get_to(entry.digest);
    e.at("kernel_count").get_to(entry.kernel_count);
    entry.evidence = EvidenceFrom(e.at("evidence"));
    const auto later = [](const LockedKernel& a, const LockedKernel& b) { return a.workload >= b.workload; };
    if (std::ranges::adjacent_find(entry.pins.kernels, later) != entry.pins.kernels.end())
      return Damaged(path, "its kernels are out of order");
    if (!targets.insert(entry.pins.target).second) return Damaged(path, "a target stands there twice");
    lock.entries.push_back(std::move(entry));
  }
  if (lock.entries.empty()) return Damaged(path, "it has no entries");
  return lock;
}

}  // namespace

std::string DigestOf(const LockPins& pins) {
  return Sha256Hex(absl::StrCat(kLockFormat, "\n", pins.target, "\n", Dump(ToJson(pins), -1)));
}

absl::StatusOr<Lock> ReadLock(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error))
    return absl::NotFoundError(absl::StrCat("cannot read the lock ", path, ": there is no such file"));
  if (std::filesystem::file_size(path, error) > kMostBytes) return Damaged(path, "it is too large");
  std::ifstream file(path, std::ios::binary);
  const Json json = Json::parse(file, nullptr, false);
  if (json.is_discarded()) return Damaged(path, "it is not JSON");
  try {
    return FromJson(path, json);
  } catch (const nlohmann::json::exception& e) {
    return Damaged(path, e.what());
  }
}

absl::Status WriteLock(const Lock& lock, const std::string& path) {
  Json entries = Json::array();
  for (const LockEntry& entry : lock.entries) {
    entries.push_back({{"target", entry.pins.target},
                       {"digest", entry.digest},
                       {"kernel_count", entry.kernel_count},
                       {"pins", ToJson(entry.pins)},
                       {"evidence", ToJson(entry.evidence)}});
  }
  const Json json = {{"temper_lock", kLockFormat}, {"model", lock.model}, {"entries", entries}};
  return WriteWholeFile(path, Dump(json, 1) + "\n", Secrecy::kPublic, Existing::kReplace);
}

}  // namespace temper
