#include "tuner_server/search/annealer.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "absl/container/flat_hash_map.h"

namespace temper {
namespace {

// The scores of one run: each point is scored once, illegal ones never.
class Scores {
 public:
  explicit Scores(const AnnealProblem& problem) : problem_(problem) {}

  bool Legal(const Point& p) {
    const auto [it, fresh] = legal_.try_emplace(p, false);
    if (fresh) it->second = problem_.legal(p);
    return it->second;
  }

  // Scores what has none yet; `fresh` are those, scored.
  absl::Status Get(std::span<const Point> points, std::vector<float>& scores, std::vector<ScoredPoint>& fresh) {
    std::vector<Point> missing;
    for (const Point& p : points) {
      if (known_.try_emplace(p, 0.0f).second) missing.push_back(p);
    }
    TEMPER_ASSIGN_OR_RETURN(const std::vector<float> found, problem_.score(missing));
    fresh.clear();
    for (size_t i = 0; i < missing.size(); ++i) {
      known_[missing[i]] = found[i];
      fresh.push_back({missing[i], found[i]});
    }
    scores.clear();
    for (const Point& p : points) scores.push_back(known_[p]);
    return absl::OkStatus();
  }
  size_t size() const { return known_.size(); }

 private:
  const AnnealProblem& problem_;
  absl::flat_hash_map<Point, bool, PointHash> legal_;
  absl::flat_hash_map<Point, float, PointHash> known_;
};

// The best few so far.
class Top {
 public:
  Top(int count, const PointSet& without) : count_(static_cast<size_t>(std::max(count, 0))), without_(without) {}

  bool Add(const std::vector<ScoredPoint>& points) {
    bool changed = false;
    for (const ScoredPoint& p : points) {
      if (without_.contains(p.point) || (best_.size() == count_ && (count_ == 0 || !Before(p, *best_.rbegin()))))
        continue;
      best_.insert(p);
      if (best_.size() > count_) best_.erase(std::prev(best_.end()));
      changed = true;
    }
    return changed;
  }
  std::vector<ScoredPoint> Take() const { return {best_.begin(), best_.end()}; }

 private:
  const size_t count_;
  const PointSet& without_;
  std::set<ScoredPoint, decltype(&Before)> best_{&Before};
};

// How far scores are apart, as a yardstick for the temperature.
double Spread(const std::vector<float>& scores) {
  double mean = 0, square = 0;
  for (float s : scores) mean += s / static_cast<double>(scores.size());
  for (float s : scores) square += (s - mean) * (s - mean) / static_cast<double>(scores.size());
  return std::max(std::sqrt(square), 1e-3);
}

}  // namespace

void Annealer::Place(std::span<const Point> points) {
  const size_t most = std::min(points.size(), static_cast<size_t>(options_.chains));
  chains_.resize(std::max(chains_.size(), most));
  std::copy_n(points.begin(), most, chains_.begin());
}

absl::StatusOr<std::vector<ScoredPoint>> Annealer::Run(const AnnealProblem& problem, std::span<const Point> starts,
                                                       int count, const PointSet& without) {
  for (size_t i = 0; !starts.empty() && static_cast<int>(chains_.size()) < options_.chains; ++i)
    chains_.push_back(starts[i % starts.size()]);
  if (chains_.empty()) return std::vector<ScoredPoint>();
  Scores known(problem);
  Top top(count, without);
  std::vector<float> scores, proposed_scores;
  std::vector<ScoredPoint> fresh;
  TEMPER_RETURN_IF_ERROR(known.Get(chains_, scores, fresh));
  top.Add(fresh);
  const double spread = Spread(scores);
  std::vector<Point> proposed(chains_.size());
  int since_change = 0;
  for (int i = 0; i < options_.iterations && since_change < options_.early_stop; ++i, ++since_change) {
    const double done = std::max(static_cast<double>(i) / options_.iterations,
                                 static_cast<double>(known.size()) / options_.evaluations);
    if (done >= 1) break;
    for (size_t c = 0; c < chains_.size(); ++c) {
      proposed[c] = chains_[c];
      for (int t = 0; t < options_.tries; ++t) {
        const Point moved = problem.move(chains_[c], rng_);
        if (!known.Legal(moved)) continue;
        proposed[c] = moved;
        break;
      }
    }
    TEMPER_RETURN_IF_ERROR(known.Get(proposed, proposed_scores, fresh));
    if (top.Add(fresh)) since_change = 0;
    const double temperature = 1 - done;
    for (size_t c = 0; c < chains_.size(); ++c) {
      const double gain = (proposed_scores[c] - scores[c]) / spread;
      if (rng_.Uniform() >= std::exp(std::min(gain / (temperature + 1e-5), 1.0))) continue;
      chains_[c] = proposed[c];
      scores[c] = proposed_scores[c];
    }
  }
  return top.Take();
}

}  // namespace temper
