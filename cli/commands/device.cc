// device: who may serve a device key.
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "cli/command.h"
#include "cli/connect.h"
#include "client/admin_client.h"

namespace temper {
namespace {

struct DeviceOptions {
  ConnectOptions connect;
  std::string key, fingerprint;
  bool quiet = false;
};

absl::Status Add(const DeviceOptions& o) {
  TEMPER_ASSIGN_OR_RETURN(const std::unique_ptr<AdminClient> client, ConnectTo<AdminClient>(o.connect));
  TEMPER_ASSIGN_OR_RETURN(const v1::AddDeviceReply reply, client->AddDevice(o.key));
  if (o.quiet) {
    std::printf("%s\n", reply.invitation().c_str());
    return absl::OkStatus();
  }
  std::printf("temper-worker join --server %s --token %s\n", client->address().c_str(), reply.invitation().c_str());
  std::printf(
      "Run it on the worker's machine until %s; it counts once.\n",
      absl::FormatTime("%H:%M %Z", absl::FromUnixMillis(reply.expires_unix_ms()), absl::LocalTimeZone()).c_str());
  return absl::OkStatus();
}

absl::Status Approve(const DeviceOptions& o) {
  TEMPER_ASSIGN_OR_RETURN(const std::unique_ptr<AdminClient> client, ConnectTo<AdminClient>(o.connect));
  TEMPER_ASSIGN_OR_RETURN(const int devices, client->ApproveDevice(o.key, o.fingerprint));
  std::printf("%d %s '%s' now\n", devices, devices == 1 ? "device may serve" : "devices may serve", o.key.c_str());
  return absl::OkStatus();
}

absl::Status Revoke(const DeviceOptions& o) {
  TEMPER_ASSIGN_OR_RETURN(const std::unique_ptr<AdminClient> client, ConnectTo<AdminClient>(o.connect));
  TEMPER_ASSIGN_OR_RETURN(const int certificates, client->RevokeDevice(o.key));
  std::printf("nobody may serve '%s' any more; %d %s revoked\n", o.key.c_str(), certificates,
              certificates == 1 ? "certificate is" : "certificates are");
  return absl::OkStatus();
}

CLI::App* AddAction(CLI::App* parent, Action* action, const char* name, const char* help, const char* example,
                    absl::Status (*run)(const DeviceOptions&), const std::shared_ptr<DeviceOptions>& o) {
  CLI::App* command = parent->add_subcommand(name, help);
  command->add_option("KEY", o->key, "the device key")->required();
  AddConnectOptions(command, &o->connect);
  command->footer(absl::StrCat("Example:\n  temper device ", example));
  command->callback([o, action, run] { *action = [o, run] { return run(*o); }; });
  return command;
}

}  // namespace

void AddDevice(CLI::App& app, Action* action) {
  auto o = std::make_shared<DeviceOptions>();
  CLI::App* device = app.add_subcommand("device", "say who may serve a device key");
  device->require_subcommand(1);
  device->footer("Example:\n  temper device add epyc-zen5");
  AddAction(device, action, "add", "invite a worker: prints what to run on its machine", "add epyc-zen5", Add, o)
      ->add_flag("-q,--quiet", o->quiet, "print the invitation alone");
  AddAction(device, action, "approve", "let a device with a new fingerprint serve", "approve epyc-zen5", Approve, o)
      ->add_option("FINGERPRINT", o->fingerprint, "as `temper devices` shows it (default: all that wait)");
  AddAction(device, action, "revoke", "refuse all workers of the key from now on", "revoke epyc-zen5", Revoke, o);
}

}  // namespace temper
