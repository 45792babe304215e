// A worker that measures nothing: it takes leases, keeps what it could hand in, and hands in one result when told to.
// On a connection of its own.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <string>

#include "bench/service/open_loop.h"
#include "temper/v1/worker.grpc.pb.h"

namespace temper::bench {

class NullWorker {
 public:
  NullWorker(const std::string& address, const std::shared_ptr<grpc::ChannelCredentials>& credentials);

  // Begins to register; `done` tells how it went.
  void Register(const std::string& key, const std::string& name, OpenLoop::Done done);
  // A Sync that restates what is held and does not wait.
  void Sync(OpenLoop::Done done);
  // From now on takes leases whenever nothing is left to hand in.
  void TakeLeases();
  void Stop() { stopping_ = true; }
  // Hands in one result; false: there is none yet.
  bool SubmitOne(OpenLoop::Done done);
  bool HasWork();

 private:
  void Take();
  void Keep(const v1::SyncReply& reply);

  std::unique_ptr<v1::WorkerService::Stub> stub_;
  const std::string instance_;
  std::string session_;
  std::atomic<bool> stopping_ = false;

  std::mutex mutex_;
  std::deque<v1::CandidateResult> results_;  // not handed in yet
  std::deque<int64_t> held_;
  bool takes_ = false, taking_ = false;
};

}  // namespace temper::bench
