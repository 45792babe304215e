#include "compiler/timing/core_to_core.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>

#include "compiler/timing/timing.h"

namespace temper {
namespace {

constexpr int64_t kStop = -1;

// Two threads count in turn: the caller to odd numbers, the partner to even ones.
struct Rally {
  alignas(128) std::atomic<int64_t> ball = 0;
  alignas(128) int32_t partner = 0;
  double seconds = 0;
  double best = std::numeric_limits<double>::infinity();  // of one way
};

void Serve(Rally& rally) {
  constexpr int kRounds = 100;
  const int64_t start = MonotonicNs();
  int64_t count = 0, now = start;
  do {
    const int64_t before = now;
    for (int i = 0; i < kRounds; ++i) {
      rally.ball.store(++count, std::memory_order_release);
      ++count;
      while (rally.ball.load(std::memory_order_acquire) != count) {
      }
    }
    now = MonotonicNs();
    rally.best = std::min(rally.best, static_cast<double>(now - before) * 1e-9 / (2 * kRounds));
  } while (static_cast<double>(now - start) < rally.seconds * 1e9);
  rally.ball.store(kStop, std::memory_order_release);
}

void Return(Rally& rally) {
  for (;;) {
    const int64_t ball = rally.ball.load(std::memory_order_acquire);
    if (ball == kStop) return;
    if (ball % 2 == 1) rally.ball.store(ball + 1, std::memory_order_release);
  }
}

void Play(void* closure, int64_t, int64_t, int32_t thread) {
  Rally& rally = *static_cast<Rally*>(closure);
  if (thread == 0) Serve(rally);
  if (thread == rally.partner) Return(rally);
}

}  // namespace

double MeasureCoreToCore(temper_launcher* launcher, double seconds) {
  double farthest = 0;
  for (int32_t partner = 1; partner < launcher->threads; ++partner) {
    Rally rally;
    rally.partner = partner;
    rally.seconds = seconds / (launcher->threads - 1);
    launcher->parallel_for(launcher, launcher->threads, Play, &rally);
    farthest = std::max(farthest, rally.best);
  }
  return farthest;
}

}  // namespace temper
