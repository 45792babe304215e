#include "tuner_server/service/tls.h"

#include <grpcpp/security/tls_credentials_options.h>

namespace temper {

std::shared_ptr<grpc::ServerCredentials> TlsCredentialsOf(const TlsWatch& watch) {
  grpc::experimental::TlsServerCredentialsOptions options(watch.Provider());
  options.watch_identity_key_cert_pairs();
  options.watch_root_certs();  // names the authority to peers that choose among certificates
  options.set_cert_request_type(GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_BUT_DONT_VERIFY);
  return grpc::experimental::TlsServerCredentials(options);
}

}  // namespace temper
