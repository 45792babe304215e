// One record a line. Field names are those that scripts rely on; `v` rises when the meaning of one changes.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "nlohmann/json.hpp"
#include "storage/store.h"

namespace temper {
namespace {

// By name: one that keeps its fields in order looks through all of them for each.
using Json = nlohmann::json;
constexpr int kJsonVersion = 1;
constexpr char kTimeFormat[] = "%Y-%m-%dT%H:%M:%E3SZ";

absl::Status Bad(const std::string& why) { return absl::InvalidArgumentError(absl::StrCat("not a record: ", why)); }

// Reads one field into `out` where it is there; a field of another type is an error, an absent one only when required.
class Fields {
 public:
  explicit Fields(const Json& json) : json_(json) {}

  void Text(const char* name, std::string& out, bool required = false) {
    if (const Json* value = Find(name, required); value != nullptr) {
      if (value->is_string())
        out = value->get<std::string>();
      else
        Fail(name, "is not a string");
    }
  }
  template <typename Int>
  void Integer(const char* name, Int& out) {
    if (const Json* value = Find(name, false); value != nullptr) {
      if (!value->is_number_integer()) return Fail(name, "is not an integer");
      const int64_t wide = value->get<int64_t>();
      if (wide != static_cast<Int>(wide)) return Fail(name, "is out of range");
      out = static_cast<Int>(wide);
    }
  }
  void Numbers(const char* name, std::vector<double>& out) {
    if (const Json* value = Find(name, false); value != nullptr) {
      if (!value->is_array()) return Fail(name, "is not an array");
      for (const Json& item : *value) {
        if (!item.is_number()) return Fail(name, "has an element that is no number");
        out.push_back(item.get<double>());
      }
    }
  }
  void Time(const char* name, int64_t& unix_ms) {
    std::string text, error;
    Text(name, text);
    if (text.empty()) return;
    absl::Time time;
    if (!absl::ParseTime(absl::RFC3339_full, text, &time, &error)) return Fail(name, error);
    unix_ms = absl::ToUnixMillis(time);
  }
  void Ended(const char* name, Outcome& outcome) {
    std::string text;
    Text(name, text, /*required=*/true);
    const std::optional<Outcome> known = ParseOutcome(text);
    if (!known.has_value()) return Fail(name, absl::StrCat("is unknown: '", text, "'"));
    outcome = *known;
  }
  const absl::Status& status() const { return status_; }

 private:
  const Json* Find(const char* name, bool required) {
    const auto it = json_.find(name);
    if (it != json_.end()) return &*it;
    if (required) Fail(name, "is missing");
    return nullptr;
  }
  void Fail(const char* name, const std::string& why) {
    if (status_.ok()) status_ = Bad(absl::StrCat("field \"", name, "\" ", why));
  }

  const Json& json_;
  absl::Status status_;
};

}  // namespace

std::string ToJsonLine(const Record& r) {
  nlohmann::ordered_json json = {
      {"v", kJsonVersion},
      {"id", r.id},
      {"workload", r.workload},
      {"anchor", r.anchor},
      {"target", r.target},
      {"device", r.device_key},
      {"fingerprint", r.fingerprint},
      {"threads", r.threads},
      {"cache_policy", r.cache_policy},
      {"template", r.template_name},
      {"template_version", r.template_version},
      {"config", r.config},
      {"codegen_id", r.codegen_id},
      {"purpose", r.purpose},
      {"outcome", Text(r.outcome)},
      {"error", r.error},
      {"costs_s", r.costs_s},
      {"tuner", r.tuner},
      {"job", r.job},
      {"candidate", r.candidate},
      {"attempt", r.attempt},
      {"origin", r.origin},
      {"time", absl::FormatTime(kTimeFormat, absl::FromUnixMillis(r.time_unix_ms), absl::UTCTimeZone())}};
  return json.dump(-1, ' ', /*ensure_ascii=*/true, nlohmann::ordered_json::error_handler_t::replace);
}

absl::StatusOr<Record> RecordFromJsonLine(std::string_view line) {
  if (line.size() > kMaxJsonLineBytes) return Bad("the line is longer than 1 MiB");
  const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return Bad("the line is no JSON");
  if (!json.is_object()) return Bad("the line is no JSON object");
  Record r;
  int version = kJsonVersion;
  Fields fields(json);
  fields.Integer("v", version);
  if (version != kJsonVersion) {
    return Bad(absl::StrCat("its form is version ", version, ", this Temper reads ", kJsonVersion));
  }
  fields.Integer("id", r.id);
  fields.Text("workload", r.workload, /*required=*/true);
  fields.Text("anchor", r.anchor);
  fields.Text("target", r.target, /*required=*/true);
  fields.Text("device", r.device_key);
  fields.Text("fingerprint", r.fingerprint);
  fields.Integer("threads", r.threads);
  fields.Text("cache_policy", r.cache_policy);
  fields.Text("template", r.template_name, /*required=*/true);
  fields.Integer("template_version", r.template_version);
  fields.Text("config", r.config, /*required=*/true);
  fields.Text("codegen_id", r.codegen_id);
  fields.Text("purpose", r.purpose);
  fields.Ended("outcome", r.outcome);
  fields.Text("error", r.error);
  fields.Numbers("costs_s", r.costs_s);
  fields.Text("tuner", r.tuner);
  fields.Integer("job", r.job);
  fields.Integer("candidate", r.candidate);
  fields.Integer("attempt", r.attempt);
  fields.Text("origin", r.origin);
  fields.Time("time", r.time_unix_ms);
  TEMPER_RETURN_IF_ERROR(fields.status());
  return r;
}

}  // namespace temper
