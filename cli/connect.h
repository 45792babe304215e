// How a command reaches a server, and by what it is known there.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "client/connection.h"

namespace temper {

struct ConnectOptions {
  std::string server, authority, token_file;
};
// --ca and --token-file; --server is each command's own to describe.
void AddCredentialOptions(CLI::App* command, ConnectOptions* options);
// With the token that the file holds, and the identity that this user keeps.
absl::StatusOr<ClientOptions> ClientOptionsOf(const ConnectOptions& options);

// For commands that are about a server: --server, else TEMPER_SERVER, else kInvalidArgument.
void AddConnectOptions(CLI::App* command, ConnectOptions* options);
absl::StatusOr<std::string> ServerOf(const ConnectOptions& options);

// A call of Client::Connect with all of the above.
template <typename Client>
absl::StatusOr<std::unique_ptr<Client>> ConnectTo(const ConnectOptions& options) {
  TEMPER_ASSIGN_OR_RETURN(const std::string server, ServerOf(options));
  TEMPER_ASSIGN_OR_RETURN(const ClientOptions client, ClientOptionsOf(options));
  return Client::Connect(server, client);
}

}  // namespace temper
