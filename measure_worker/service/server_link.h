// The server as a worker sees it: four calls. One implementation speaks gRPC, tests bring their own.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/status.h"
#include "proto/channel.h"
#include "temper/v1/worker.pb.h"

namespace temper::worker {

class ServerLink {
 public:
  using SyncDone = std::function<void(absl::StatusOr<v1::SyncReply>)>;
  virtual ~ServerLink() = default;
  virtual absl::StatusOr<v1::RegisterReply> Register(const v1::RegisterRequest& request) = 0;
  // Returns at once; `done` is called once, from any thread, after up to request.wait_ms and some.
  virtual void StartSync(const v1::SyncRequest& request, SyncDone done) = 0;
  virtual absl::StatusOr<v1::SubmitResultsReply> SubmitResults(const v1::SubmitResultsRequest& request) = 0;
  // Waits for a second at most: a worker that ends has no more time.
  virtual absl::Status Leave(const v1::LeaveRequest& request) = 0;
  // Ends all calls under way, and those to come, with kCancelled; returns when every `done` has been called.
  virtual void Close() = 0;
};

// "HOST:PORT" or "unix:PATH". Connects when first used, and again after it broke. Links to one address with
// the same credentials share a connection.
std::unique_ptr<ServerLink> ConnectByGrpc(const std::string& address,
                                          const std::shared_ptr<grpc::ChannelCredentials>& credentials);

}  // namespace temper::worker
