// An initialised server's end of TLS.
#pragma once

#include <grpcpp/security/server_credentials.h>

#include <memory>

#include "security/server_directory.h"

namespace temper {

// TLS 1.2 or newer. The files are watched: what is swapped for them is taken up within seconds, by connections made
// from then on. Peers may show a certificate, of which the handshake proves that they hold its key and no more: the
// gate judges it at each call, so that a refusal can say why.
std::shared_ptr<grpc::ServerCredentials> TlsCredentialsOf(const ServerDirectory& directory);

}  // namespace temper
