// What workers made for benchmarks share.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/secure_random.h"
#include "bench/service/target.h"
#include "proto/convert.h"
#include "temper/v1/worker.grpc.pb.h"

namespace temper::bench {

inline constexpr absl::Duration kCallTimeout = absl::Seconds(30), kLongPoll = absl::Seconds(20);

// What a call needs until it is answered.
template <typename Request, typename Reply>
struct Call {
  grpc::ClientContext context;
  Request request;
  Reply reply;

  explicit Call(absl::Duration timeout) { context.set_deadline(absl::ToChronoTime(absl::Now() + timeout)); }
};

// On a connection of its own: others are made with the same credentials.
inline std::unique_ptr<v1::WorkerService::Stub> ConnectAlone(
    const std::string& address, const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetMaxReceiveMessageSize(16 << 20);
  return v1::WorkerService::NewStub(grpc::CreateCustomChannel(address, credentials, arguments));
}

inline v1::RegisterRequest RegistrationOf(const std::string& key, const std::string& name, const std::string& instance,
                                          int slots) {
  v1::RegisterRequest request;
  request.set_device_key(key);
  request.set_fingerprint("null");
  request.set_target(NullTarget());
  request.set_codegen_id(kNullCodegen);
  request.set_threads(1);
  request.set_slots(slots);
  request.set_name(name);
  request.set_instance(instance);
  request.set_wire_version(kWireVersion);
  return request;
}

}  // namespace temper::bench
