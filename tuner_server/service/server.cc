#include "tuner_server/service/server.h"

#include <grpc/support/log.h>
#include <grpcpp/grpcpp.h>
#include <sys/stat.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "tuner_server/service/calls.h"
#include "tuner_server/service/tuning_service.h"
#include "tuner_server/service/worker_service.h"

namespace temper {
namespace {

constexpr absl::Duration kLastCalls = absl::Seconds(2);
constexpr int kHandshakeMs = 5'000;  // the default of two minutes lets silent connections pile up
constexpr int kLargestMetadata = 8 << 10;
constexpr int kStreamsAConnection = 64;

bool IsUnix(const std::string& listen) { return absl::StartsWith(listen, "unix:"); }

std::string HostOf(const std::string& listen) {
  const size_t colon = listen.rfind(':');
  if (colon == std::string::npos) return "";
  std::string host = listen.substr(0, colon);
  if (host.size() > 1 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  return host;
}

void Configure(grpc::ServerBuilder& builder) {
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);  // a second server must not share the port in silence
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 30'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 10'000);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeMs);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kLargestMetadata);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kStreamsAConnection);
  builder.SetMaxReceiveMessageSize(static_cast<int>(kLargestGraph));
}

}  // namespace

void LogGrpcQuietly() {
  gpr_set_log_function([](gpr_log_func_args* line) { spdlog::debug("grpc: {}", line->message); });
}

absl::Status CheckListenAddress(const std::string& listen, bool insecure) {
  if (IsUnix(listen)) return absl::OkStatus();
  const std::string host = HostOf(listen);
  if (host.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("--listen takes HOST:PORT or unix:PATH, not '", listen, "'"));
  }
  const bool loopback = host == "localhost" || host == "::1" || absl::StartsWith(host, "127.");
  if (loopback || insecure) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat("'", host,
                   "' can be reached from other machines, and calls are neither "
                   "encrypted nor authenticated; say --insecure to listen there anyway"));
}

struct Server::Impl {
  Impl(Store& store, const Clock& clock, const CoreOptions& options)
      : core(store, clock, options), workers(core), clients(core) {}

  ServerCore core;
  WorkerServiceImpl workers;
  TuningServiceImpl clients;
  std::unique_ptr<grpc::Server> server;
  std::string address;
};

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() { Shutdown(); }

absl::StatusOr<std::unique_ptr<Server>> Server::Start(Store& store, const Clock& clock, const ServerOptions& options) {
  TEMPER_RETURN_IF_ERROR(CheckListenAddress(options.listen, options.insecure));
  CoreOptions core = options.core;
  // Ids of a server before this one must never be met again: a worker may still hold its leases.
  core.dispatch.first_id = absl::ToUnixMillis(clock.Wall()) << 20 | 1;
  auto impl = std::make_unique<Impl>(store, clock, core);
  grpc::ServerBuilder builder;
  Configure(builder);
  int port = -1;
  builder.AddListeningPort(options.listen, grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&impl->workers);
  builder.RegisterService(&impl->clients);
  // A socket file is its owner's alone.
  const mode_t before = umask(0077);
  impl->server = builder.BuildAndStart();
  umask(before);
  if (impl->server == nullptr || (port == 0 && !IsUnix(options.listen))) {
    return absl::UnavailableError(
        absl::StrCat("cannot listen on ", options.listen, ": is another server running there?"));
  }
  impl->address = IsUnix(options.listen) ? options.listen
                                         : absl::StrCat(options.listen.substr(0, options.listen.rfind(':')), ":", port);
  TEMPER_RETURN_IF_ERROR(impl->core.Start());
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

const std::string& Server::address() const { return impl_->address; }
ServerCore& Server::core() { return impl_->core; }

void Server::Shutdown() {
  if (impl_->server == nullptr) return;
  impl_->core.Stop();
  impl_->server->Shutdown(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(kLastCalls));
  impl_->server->Wait();
  impl_->server.reset();
}

}  // namespace temper
