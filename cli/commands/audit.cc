// audit: who did what, and who was refused.
#include <cstdio>

#include "base/utf8.h"
#include "cli/command.h"
#include "cli/connect.h"
#include "cli/json_line.h"
#include "client/admin_client.h"

namespace temper {
namespace {

struct AuditOptions {
  ConnectOptions connect;
  int64_t limit = 50;
  bool json = false;
};

absl::Status Audit(const AuditOptions& o) {
  TEMPER_ASSIGN_OR_RETURN(const std::unique_ptr<AdminClient> client, ConnectTo<AdminClient>(o.connect));
  TEMPER_ASSIGN_OR_RETURN(const std::vector<v1::AuditEntry> entries, client->ListAudit(o.limit));
  for (const v1::AuditEntry& e : entries) {
    if (o.json) {
      const nlohmann::ordered_json line = {
          {"id", e.id()},        {"time_unix_ms", e.time_unix_ms()}, {"principal", e.principal()},
          {"call", e.call()},    {"subject", e.subject()},           {"verdict", e.verdict()},
          {"detail", e.detail()}};
      std::printf("%s\n", JsonText(line).c_str());
      continue;
    }
    const std::string time =
        absl::FormatTime("%Y-%m-%d %H:%M:%S", absl::FromUnixMillis(e.time_unix_ms()), absl::LocalTimeZone());
    std::printf("%s  %-7s  %-14s %-20s %s%s%s\n", time.c_str(), e.verdict().c_str(), e.call().c_str(),
                Escaped(e.subject()).c_str(), Escaped(e.principal()).c_str(), e.detail().empty() ? "" : ": ",
                Escaped(e.detail()).c_str());
  }
  return absl::OkStatus();
}

}  // namespace

void AddAudit(CLI::App& app, Action* action) {
  auto o = std::make_shared<AuditOptions>();
  CLI::App* command = app.add_subcommand("audit", "show who did what on a server and who was refused, newest first");
  AddConnectOptions(command, &o->connect);
  command->add_option("--limit", o->limit, "show at most this many entries")->capture_default_str()->check(AboveZero());
  command->add_flag("--json", o->json, "one JSON object a line");
  command->footer("Example:\n  temper audit --limit 20");
  command->callback([o, action] { *action = [o] { return Audit(*o); }; });
}

}  // namespace temper
