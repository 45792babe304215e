// Requests that are no message of their kind, or larger than gRPC takes: gRPC refuses them before a handler sees them.
#pragma once

#include <grpcpp/support/server_interceptor.h>

#include <memory>
#include <vector>

#include "tuner_server/service/callers.h"

namespace temper {

// For a ServerBuilder: counts them with `callers`, which outlives the server.
std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> CountUnreadable(Callers& callers);

}  // namespace temper
