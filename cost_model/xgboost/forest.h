// Boosted trees laid out for prediction: XGBoost's own costs more for a call than for the hundred rows in it.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace temper {

class Forest {
 public:
  // From XGBoosterSaveModelToBuffer's "ubj". kInternal: no such model.
  static absl::StatusOr<Forest> FromUbj(std::string_view model);
  // Adds all trees' values at each row to its score. NaN is a missing value. The same sums as XGBoost's, in its order.
  void AddTo(std::span<const float> rows, size_t width, std::span<float> scores) const;

 private:
  // A row goes right where its feature is not below the threshold. A leaf's threshold is NaN, so that from there all
  // rows go "left", which is the leaf itself.
  struct Node {
    float threshold;
    uint16_t feature;
    bool missing_goes_right;
    int left;     // the right child lies behind it
    float value;  // of a leaf
  };
  struct Tree {
    std::vector<Node> nodes;
    int levels = 0;
  };
  template <typename Lists>
  bool Add(const Lists& in);  // false: no tree
  template <size_t lanes>
  static void Descend(const Tree& tree, const float* rows, size_t width, float* scores);

  std::vector<Tree> trees_;
};

}  // namespace temper
