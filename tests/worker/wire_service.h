// FakeServer behind gRPC.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "temper/v1/worker.grpc.pb.h"
#include "tests/worker/fake_server.h"

namespace temper::worker {

class WireService : public v1::WorkerService::CallbackService {
 public:
  explicit WireService(FakeServer& server) : server_(server) {}
  grpc::ServerUnaryReactor* Register(grpc::CallbackServerContext* c, const v1::RegisterRequest* q,
                                     v1::RegisterReply* r) override {
    return Reply(c, r, server_.Register(*q));
  }
  grpc::ServerUnaryReactor* Sync(grpc::CallbackServerContext* c, const v1::SyncRequest* q, v1::SyncReply* r) override {
    grpc::ServerUnaryReactor* reactor = c->DefaultReactor();
    server_.StartSync(*q, [reactor, r](absl::StatusOr<v1::SyncReply> reply) {
      if (reply.ok()) *r = *reply;
      reactor->Finish(reply.ok() ? grpc::Status::OK : grpc::Status(grpc::StatusCode::UNAVAILABLE, "broke"));
    });
    return reactor;
  }
  grpc::ServerUnaryReactor* SubmitResults(grpc::CallbackServerContext* c, const v1::SubmitResultsRequest* q,
                                          v1::SubmitResultsReply* r) override {
    return Reply(c, r, server_.SubmitResults(*q));
  }
  grpc::ServerUnaryReactor* Leave(grpc::CallbackServerContext* c, const v1::LeaveRequest* q, v1::LeaveReply*) override {
    grpc::ServerUnaryReactor* reactor = c->DefaultReactor();
    reactor->Finish(server_.Leave(*q).ok() ? grpc::Status::OK : grpc::Status(grpc::StatusCode::UNAVAILABLE, "not now"));
    return reactor;
  }

 private:
  template <typename T>
  grpc::ServerUnaryReactor* Reply(grpc::CallbackServerContext* c, T* out, absl::StatusOr<T> reply) {
    grpc::ServerUnaryReactor* reactor = c->DefaultReactor();
    if (reply.ok()) *out = *reply;
    reactor->Finish(reply.ok() ? grpc::Status::OK : grpc::Status(grpc::StatusCode::UNAVAILABLE, "not now"));
    return reactor;
  }
  FakeServer& server_;
};

// Listens on `address` until destroyed.
class WireServer {
 public:
  WireServer(FakeServer& server, const std::string& address) : server_(server), service_(server) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address, grpc::InsecureServerCredentials());
    builder.RegisterService(&service_);
    wire_ = builder.BuildAndStart();
  }
  ~WireServer() {
    server_.End(absl::CancelledError("the test is over"));
    if (wire_) wire_->Shutdown(std::chrono::system_clock::now());
  }
  bool listening() const { return wire_ != nullptr; }

 private:
  FakeServer& server_;
  WireService service_;
  std::unique_ptr<grpc::Server> wire_;
};

}  // namespace temper::worker
