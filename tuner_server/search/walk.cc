#include "tuner_server/search/walk.h"

namespace temper {

Permutation::Permutation(int64_t size, uint64_t seed) : size_(static_cast<uint64_t>(size)), half_bits_(1) {
  while (half_bits_ < 32 && (uint64_t{1} << (2 * half_bits_)) < size_) ++half_bits_;
  Rng rng(seed);
  for (uint64_t& key : keys_) key = rng.Next();
}

int64_t Permutation::At(int64_t position) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t value = static_cast<uint64_t>(position);
  do {
    uint64_t left = value >> half_bits_, right = value & mask;
    for (uint64_t key : keys_) {
      const uint64_t mixed = left ^ (Rng(right ^ key).Next() & mask);
      left = right;
      right = mixed;
    }
    value = left << half_bits_ | right;
  } while (value >= size_);
  return static_cast<int64_t>(value);
}

Walk::Walk(std::shared_ptr<const TaskSpace> task, uint64_t seed) : task_(std::move(task)), rng_(seed) {
  for (int i = 0; i < task_->count(); ++i) orders_.emplace_back(task_->size(i), rng_.Next());
  walked_.resize(task_->count());
}

std::optional<Point> Walk::Next(const PointSet& seen) {
  for (int64_t refused = 0; refused < kPatience; ++refused) {
    double left = 0;
    for (int i = 0; i < task_->count(); ++i) left += static_cast<double>(task_->size(i) - walked_[i]);
    double draw = rng_.Uniform() * left;
    int space = -1;
    for (int i = 0; i < task_->count(); ++i) {
      const int64_t mine = task_->size(i) - walked_[i];
      if (mine == 0) continue;
      space = i;  // the last one with anything left, should rounding take the draw past it
      draw -= static_cast<double>(mine);
      if (draw < 0) break;
    }
    if (space < 0) return std::nullopt;
    const Point point{space, orders_[space].At(walked_[space]++)};
    if (!seen.contains(point) && task_->Legal(point)) return point;
  }
  return std::nullopt;
}

}  // namespace temper
