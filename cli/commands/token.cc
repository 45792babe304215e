// token: who may use a server, and for what.
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cli/command.h"
#include "cli/connect.h"
#include "client/admin_client.h"
#include "security/files.h"

namespace temper {
namespace {

struct TokenOptions {
  ConnectOptions connect;
  std::string owner, scopes = "read,submit", id, out;
  std::vector<std::string> keys;
  double days = 90;
};

absl::Status Add(const TokenOptions& o) {
  TEMPER_ASSIGN_OR_RETURN(const std::unique_ptr<AdminClient> client, ConnectTo<AdminClient>(o.connect));
  v1::AddTokenRequest request;
  request.set_owner(o.owner);
  request.set_scopes(o.scopes);
  request.set_lifetime_ms(static_cast<int64_t>(o.days * absl::ToDoubleMilliseconds(absl::Hours(24))));
  request.mutable_keys()->Add(o.keys.begin(), o.keys.end());
  TEMPER_ASSIGN_OR_RETURN(const v1::AddTokenReply reply, client->AddToken(request));
  if (o.out.empty()) {
    std::printf("%s\n", reply.token().c_str());
    return absl::OkStatus();
  }
  TEMPER_RETURN_IF_ERROR(
      WriteWholeFile(o.out, absl::StrCat(reply.token(), "\n"), Secrecy::kPrivate, Existing::kRefuse));
  std::printf("token %s of %s is in %s\n", reply.id().c_str(), o.owner.c_str(), o.out.c_str());
  return absl::OkStatus();
}

absl::Status List(const TokenOptions& o) {
  TEMPER_ASSIGN_OR_RETURN(const std::unique_ptr<AdminClient> client, ConnectTo<AdminClient>(o.connect));
  TEMPER_ASSIGN_OR_RETURN(const std::vector<v1::TokenSummary> tokens, client->ListTokens());
  std::printf("%-16s %-16s %-24s %-20s %s\n", "id", "owner", "scopes", "keys", "expires");
  for (const v1::TokenSummary& t : tokens) {
    const std::string expires =
        t.revoked() ? "revoked"
        : t.expires_unix_ms() == 0
            ? "never"
            : absl::FormatTime("%Y-%m-%d %H:%M", absl::FromUnixMillis(t.expires_unix_ms()), absl::LocalTimeZone());
    std::printf("%-16s %-16s %-24s %-20s %s\n", t.id().c_str(), t.owner().c_str(), t.scopes().c_str(),
                t.keys().empty() ? "all" : t.keys().c_str(), expires.c_str());
  }
  return absl::OkStatus();
}

absl::Status Revoke(const TokenOptions& o) {
  TEMPER_ASSIGN_OR_RETURN(const std::unique_ptr<AdminClient> client, ConnectTo<AdminClient>(o.connect));
  TEMPER_RETURN_IF_ERROR(client->RevokeToken(o.id));
  std::printf("token %s is revoked\n", o.id.c_str());
  return absl::OkStatus();
}

CLI::App* AddAction(CLI::App* parent, Action* action, const char* name, const char* help, const char* example,
                    absl::Status (*run)(const TokenOptions&), const std::shared_ptr<TokenOptions>& o) {
  CLI::App* command = parent->add_subcommand(name, help);
  AddConnectOptions(command, &o->connect);
  command->footer(absl::StrCat("Example:\n  temper token ", example));
  command->callback([o, action, run] { *action = [o, run] { return run(*o); }; });
  return command;
}

}  // namespace

void AddToken(CLI::App& app, Action* action) {
  auto o = std::make_shared<TokenOptions>();
  CLI::App* token = app.add_subcommand("token", "say who may use a server, and for what");
  token->require_subcommand(1);
  token->footer("Example:\n  temper token add alice --scopes read,submit --days 30 --out alice.token");
  CLI::App* add = AddAction(token, action, "add", "make a token, and show it once",
                            "add alice --scopes read,submit --days 30 --out alice.token", Add, o);
  add->add_option("OWNER", o->owner, "who owns the token; owners may cancel their jobs")->required();
  add->add_option("--scopes", o->scopes, "some of read, submit, measure, admin")->capture_default_str();
  add->add_option("--keys", o->keys, "only for these device keys (default: all)")
      ->delimiter(',')
      ->allow_extra_args(false);
  add->add_option("--days", o->days, "days until it expires; 0: never")->capture_default_str()->check(ZeroOrMore());
  add->add_option("--out", o->out, "write it to this new file, which only you may read (default: print it)");
  AddAction(token, action, "list", "list all tokens, without their secrets", "list", List, o);
  AddAction(token, action, "revoke", "refuse a token from now on", "revoke 3f1c2b7a90de4512", Revoke, o)
      ->add_option("ID", o->id, "as `temper token list` shows it")
      ->required();
}

}  // namespace temper
