#include "security/audit.h"

#include "absl/strings/str_cat.h"
#include "base/log.h"

namespace temper {
namespace {

constexpr size_t kLongest = 256;

// Cut to a length that is kept, never inside a UTF-8 character.
std::string Cut(std::string_view text) {
  if (text.size() <= kLongest) return std::string(text);
  size_t end = kLongest;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return std::string(text.substr(0, end));
}

}  // namespace

AuditRow Audit::Done(const Principal& principal, Call call, std::string_view subject, std::string_view detail) const {
  AuditRow row;
  row.time_unix_ms = absl::ToUnixMillis(clock_.Wall());
  row.principal = Describe(principal);
  row.call = RightOf(call).name;
  row.subject = Cut(subject);
  row.verdict = "allowed";
  row.detail = Cut(detail);
  return row;
}

std::optional<AuditRow> Audit::Refused(std::string_view principal, Call call, std::string_view subject,
                                       std::string_view reason) {
  int64_t left_out = 0;
  if (!MayKeepRefusal(&left_out)) return std::nullopt;
  AuditRow row;
  row.time_unix_ms = absl::ToUnixMillis(clock_.Wall());
  row.principal = Cut(principal);
  row.call = RightOf(call).name;
  row.subject = Cut(subject);
  row.verdict = "refused";
  row.detail = Cut(reason);
  if (left_out > 0) absl::StrAppend(&row.detail, " (", left_out, " refusals before this one were not kept)");
  return row;
}

bool Audit::MayKeepRefusal(int64_t* left_out) {
  std::lock_guard lock(mutex_);
  if (!refusals_.Take(1, clock_.Monotonic())) {
    ++left_out_;
    return false;
  }
  *left_out = std::exchange(left_out_, 0);
  return true;
}

bool Audit::Keep(const AuditRow& row) {
  const absl::Status status = store_.AppendAudit(row);
  if (!status.ok()) {
    spdlog::error("not audited: {} {} {} {}: {}", row.principal, row.verdict, row.call, row.subject,
                  std::string(status.message()));
  }
  return status.ok();
}

}  // namespace temper
