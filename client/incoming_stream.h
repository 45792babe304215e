// What a server sends as a stream, read by the thread that wants it. Not thread-safe; the context may be cancelled by
// any thread meanwhile.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <functional>
#include <memory>

namespace temper {

template <typename Message>
class IncomingStream {
 public:
  using Reader = grpc::ClientAsyncReader<Message>;
  // `start` makes the call on the queue, with the tag null. The context outlives the stream.
  IncomingStream(grpc::ClientContext& context,
                 const std::function<std::unique_ptr<Reader>(grpc::CompletionQueue* queue)>& start)
      : context_(context), reader_(start(&queue_)) {
    Await();
  }
  ~IncomingStream() {
    if (!ended_) {
      context_.TryCancel();
      Finish();
    }
    queue_.Shutdown();
    void* tag;
    for (bool ok; queue_.Next(&tag, &ok);) {
    }
  }
  IncomingStream(const IncomingStream&) = delete;

  // False: there is no more, or what came can not be read.
  bool Read(Message* message) {
    reader_->Read(message, nullptr);
    return Await();
  }

  // How the call ended; once, after the last Read. A message that can not be read ends no call by itself: the server
  // goes on with what nobody takes. So where its last word is not there at once, the call is cancelled.
  grpc::Status Finish() {
    ended_ = true;
    grpc::Status status;
    reader_->Finish(&status, nullptr);
    void* tag;
    bool ok;
    const auto patience = std::chrono::system_clock::now() + kPatience;
    if (queue_.AsyncNext(&tag, &ok, patience) == grpc::CompletionQueue::GOT_EVENT) return status;
    context_.TryCancel();
    Await();
    return grpc::Status(grpc::StatusCode::DATA_LOSS, "the server sent something that can not be read");
  }

 private:
  static constexpr std::chrono::seconds kPatience{2};

  bool Await() {
    void* tag;
    bool ok = false;
    return queue_.Next(&tag, &ok) && ok;
  }

  grpc::ClientContext& context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<Reader> reader_;
  bool ended_ = false;
};

}  // namespace temper
