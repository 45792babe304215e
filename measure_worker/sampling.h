// From calls to samples: how often to call, when to give up, in which order contenders take turns. Knows no device.
#pragma once

#include <functional>
#include <vector>

#include "trial/trial.h"

namespace temper::worker {

// Seconds that `calls` calls take one after another.
using TimeFn = std::function<double(int64_t calls)>;

// Calls for a sample of at least `min_sample_us`, found by timing: one warm-up call, then more while the clock says
// that the sample would be too short.
int64_t FindCalls(const TimeFn& time, int64_t min_sample_us);

struct Samples {
  std::vector<double> costs_s;  // a call's seconds, one for each sample
  bool raced_out = false;       // fewer samples than planned were enough to see that it can not win
};
// Runs a warm-up, then the plan's samples. It stops early if the best of the first n samples is behind the incumbent by
// the n²-th root of the racing factor. `verified_s` is the time of the verification, which ran before. That run warms a
// long call up, and also counts as a sample: MeasureRacing stops after one sample if both are behind as two must be.
Samples MeasureRacing(const SamplingPlan& plan, double incumbent_s, double verified_s, const TimeFn& time);

// Whether the rounds of two contenders that took turns disagree so much on who is faster that more should tell. One
// sample of each a round.
bool IsCloseCall(const std::vector<double>& a, const std::vector<double>& b);

// Whether all rounds, of which there are enough, agree on who is faster: of calls so long that one is steady, more
// would tell no more.
bool IsDecided(const std::vector<double>& a, const std::vector<double>& b);

// Which contender goes at position `turn` of `round`: the order reverses each round, so that drift hits all alike.
int InterleavedIndex(int round, int turn, int contenders);

}  // namespace temper::worker
