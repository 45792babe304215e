#include "client/connection.h"

#include <grpc/grpc.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/channel.h"
#include "proto/convert.h"

namespace temper {
namespace {

constexpr int kLargestReply = 32 << 20;  // the first event of a watch tells all of a job's workloads

grpc::ChannelArguments ClientSettings() {
  grpc::ChannelArguments args = ChannelSettings();
  args.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  args.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 5'000);
  args.SetMaxReceiveMessageSize(kLargestReply);
  return args;
}

// When the last channel of a process goes, gRPC takes itself down, and that may wait ten seconds for a poller of its
// own. A process that never lets go of gRPC ends at once.
void KeepGrpc() {
  static const bool kept = [] {
    grpc_init();
    return true;
  }();
  (void)kept;
}

}  // namespace

ServerConnection::ServerConnection(std::string address, ClientOptions options, std::shared_ptr<grpc::Channel> channel)
    : address_(std::move(address)), options_(std::move(options)), channel_(std::move(channel)) {}

absl::StatusOr<std::shared_ptr<ServerConnection>> ServerConnection::Dial(const std::string& address,
                                                                         const ClientOptions& options) {
  if (address.empty()) return absl::InvalidArgumentError("the server's address is empty; use HOST:PORT or unix:PATH");
  if (!options.token.empty() && options.authority.empty() && !StaysOnThisMachine(address)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a token would go to ", address,
                     " where others can read it; give the certificate of the server's authority (--ca, TEMPER_CA)"));
  }
  TEMPER_ASSIGN_OR_RETURN(const std::shared_ptr<grpc::ChannelCredentials> credentials,
                          ChannelCredentialsOf(address, {.authority = options.authority}, absl::Now()));
  KeepGrpc();
  return std::shared_ptr<ServerConnection>(
      new ServerConnection(address, options, grpc::CreateCustomChannel(address, credentials, ClientSettings())));
}

absl::Status ServerConnection::WaitUntilReady(absl::Duration timeout) const {
  if (channel_->WaitForConnected(absl::ToChronoTime(absl::Now() + timeout))) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("no temper-server at ", address_));
}

void ServerConnection::Prepare(grpc::ClientContext& context, absl::Duration timeout) const {
  context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
  if (!options_.token.empty()) context.AddMetadata(kAuthorizationKey, absl::StrCat(kBearerPrefix, options_.token));
  if (!options_.identity.empty()) context.AddMetadata(kIdentityKey, options_.identity);
}

absl::Status ServerConnection::Told(const grpc::Status& status) const {
  if (status.error_code() != grpc::StatusCode::UNAVAILABLE) return FromGrpc(status);
  // gRPC tells the way that it went; what happened at its end comes last.
  const std::string& message = status.error_message();
  const size_t last = message.rfind(": ");
  const bool plaintext = options_.authority.empty() && !address_.starts_with("unix:");
  return absl::UnavailableError(absl::StrCat("no answer from temper-server at ", address_, " (",
                                             last == std::string::npos ? message : message.substr(last + 2),
                                             "); is it running there", plaintext ? ", without encryption?" : "?"));
}

}  // namespace temper
