// A random order over every candidate of a task, each once, in constant memory. So a search that has used up a space
// knows it, and a nearly used-up one costs no luck.
#pragma once

#include <vector>

#include "tuner_server/search/task_space.h"

namespace temper {

// A random-looking order of 0 .. size-1, by position: a Feistel network over the next power of four, walked until it is
// back inside.
class Permutation {
 public:
  Permutation(int64_t size, uint64_t seed);
  int64_t At(int64_t position) const;  // position in [0, size)

 private:
  uint64_t size_, half_bits_;
  uint64_t keys_[4];
};

class Walk {
 public:
  Walk(std::shared_ptr<const TaskSpace> task, uint64_t seed);
  // The next legal point not in `seen`; nullopt once there is none. Templates come up in proportion to what is left of
  // them. Where next to nothing of a huge space is legal it gives up after kPatience refusals in a row.
  std::optional<Point> Next(const PointSet& seen);

 private:
  static constexpr int64_t kPatience = 1 << 21;

  std::shared_ptr<const TaskSpace> task_;
  Rng rng_;
  std::vector<Permutation> orders_;
  std::vector<int64_t> walked_;
};

}  // namespace temper
