#include "tuner_server/service/server.h"

#include <grpc/support/log.h>
#include <grpcpp/grpcpp.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "tuner_server/service/calls.h"
#include "tuner_server/service/listener.h"
#include "tuner_server/service/tuning_service.h"
#include "tuner_server/service/worker_service.h"

namespace temper {
namespace {

constexpr absl::Duration kLastCalls = absl::Seconds(2);
constexpr int kKeepaliveMs = 30'000, kKeepaliveTimeoutMs = 10'000;
constexpr int kHandshakeMs = 5'000;  // the default of two minutes lets silent connections pile up
constexpr int kIdleMs = 300'000;     // a connection without calls is closed, and made again with the next call
constexpr int kLargestMetadata = 8 << 10;
constexpr int kStreamsAConnection = 64;

void Configure(grpc::ServerBuilder& builder, double hurry) {
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, static_cast<int>(kKeepaliveMs / hurry));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, static_cast<int>(kKeepaliveTimeoutMs / hurry));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 10'000);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, kIdleMs);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeMs);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kLargestMetadata);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kStreamsAConnection);
  builder.SetMaxReceiveMessageSize(static_cast<int>(kLargestGraph));
}

void Shorten(CoreOptions& core, double hurry) {
  // The grace for a connection that broke stays: how soon a peer is back depends on the machine.
  for (absl::Duration* duration : {&core.dispatch.lease, &core.dispatch.session_timeout, &core.dispatch.frozen_gap,
                                   &core.orphan_grace, &core.store_patience}) {
    *duration /= hurry;
  }
}

}  // namespace

void LogGrpcQuietly() {
  gpr_set_log_function([](gpr_log_func_args* line) { spdlog::debug("grpc: {}", line->message); });
}

absl::Status CheckListenAddress(const std::string& listen, bool insecure) {
  if (IsUnixAddress(listen)) return absl::OkStatus();
  const std::string host = SplitHostPort(listen).host;
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
  std::unique_ptr<Listener> listener;
};

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() { Shutdown(); }

absl::StatusOr<std::unique_ptr<Server>> Server::Start(Store& store, const Clock& clock, const ServerOptions& options) {
  TEMPER_RETURN_IF_ERROR(CheckListenAddress(options.listen, options.insecure));
  CoreOptions core = options.core;
  Shorten(core, options.hurry);
  // Ids of a server before this one must never be met again: a worker may still hold its leases.
  core.dispatch.first_id = absl::ToUnixMillis(clock.Wall()) << 20 | 1;
  auto impl = std::make_unique<Impl>(store, clock, core);
  TEMPER_ASSIGN_OR_RETURN(impl->listener, Listener::Bind(options.listen, clock));
  grpc::ServerBuilder builder;
  Configure(builder, options.hurry);
  auto connections = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
      options.credentials != nullptr ? options.credentials : grpc::InsecureServerCredentials());
  builder.RegisterService(&impl->workers);
  builder.RegisterService(&impl->clients);
  impl->server = builder.BuildAndStart();
  if (impl->server == nullptr) return absl::InternalError("gRPC's server did not start");
  TEMPER_RETURN_IF_ERROR(impl->core.Start());
  impl->listener->Serve(std::move(connections));
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

const std::string& Server::address() const { return impl_->listener->address(); }
ServerCore& Server::core() { return impl_->core; }

void Server::Shutdown() {
  if (impl_->server == nullptr) return;
  impl_->listener->Close();
  impl_->core.Stop();
  impl_->server->Shutdown(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(kLastCalls));
  impl_->server->Wait();
  impl_->server.reset();
}

}  // namespace temper
