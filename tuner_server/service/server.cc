#include "tuner_server/service/server.h"

#include <grpcpp/grpcpp.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/chores.h"
#include "base/log.h"
#include "tuner_server/service/admin_service.h"
#include "tuner_server/service/calls.h"
#include "tuner_server/service/enroll_service.h"
#include "tuner_server/service/listener.h"
#include "tuner_server/service/tls.h"
#include "tuner_server/service/tuning_service.h"
#include "tuner_server/service/unreadable.h"
#include "tuner_server/service/worker_service.h"

namespace temper {
namespace {

constexpr absl::Duration kLastCalls = absl::Seconds(2);
constexpr int kKeepaliveMs = 30'000, kKeepaliveTimeoutMs = 10'000;
constexpr int kHandshakeMs = 5'000;  // the default of two minutes lets silent connections pile up
constexpr int kIdleMs = 300'000;     // a connection without calls is closed, and made again with the next call
constexpr absl::Duration kLookAtCertificate = absl::Hours(1), kLookAtCallers = absl::Seconds(1),
                         kLookAtFiles = absl::Seconds(1);
constexpr int kIdsAMillisecond = 20;                                        // bits
constexpr int64_t kEndOfIdsUnixMs = int64_t{1} << (62 - kIdsAMillisecond);  // in the year 2109
constexpr int kLargestMetadata = 8 << 10;
constexpr int kStreamsAConnection = 64;
// What all connections may keep in memory, whatever they come by. Above it gRPC closes connections without calls and
// cancels calls; their peers try again.
constexpr size_t kConnectionBytes = 256 << 20;
// gRPC works through what it read at once whatever becomes of the connection meanwhile, and a header's small frames are
// dear (flood.h). It heeds this where main.cc told it to.
constexpr int kReadAtOnce = 4 << 10;

void Configure(grpc::ServerBuilder& builder, absl::Duration connection_age, double hurry) {
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, static_cast<int>(kKeepaliveMs / hurry));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, static_cast<int>(kKeepaliveTimeoutMs / hurry));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  // gRPC 1.51 closes a connection that pings too often anew with each ping that it has read already, at a hundred times
  // what it costs to answer one. What comes in without an end is cut off by its bytes (flood.h).
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, kIdleMs);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS,
                             static_cast<int>(absl::ToInt64Milliseconds(connection_age)));
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeMs);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kLargestMetadata);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kStreamsAConnection);
  builder.AddChannelArgument(GRPC_ARG_TCP_MAX_READ_CHUNK_SIZE, kReadAtOnce);
  // Windows would grow with the link, and a flood could not be told from a request (flood.h).
  builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  // gRPC would unpack a message before it looks at its size, and before anybody is asked who calls.
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, false);
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false);
  builder.SetResourceQuota(grpc::ResourceQuota("connections").Resize(kConnectionBytes));
  builder.SetMaxReceiveMessageSize(static_cast<int>(kLargestGraph));
}

void Shorten(CoreOptions& core, double hurry) {
  // The grace for a connection that broke stays: how soon a peer is back depends on the machine.
  for (absl::Duration* duration : {&core.dispatch.lease, &core.dispatch.session_timeout, &core.dispatch.frozen_gap,
                                   &core.orphan_grace, &core.store_patience, &core.longest_poll}) {
    *duration /= hurry;
  }
}

// Of a server that knows its callers. `tls`: null where nothing is encrypted.
std::vector<Chore> GuardsChores(const std::string& directory, const Clock& clock, Callers& callers, TlsWatch* tls) {
  const auto renew = [directory, &clock] { return KeepServerCertificate(directory, clock.Wall()); };
  const auto cancel = [&callers] {
    callers.CancelOutlived();
    return absl::OkStatus();
  };
  const auto look = [tls] {
    if (tls != nullptr) tls->LookAgain();
    return absl::OkStatus();
  };
  return {{.name = "looking after the server's certificate", .every = kLookAtCertificate, .run = renew},
          {.name = "ending calls that outlived their tokens", .every = kLookAtCallers, .run = cancel},
          {.name = "looking at TLS's files", .every = kLookAtFiles, .run = look}};
}

// Ids of items are made of the time, and what is kept carries it.
absl::StatusOr<int64_t> FirstId(absl::Time now) {
  const int64_t ms = absl::ToUnixMillis(now);
  if (ms >= 0 && ms < kEndOfIdsUnixMs) return ms << kIdsAMillisecond | 1;
  return absl::FailedPreconditionError(absl::StrCat("this machine's clock says that it is ",
                                                    absl::FormatTime("%Y-%m-%d %H:%M", now, absl::UTCTimeZone()),
                                                    " UTC: set it first"));
}

}  // namespace

absl::Status CheckListenAddress(const ServerOptions& options) {
  const std::string& listen = options.listen;
  if (IsUnixAddress(listen)) return absl::OkStatus();
  const std::string host = SplitHostPort(listen).host;
  if (host.empty() || absl::StrContains(host, '[')) {
    return absl::InvalidArgumentError(absl::StrCat("--listen takes HOST:PORT or unix:PATH, not '", listen, "'"));
  }
  const bool loopback = host == "localhost" || host == "::1" || absl::StartsWith(host, "127.");
  const bool initialised = !options.directory.empty();
  if (initialised && options.insecure) {
    return absl::InvalidArgumentError("a server with --dir is always encrypted: --insecure has no place beside it");
  }
  if (loopback || initialised || options.insecure) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat("'", host,
                   "' can be reached from other machines, and calls are neither encrypted nor authenticated; make them "
                   "so with temper-server init DIR and --dir DIR, or say --insecure to listen there anyway"));
}

struct Server::Impl {
  Impl(Store& store, const Clock& clock, const CoreOptions& options, std::unique_ptr<Gate> gate_of)
      : gate(std::move(gate_of)),
        callers(*gate, *options.metrics),
        core(store, clock, options),
        workers(core, *gate, callers),
        clients(core, callers),
        admins(core, *gate, callers),
        enroll(*gate, callers) {}

  const std::unique_ptr<Gate> gate;
  Callers callers;
  ServerCore core;
  WorkerServiceImpl workers;
  TuningServiceImpl clients;
  AdminServiceImpl admins;
  EnrollServiceImpl enroll;
  std::unique_ptr<TlsWatch> tls;  // null: nothing is encrypted
  std::unique_ptr<grpc::Server> server;
  std::unique_ptr<Listener> listener;
  std::optional<ChoreThread> chores;
};

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() { Shutdown(); }

absl::StatusOr<std::unique_ptr<Server>> Server::Start(Store& store, const Clock& clock, const ServerOptions& options) {
  TEMPER_RETURN_IF_ERROR(CheckListenAddress(options));
  std::optional<ServerDirectory> directory;
  std::unique_ptr<TlsWatch> tls;
  std::shared_ptr<grpc::ServerCredentials> credentials = grpc::InsecureServerCredentials();
  if (!options.directory.empty()) {
    TEMPER_ASSIGN_OR_RETURN(directory, OpenServerDirectory(options.directory));
    if (!IsUnixAddress(options.listen)) {
      TEMPER_ASSIGN_OR_RETURN(
          tls, TlsWatch::Make({directory->authority_path, directory->certificate_path, directory->key_path}));
      credentials = TlsCredentialsOf(*tls);
    }
  }
  TEMPER_ASSIGN_OR_RETURN(std::unique_ptr<Gate> gate, Gate::Open(store.access(), clock, std::move(directory)));
  CoreOptions core = options.core;
  Shorten(core, options.hurry);
  // Ids of a server before this one must never be met again: a worker may still hold its leases.
  TEMPER_ASSIGN_OR_RETURN(core.dispatch.first_id, FirstId(clock.Wall()));
  auto impl = std::make_unique<Impl>(store, clock, core, std::move(gate));
  impl->tls = std::move(tls);
  TEMPER_ASSIGN_OR_RETURN(impl->listener, Listener::Bind(options.listen, clock));
  grpc::ServerBuilder builder;
  Configure(builder, options.connection_age, options.hurry);
  builder.experimental().SetInterceptorCreators(CountUnreadable(impl->callers));
  auto connections = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, credentials);
  builder.RegisterService(&impl->workers);
  builder.RegisterService(&impl->clients);
  builder.RegisterService(&impl->admins);
  builder.RegisterService(&impl->enroll);
  impl->server = builder.BuildAndStart();
  if (impl->server == nullptr) return absl::InternalError("gRPC's server did not start");
  TEMPER_RETURN_IF_ERROR(impl->core.Start());
  impl->listener->Serve(std::move(connections));
  if (!options.directory.empty())
    impl->chores.emplace(GuardsChores(options.directory, clock, impl->callers, impl->tls.get()), clock);
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

const std::string& Server::address() const { return impl_->listener->address(); }
ServerCore& Server::core() { return impl_->core; }
Gate& Server::gate() { return *impl_->gate; }

void Server::Shutdown() {
  if (impl_->server == nullptr) return;
  impl_->chores.reset();
  impl_->listener->Close();
  impl_->core.Stop();
  impl_->server->Shutdown(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(kLastCalls));
  impl_->server->Wait();
  impl_->server.reset();
}

}  // namespace temper
