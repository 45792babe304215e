// Boosted trees laid out for prediction: XGBoost's own costs more for a call than for the hundred rows in it.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace temper {

class Forest {
 public:
  // From XGBoosterSaveModelToBuffer's "ubj". kInternal: no such model, or a feature of `width` or more.
  static absl::StatusOr<Forest> FromUbj(std::string_view model, size_t width);
  // One tree a line, its nodes by level: "=0.25" is a leaf, "7<1.5" sends rows whose feature 7 is below 1.5 to the
  // first of its children, and "7!<1.5" rows that miss it to the second. Thresholds are exact, values have six digits.
  std::string Text() const;
  // kInvalidArgument: no such text, or a feature of `width` or more.
  static absl::StatusOr<Forest> FromText(std::string_view text, size_t width);
  void Scale(float factor);  // all values
  bool empty() const { return trees_.empty(); }
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
  bool Add(const Lists& in, size_t width);              // false: no tree
  bool AddLine(const std::string& line, size_t width);  // the same
  template <size_t lanes>
  static void Descend(const Tree& tree, const float* rows, size_t width, float* scores);

  std::vector<Tree> trees_;
};

}  // namespace temper
