#include "cost_model/xgboost/forest.h"

#include <limits>
#include <nlohmann/json.hpp>

namespace temper {

absl::StatusOr<Forest> Forest::FromUbj(std::string_view model) {
  try {
    const nlohmann::json parsed = nlohmann::json::from_ubjson(model.begin(), model.end());
    Forest forest;
    for (const nlohmann::json& in : parsed.at("learner").at("gradient_booster").at("model").at("trees")) {
      const auto left = in.at("left_children").get<std::vector<int>>();
      const auto right = in.at("right_children").get<std::vector<int>>();
      const auto feature = in.at("split_indices").get<std::vector<int>>();
      const auto condition = in.at("split_conditions").get<std::vector<float>>();
      const auto default_left = in.at("default_left").get<std::vector<int>>();
      Tree tree;
      // Nodes by level, siblings side by side; `level` holds their numbers in the model.
      tree.nodes.resize(1);
      std::vector<int> level = {0}, next;
      for (int first = 0; !level.empty(); ++tree.depth, first += static_cast<int>(level.size()), level.swap(next)) {
        next.clear();
        for (size_t i = 0; i < level.size(); ++i) {
          const auto from = static_cast<size_t>(level[i]);
          Node node{std::numeric_limits<float>::quiet_NaN(), 0, false, first + static_cast<int>(i), condition.at(from)};
          if (left.at(from) >= 0) {
            node = {condition.at(from), static_cast<uint16_t>(feature.at(from)), default_left.at(from) == 0,
                    static_cast<int>(tree.nodes.size()), 0};
            next.insert(next.end(), {left[from], right.at(from)});
            tree.nodes.resize(tree.nodes.size() + 2);
          }
          tree.nodes[static_cast<size_t>(first) + i] = node;
        }
      }
      forest.trees_.push_back(std::move(tree));
    }
    return forest;
  } catch (const std::exception& e) {
    return absl::InternalError(std::string("XGBoost's model is not what was expected: ") + e.what());
  }
}

void Forest::AddTo(std::span<const float> rows, size_t width, std::span<float> scores) const {
  for (const Tree& tree : trees_) {
    const Node* const nodes = tree.nodes.data();
    const float* row = rows.data();
    for (float& score : scores) {
      int at = 0;
      for (int i = 1; i < tree.depth; ++i) {
        const Node& node = nodes[at];
        const float value = row[node.feature];
        at = node.left + static_cast<int>((value >= node.threshold) | ((value != value) & node.missing_goes_right));
      }
      score += nodes[at].value;
      row += width;
    }
  }
}

}  // namespace temper
