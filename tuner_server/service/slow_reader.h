// Ends a stream whose reader does not take what it is given: what waits for it holds memory, and a place that others
// want. Thread-safe; nothing is called back.
#pragma once

#include <grpcpp/alarm.h>
#include <grpcpp/support/server_callback.h>

#include <cstdint>
#include <memory>
#include <mutex>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace temper {

class SlowReader {
 public:
  // The context outlives this.
  SlowReader(grpc::CallbackServerContext& context, absl::Duration patience)
      : patience_(patience), call_(std::make_shared<Call>()) {
    call_->context = &context;
  }
  ~SlowReader() {
    std::lock_guard lock(call_->mutex);
    call_->context = nullptr;
  }

  // A write begins: unless it is Taken within the patience, the call is cancelled.
  void Given() {
    alarm_ = std::make_unique<grpc::Alarm>();
    std::lock_guard lock(call_->mutex);
    call_->waits = true;
    alarm_->Set(absl::ToChronoTime(absl::Now() + patience_), [call = call_, write = ++call_->writes](bool due) {
      std::lock_guard lock(call->mutex);
      if (due && call->waits && call->writes == write && call->context != nullptr) call->context->TryCancel();
    });
  }
  void Taken() {
    {
      std::lock_guard lock(call_->mutex);
      call_->waits = false;
    }
    alarm_.reset();
  }

 private:
  // Outlives the stream where the alarm goes off meanwhile.
  struct Call {
    std::mutex mutex;
    grpc::CallbackServerContext* context = nullptr;
    bool waits = false;
    int64_t writes = 0;
  };

  const absl::Duration patience_;
  const std::shared_ptr<Call> call_;
  std::unique_ptr<grpc::Alarm> alarm_;  // while something is written
};

}  // namespace temper
