// What is known of a space before anything was measured.
#pragma once

#include <vector>

#include "tuner_server/search/experience.h"

namespace temper {

struct DraftRanking {
  std::vector<ScoredPoint> points;  // legal, best by draft first; scored by minus the logarithm of its seconds
  bool whole = false;               // all legal points; else those of a sample
};
struct RankingLimits {
  int64_t product = 1 << 16;  // larger ones are sampled,
  size_t legal = 8192;        // and so are those with more legal points
  size_t sample = 512;
};
// Distinct points at random, as many as there are among a bounded number of draws.
std::vector<Point> SomeLegal(const TaskSpace& task, int space, size_t count, Rng& rng);
// `correction`: of the drafts, if any.
DraftRanking RankByDraft(const TaskSpace& task, int space, Rng& rng, const RankingLimits& limits = {},
                         const Correction* correction = nullptr);

}  // namespace temper
