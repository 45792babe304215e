#include <grpcpp/grpcpp.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <set>

#include "absl/strings/str_cat.h"
#include "measure_worker/service/server_link.h"
#include "proto/channel.h"
#include "proto/check.h"
#include "proto/convert.h"
#include "temper/v1/worker.grpc.pb.h"

namespace temper::worker {
namespace {

constexpr auto kCallTimeout = std::chrono::seconds(20);
constexpr auto kSyncGrace = std::chrono::seconds(15);  // past the time that the server was asked to wait
constexpr auto kLeaveTimeout = std::chrono::seconds(1);
// A few leases, each with a graph that came in a request of at most 16 MiB, and what was chosen for it.
constexpr int kMaxGrantBytes = 64 << 20;
constexpr int kFirstBackoffMs = 100, kMaxBackoffMs = 2000;  // a server that was restarted should be found soon
constexpr int kConnectMs = 5000;                            // an attempt may take so long: handshakes over slow links

class GrpcLink : public ServerLink {
 public:
  GrpcLink(const std::string& address, const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
    grpc::ChannelArguments arguments = ChannelSettings();
    arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kFirstBackoffMs);
    arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kConnectMs);  // named so, it bounds an attempt
    arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kMaxBackoffMs);
    arguments.SetMaxReceiveMessageSize(kMaxGrantBytes);
    stub_ = v1::WorkerService::NewStub(grpc::CreateCustomChannel(address, credentials, arguments));
  }
  ~GrpcLink() override { Close(); }

  absl::StatusOr<v1::RegisterReply> Register(const v1::RegisterRequest& request) override {
    return Call<v1::RegisterReply>(kCallTimeout, [&](grpc::ClientContext* context, v1::RegisterReply* reply) {
      return stub_->Register(context, request, reply);
    });
  }

  absl::StatusOr<v1::SubmitResultsReply> SubmitResults(const v1::SubmitResultsRequest& request) override {
    return Call<v1::SubmitResultsReply>(kCallTimeout, [&](grpc::ClientContext* context, v1::SubmitResultsReply* reply) {
      return stub_->SubmitResults(context, request, reply);
    });
  }

  absl::Status Leave(const v1::LeaveRequest& request) override {
    return Call<v1::LeaveReply>(kLeaveTimeout,
                                [&](grpc::ClientContext* context, v1::LeaveReply* reply) {
                                  return stub_->Leave(context, request, reply);
                                })
        .status();
  }

  void StartSync(const v1::SyncRequest& request, SyncDone done) override {
    struct Pending {
      grpc::ClientContext context;
      v1::SyncRequest request;
      v1::SyncReply reply;
    };
    auto pending = std::make_shared<Pending>();
    pending->request = request;
    if (!Enter(&pending->context, std::chrono::milliseconds(request.wait_ms()) + kSyncGrace)) {
      done(absl::CancelledError("the worker is stopping"));
      return;
    }
    stub_->async()->Sync(&pending->context, &pending->request, &pending->reply,
                         [this, pending, done = std::move(done)](const grpc::Status& status) mutable {
                           Note(status);
                           done(Checked(status, std::move(pending->reply)));
                           grpc::ClientContext* context = &pending->context;
                           Leave(context, std::move(pending));
                         });
  }

  void Close() override {
    std::unique_lock lock(mutex_);
    closed_ = true;
    for (grpc::ClientContext* context : calls_) context->TryCancel();
    none_left_.wait(lock, [&] { return calls_.empty(); });
  }

 private:
  template <typename Reply, typename F>
  absl::StatusOr<Reply> Call(std::chrono::milliseconds timeout, F call) {
    grpc::ClientContext context;
    if (!Enter(&context, timeout)) return absl::CancelledError("the worker is stopping");
    Reply reply;
    const grpc::Status status = call(&context, &reply);
    Leave(&context);
    Note(status);
    return Checked(status, std::move(reply));
  }
  template <typename Reply>
  static absl::StatusOr<Reply> Checked(const grpc::Status& status, Reply&& reply) {
    if (!status.ok()) return FromGrpc(status);
    TEMPER_RETURN_IF_ERROR(CheckAnswer(reply));
    return std::move(reply);
  }

  bool Enter(grpc::ClientContext* context, std::chrono::milliseconds timeout) {
    context->set_deadline(std::chrono::system_clock::now() + timeout);
    context->set_wait_for_ready(absent_);
    std::lock_guard lock(mutex_);
    if (closed_) return false;
    calls_.insert(context);
    return true;
  }
  // While the server is away, the first call fails and tells so; later ones wait for it, since the channel knows within
  // two seconds when it is back, and the caller's back-off may be much longer.
  void Note(const grpc::Status& status) {
    if (status.ok()) absent_ = false;
    if (status.error_code() == grpc::StatusCode::UNAVAILABLE) absent_ = true;
  }
  // `owner`: of the context, where this is gRPC's own thread.
  void Leave(grpc::ClientContext* context, std::shared_ptr<void> owner = nullptr) {
    std::lock_guard lock(mutex_);
    if (owner != nullptr) ended_ = std::move(owner);
    calls_.erase(context);
    if (calls_.empty()) none_left_.notify_all();
  }

  std::unique_ptr<v1::WorkerService::Stub> stub_;
  std::mutex mutex_;
  std::condition_variable none_left_;
  std::set<grpc::ClientContext*> calls_;
  // The latest call that ended. Its context holds the channel, and if gRPC's thread were the last to let go of that, it
  // would wait for its own end, and abort.
  std::shared_ptr<void> ended_;
  bool closed_ = false;
  std::atomic<bool> absent_ = false;
};

}  // namespace

std::unique_ptr<ServerLink> ConnectByGrpc(const std::string& address,
                                          const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
  return std::make_unique<GrpcLink>(address, credentials);
}

}  // namespace temper::worker
