// The results of a batch, by candidate.
#pragma once

#include <map>
#include <mutex>
#include <utility>

#include "measure_worker/sandbox/session.h"

namespace temper::worker {

class Collector : public Reporter {  // told from several threads while they build
 public:
  void OnBegin(Phase, int) override {}
  void OnBuilt(int) override {}
  void OnTrial(int index, const TrialResult& result) override {
    std::lock_guard lock(mutex_);
    trials_[index] = result;
  }
  std::map<int, TrialResult> Take() { return std::move(trials_); }

 private:
  std::mutex mutex_;
  std::map<int, TrialResult> trials_;
};

}  // namespace temper::worker
