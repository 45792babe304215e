// A client that says nonsense: random, oversized, negative, non-finite and broken fields, and bytes that are no message
// at all, in every call of every service.
#pragma once

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "base/rng.h"

namespace temper {

// Not thread-safe.
class HostileClient {
 public:
  HostileClient(const std::string& address, uint64_t seed);

  // From now on a worker too, whose session and instance are in half of what it says.
  void Register(const std::string& key);
  // One call. Whatever its answer is, it is over when this returns.
  void Call();

 private:
  void SendOne(const std::string& method, const grpc::ByteBuffer& request);
  void SendForStream(const std::string& method, const grpc::ByteBuffer& request);
  bool Await(std::chrono::milliseconds patience);

  const std::shared_ptr<grpc::Channel> channel_;
  grpc::GenericStub stub_;
  grpc::CompletionQueue queue_;
  Rng rng_;
  std::string session_, instance_;
};

}  // namespace temper
