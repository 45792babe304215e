#include "proto/convert.h"

#include "base/utf8.h"
#include "proto/limits.h"

namespace temper {
namespace {

constexpr size_t kLongestMessage = 2 << 10;  // bytes

}  // namespace

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  // Messages travel as metadata, of which 8 KiB are taken, and may quote what came from elsewhere.
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()),
                      std::string(CutUtf8(Escaped(std::string(status.message())), kLongestMessage)));
}

absl::Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  // A server that shuts down cuts calls off, and gRPC has nothing more to say of that than the code's name.
  const bool cut_off = status.error_code() == grpc::StatusCode::CANCELLED && status.error_message() == "CANCELLED";
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                      cut_off ? "the server ended the call: it is shutting down" : status.error_message());
}

v1::Record ToWire(const Record& r) {
  v1::Record out;
  out.set_id(r.id);
  out.set_workload(r.workload);
  out.set_anchor(r.anchor);
  out.set_target(r.target);
  out.set_device_key(r.device_key);
  out.set_fingerprint(r.fingerprint);
  out.set_threads(r.threads);
  out.set_cache_policy(r.cache_policy);
  out.set_template_name(r.template_name);
  out.set_template_version(r.template_version);
  out.set_config(r.config);
  out.set_codegen_id(r.codegen_id);
  out.set_purpose(r.purpose);
  out.set_outcome(std::string(Text(r.outcome)));
  out.set_error(ToUtf8(r.error));  // older databases hold errors that were cut inside a character
  out.mutable_costs_s()->Assign(r.costs_s.begin(), r.costs_s.end());
  out.set_tuner(r.tuner);
  out.set_job(r.job);
  out.set_time_unix_ms(r.time_unix_ms);
  out.set_candidate(r.candidate);
  out.set_attempt(r.attempt);
  out.set_origin(r.origin);
  return out;
}

absl::StatusOr<Record> FromWire(const v1::Record& r) {
  const std::optional<Outcome> outcome = ParseOutcome(r.outcome());
  if (!outcome.has_value()) return absl::InvalidArgumentError("record refused: unknown outcome");
  Record out;
  out.id = r.id();
  out.workload = r.workload();
  out.anchor = r.anchor();
  out.target = r.target();
  out.device_key = r.device_key();
  out.fingerprint = r.fingerprint();
  out.threads = r.threads();
  out.cache_policy = r.cache_policy();
  out.template_name = r.template_name();
  out.template_version = r.template_version();
  out.config = r.config();
  out.codegen_id = r.codegen_id();
  out.purpose = r.purpose();
  out.outcome = *outcome;
  out.error = r.error();
  out.costs_s.assign(r.costs_s().begin(), r.costs_s().end());
  out.tuner = r.tuner();
  out.job = r.job();
  out.time_unix_ms = r.time_unix_ms();
  out.candidate = r.candidate();
  out.attempt = r.attempt();
  if (!r.origin().empty()) out.origin = r.origin();
  return out;
}

v1::BestQuery ToWire(const BestQuery& q) {
  v1::BestQuery out;
  out.set_workload(q.workload);
  out.set_anchor(q.anchor);
  out.set_target(q.target);
  out.set_device_key(q.device_key);
  out.set_fingerprint(q.fingerprint);
  out.set_threads(q.threads);
  out.set_default_template(q.default_template);
  out.set_default_config(q.default_config);
  for (const auto& [name, version] : q.templates) {
    v1::AllowedTemplate* allowed = out.add_templates();
    allowed->set_name(name);
    allowed->set_version(version);
  }
  return out;
}

BestQuery FromWire(const v1::BestQuery& q) {
  BestQuery out;
  out.workload = q.workload();
  out.anchor = q.anchor();
  out.target = q.target();
  out.device_key = q.device_key();
  out.fingerprint = q.fingerprint();
  out.threads = q.threads();
  out.default_template = q.default_template();
  out.default_config = q.default_config();
  for (const v1::AllowedTemplate& allowed : q.templates())
    out.templates.emplace_back(allowed.name(), allowed.version());
  return out;
}

v1::BestAnswer ToWire(const std::optional<BestAnswer>& answer) {
  v1::BestAnswer out;
  if (!answer) return out;
  out.set_found(true);
  *out.mutable_record() = ToWire(answer->record);
  out.set_level(answer->level);
  return out;
}

absl::StatusOr<std::optional<BestAnswer>> FromWire(const v1::BestAnswer& answer) {
  if (!answer.found()) return std::nullopt;
  TEMPER_ASSIGN_OR_RETURN(Record record, FromWire(answer.record()));
  return BestAnswer{std::move(record), answer.level()};
}

std::string NameForWire(const std::string& name) {
  return HasControls(name) ? std::string(CutUtf8(Escaped(name), kLongestName)) : name;
}

v1::JobSummary ToWire(const JobRow& row) {
  v1::JobSummary out;
  out.set_job(row.id);
  out.set_model(NameForWire(row.model));
  out.set_device_key(row.device_key);
  out.set_state(row.state);
  out.set_reason(ToUtf8(row.reason));
  out.set_trials(row.trials);
  out.set_best_ms(row.best_ms);
  out.set_owner(NameForWire(row.owner));
  out.set_priority(row.priority);
  return out;
}

}  // namespace temper
