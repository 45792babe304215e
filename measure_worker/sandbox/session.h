// The child's side of an order: build, verify, time, report. Single-threaded but for the builds.
#pragma once

#include "measure_worker/backend.h"
#include "measure_worker/sandbox/canary.h"
#include "measure_worker/sandbox/messages.h"

namespace temper::worker {

// Where reports go. Thread-safe.
class Reporter {
 public:
  virtual ~Reporter() = default;
  virtual void OnBegin(Phase phase, int index) = 0;
  virtual void OnBuilt(int index) = 0;
  virtual void OnTrial(int index, const TrialResult& result) = 0;
};

// Reports one result for each candidate, unless the device is lost: then some have none. All candidates of a chunk are
// built first, several at once; nothing is built while another is measured. The canary is looked at around candidates,
// so results come a little later than they are known.
void CarryOut(KernelBench& kernels, const BatchOrder& order, Canary& canary, Reporter& reporter);

// The measuring child's whole life: reads orders from `fd` until it ends, or until the device is lost. Returns the exit
// code.
int ChildMain(int fd, Backend& backend);

}  // namespace temper::worker
