// The way from a client to a server. Thread-safe.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "base/status.h"
#include "proto/check.h"

namespace temper {

inline constexpr char kSamePage[] = "its next page is one before";

struct ClientOptions {
  // Of each unary call. When it expires: kDeadlineExceeded, or kUnavailable naming the server if there was no
  // connection.
  absl::Duration call_timeout = absl::Seconds(30);
  // How long a call waits for a server that does not listen yet (a child just started). Zero: it fails at once.
  absl::Duration connect_timeout = absl::ZeroDuration();
  std::string authority;  // the file with its certificate; empty: plaintext
  std::string token;      // shown with each call; empty: none
  std::string identity;   // what this client calls itself; empty: nothing
};

class ServerConnection {
 public:
  // `address`: "HOST:PORT" or "unix:PATH". Does not connect yet, so it cannot fail for a server that is not there.
  // kInvalidArgument: no address, or a token that others could read on its way. Else see ChannelCredentialsOf.
  static absl::StatusOr<std::shared_ptr<ServerConnection>> Dial(const std::string& address,
                                                                const ClientOptions& options);

  const std::string& address() const { return address_; }
  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }
  // OK once the server answers. Waits for at most `timeout`.
  absl::Status WaitUntilReady(absl::Duration timeout) const;

  // Gives a call its deadline and says who calls.
  void Prepare(grpc::ClientContext& context, absl::Duration timeout) const;
  // A call's status, with the server's name where there was no server to answer.
  absl::Status Told(const grpc::Status& status) const;
  // The server's address and how it is spoken to are right: it has answered once.
  void NoteAnswer() const { answered_ = true; }
  bool answered() const { return answered_; }

  // `under_way` is told of the call's context before it begins, and of null once it is over.
  template <typename Stub, typename Request, typename Reply>
  absl::Status Call(
      Stub& stub, grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Reply*), const Request& request,
      Reply& reply, const std::function<void(grpc::ClientContext*)>& under_way = [](grpc::ClientContext*) {}) const {
    if (options_.connect_timeout > absl::ZeroDuration()) {
      if (absl::Status status = WaitUntilReady(options_.connect_timeout); !status.ok()) return status;
    }
    grpc::ClientContext context;
    context.set_wait_for_ready(options_.connect_timeout > absl::ZeroDuration());
    Prepare(context, options_.call_timeout);
    under_way(&context);
    const grpc::Status status = (stub.*method)(&context, request, &reply);
    under_way(nullptr);
    TEMPER_RETURN_IF_ERROR(Told(status));
    return CheckAnswer(reply);
  }

 private:
  ServerConnection(std::string address, ClientOptions options, std::shared_ptr<grpc::Channel> channel);

  const std::string address_;
  const ClientOptions options_;
  const std::shared_ptr<grpc::Channel> channel_;
  mutable std::atomic<bool> answered_ = false;
};

// The way to one of a server's services.
template <typename Service>
struct ServiceConnection {
  std::shared_ptr<ServerConnection> connection;
  std::unique_ptr<typename Service::Stub> stub;

  absl::Status Dial(const std::string& address, const ClientOptions& options) {
    TEMPER_ASSIGN_OR_RETURN(connection, ServerConnection::Dial(address, options));
    stub = Service::NewStub(connection->channel());
    return absl::OkStatus();
  }
  template <typename Request, typename Reply>
  absl::Status Call(grpc::Status (Service::Stub::*method)(grpc::ClientContext*, const Request&, Reply*),
                    const Request& request, Reply& reply) const {
    return connection->Call(*stub, method, request, reply);
  }
};

}  // namespace temper
