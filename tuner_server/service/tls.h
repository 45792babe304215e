// An initialised server's end of TLS.
#pragma once

#include <grpcpp/security/server_credentials.h>

#include <memory>

#include "proto/tls_files.h"

namespace temper {

// TLS 1.2 or newer, by what `watch` saw last, which outlives the server. Peers may show a certificate, of which the
// handshake proves that they hold its key and no more: the gate judges it at each call, so that a refusal can say why.
std::shared_ptr<grpc::ServerCredentials> TlsCredentialsOf(const TlsWatch& watch);

}  // namespace temper
