// drain and undrain: workers that get nothing more, and that do again.
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "cli/command.h"
#include "cli/connect.h"
#include "cli/report/words.h"
#include "client/admin_client.h"

namespace temper {
namespace {

struct DrainOptions {
  ConnectOptions connect;
  v1::DrainRequest request;
};

absl::Status Drain(const DrainOptions& o) {
  if (o.request.key().empty() == o.request.name().empty())
    return absl::InvalidArgumentError("give a device KEY, or the --name of one worker");
  TEMPER_ASSIGN_OR_RETURN(const std::unique_ptr<AdminClient> client, ConnectTo<AdminClient>(o.connect));
  TEMPER_ASSIGN_OR_RETURN(const int workers, client->Drain(o.request));
  if (workers == 0) {
    return absl::NotFoundError(
        absl::StrCat("no worker is called '", o.request.name(), o.request.key(), "': `temper devices` lists them"));
  }
  const bool one = workers == 1;
  std::printf("%s %s\n", Counted(workers, "worker").c_str(),
              o.request.undo() ? one ? "works again" : "work again"
              : one            ? "finishes what it holds"
                               : "finish what they hold");
  return absl::OkStatus();
}

CLI::App* Add(CLI::App& app, Action* action, const char* name, const char* help, bool undo) {
  auto o = std::make_shared<DrainOptions>();
  o->request.set_undo(undo);
  CLI::App* command = app.add_subcommand(name, help);
  command->add_option_function<std::string>(
      "KEY", [o](const std::string& key) { o->request.set_key(key); }, "all workers of this device key");
  command->add_option_function<std::string>(
      "--name", [o](const std::string& worker) { o->request.set_name(worker); },
      "the worker of this name, as `temper devices --json` shows it");
  if (!undo) {
    command->add_option_function<std::string>(
        "--reason", [o](const std::string& reason) { o->request.set_reason(reason); }, "what to tell the workers");
  }
  AddConnectOptions(command, &o->connect);
  command->footer(absl::StrCat("Example:\n  temper ", name, " epyc-zen5"));
  command->callback([o, action] { *action = [o] { return Drain(*o); }; });
  return command;
}

}  // namespace

void AddDrain(CLI::App& app, Action* action) {
  Add(app, action, "drain", "let workers finish what they hold, and give them nothing more", false);
}

void AddUndrain(CLI::App& app, Action* action) {
  Add(app, action, "undrain", "let drained workers work again, also those that failed too often", true);
}

}  // namespace temper
