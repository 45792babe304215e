#include "compiler/timing/core_to_core.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

#include "compiler/timing/timing.h"

namespace temper {
namespace {

constexpr int64_t kStop = -1;
constexpr int kMostTries = 100;             // to have a partner
constexpr int64_t kPatienceNs = 5'000'000;  // with one who does not come

// Two threads count in turn: the caller to odd numbers, the partner to even ones.
struct Rally {
  alignas(128) std::atomic<int64_t> ball = 0;
  alignas(128) int32_t partner = 0;
  double seconds = 0;
  bool served = false;                                    // the caller may run what a partner was meant for
  double best = std::numeric_limits<double>::infinity();  // of one way
};

// Whether somebody returns the first ball; otherwise the game is over.
bool HasPartner(Rally& rally) {
  const int64_t start = MonotonicNs();
  int64_t none = 0;
  if (!rally.ball.compare_exchange_strong(none, 1)) return false;
  while (rally.ball.load(std::memory_order_acquire) != 2) {
    int64_t first = 1;
    if (MonotonicNs() - start > kPatienceNs && rally.ball.compare_exchange_strong(first, kStop)) return false;
  }
  return true;
}

void Serve(Rally& rally) {
  constexpr int kRounds = 100;
  if (std::exchange(rally.served, true)) return;
  if (!HasPartner(rally)) return;
  const int64_t start = MonotonicNs();
  int64_t count = 2, now = start;
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
  const int64_t start = MonotonicNs();
  for (;;) {
    int64_t ball = rally.ball.load(std::memory_order_acquire);
    if (ball == kStop) return;
    if (ball == 0) {  // somebody else may run what the caller was meant for
      if (MonotonicNs() - start > kPatienceNs) rally.ball.compare_exchange_strong(ball, kStop);
    } else if (ball == 1) {
      rally.ball.compare_exchange_strong(ball, 2);  // the caller may have given up
    } else if (ball % 2 == 1) {
      rally.ball.store(ball + 1, std::memory_order_release);
    }
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
    double best = std::numeric_limits<double>::infinity();
    for (int i = 0; i < kMostTries && !std::isfinite(best); ++i) {
      Rally rally;
      rally.partner = partner;
      rally.seconds = seconds / (launcher->threads - 1);
      launcher->parallel_for(launcher, launcher->threads, Play, &rally);
      best = rally.best;
    }
    if (std::isfinite(best)) farthest = std::max(farthest, best);
  }
  return farthest;
}

}  // namespace temper
