#include "client/connection.h"

#include <grpc/grpc.h>

#include "absl/strings/match.h"
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
  args.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 2'000);  // named so, it bounds an attempt
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

// What gRPC says at the end of its way, in words of who set the two programs up; with what may have to be done.
// `knows_how`: it has answered before, or nothing could be encrypted.
std::string WhyNoAnswer(const std::string& last, bool knows_how) {
  if (absl::StrContains(last, "wrong version number")) return "it speaks no TLS: leave --ca and TEMPER_CA out?";
  if (absl::StrContains(last, "certificate verify failed"))
    return "certificate verify failed: it is not of the authority that --ca or TEMPER_CA names, or no longer good";
  if (absl::StrContains(last, "no start line")) return "what --ca or TEMPER_CA names is no certificate";
  return absl::StrCat(last, knows_how ? "; is it running there?"
                                      : "; is it running there, and without encryption? If not: --ca or TEMPER_CA");
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
  if (status.ok()) NoteAnswer();
  if (status.error_code() != grpc::StatusCode::UNAVAILABLE) return FromGrpc(status);
  // What the server itself says is an answer.
  const auto says = [&](const char* words) { return absl::StrContains(status.error_message(), words); };
  const bool of_grpc = says("onnect") || says("Socket closed") || says("Broken pipe") || says("SSL") ||
                       says("GOAWAY") || says("DNS") || says("resolution") || says("keepalive");
  if (!of_grpc) return FromGrpc(status);
  // gRPC tells the way that it went; what happened at its end comes last.
  const std::string& message = status.error_message();
  const size_t last = message.rfind(": ");
  const std::string end = last == std::string::npos ? message : message.substr(last + 2);
  // TLS tells what was wrong in the middle of what it says.
  const bool tls = absl::StrContains(message, "SSL") || absl::StrContains(message, "PEM");
  const bool knows_how = answered_ || !options_.authority.empty() || address_.starts_with("unix:");
  return absl::UnavailableError(
      absl::StrCat("no answer from temper-server at ", address_, ": ", WhyNoAnswer(tls ? message : end, knows_how)));
}

}  // namespace temper
