#include "cli/connect.h"

#include "base/state_directory.h"
#include "security/identity.h"
#include "security/token.h"

namespace temper {

void AddCredentialOptions(CLI::App* command, ConnectOptions* options) {
  command->add_option("--ca", options->authority, "the server's authority (ca.crt), for an encrypted server")
      ->envname("TEMPER_CA");
  command->add_option("--token-file", options->token_file, "file with your token; nobody else may be able to read it")
      ->envname("TEMPER_TOKEN_FILE");
}

absl::StatusOr<ClientOptions> ClientOptionsOf(const ConnectOptions& options) {
  ClientOptions client;
  client.authority = options.authority;
  client.identity = ClientIdentity(StateDirectory());
  if (!options.token_file.empty()) {
    TEMPER_ASSIGN_OR_RETURN(client.token, ReadTokenFile(options.token_file));
  }
  return client;
}

void AddConnectOptions(CLI::App* command, ConnectOptions* options) {
  command->add_option("--server", options->server, "tuning server HOST:PORT or unix:PATH")->envname("TEMPER_SERVER");
  AddCredentialOptions(command, options);
}

absl::StatusOr<std::string> ServerOf(const ConnectOptions& options) {
  if (!options.server.empty()) return options.server;
  return absl::InvalidArgumentError("no server: give --server HOST:PORT or set TEMPER_SERVER");
}

}  // namespace temper
