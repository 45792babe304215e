#include "cost_model/xgboost/forest.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"

namespace temper {
namespace {

// One tree as XGBoost writes it: lists by node. A leaf has no children, and its value for a condition.
struct Lists {
  std::vector<double> left, right, feature, condition, default_left;
  bool Complete() const {
    return !left.empty() && right.size() == left.size() && feature.size() == left.size() &&
           condition.size() == left.size() && default_left.size() == left.size();
  }
};

// Picks the trees out of the model as it is read; the whole as a document would take as long as the fit.
class TreeReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit TreeReader(const std::function<void(const Lists&)>& on_tree) : on_tree_(on_tree) {}
  const std::string& error() const { return error_; }

  bool key(std::string& name) override {
    list_ = name == "left_children"      ? &lists_.left
            : name == "right_children"   ? &lists_.right
            : name == "split_indices"    ? &lists_.feature
            : name == "split_conditions" ? &lists_.condition
            : name == "default_left"     ? &lists_.default_left
                                         : nullptr;
    return true;
  }
  bool end_array() override {
    list_ = nullptr;
    if (!lists_.Complete()) return true;
    on_tree_(lists_);
    lists_ = {};
    return true;
  }
  bool number_integer(int64_t value) override { return Add(static_cast<double>(value)); }
  bool number_unsigned(uint64_t value) override { return Add(static_cast<double>(value)); }
  bool number_float(double value, const std::string&) override { return Add(value); }
  bool boolean(bool value) override { return Add(value); }
  bool null() override { return true; }
  bool string(std::string&) override { return true; }
  bool binary(nlohmann::json::binary_t&) override { return true; }
  bool start_object(size_t) override { return true; }
  bool end_object() override { return true; }
  bool start_array(size_t) override { return true; }
  bool parse_error(size_t, const std::string&, const nlohmann::json::exception& e) override {
    error_ = e.what();
    return false;
  }

 private:
  bool Add(double value) {
    if (list_ != nullptr) list_->push_back(value);
    return true;
  }

  const std::function<void(const Lists&)>& on_tree_;
  Lists lists_;
  std::vector<double>* list_ = nullptr;  // being read
  std::string error_;
};

constexpr size_t kBlock = 64;  // rows that stay in the first cache while all trees see them
constexpr size_t kLanes = 8;   // rows that descend together: one's load waits beside the others'

}  // namespace

absl::StatusOr<Forest> Forest::FromUbj(std::string_view model, size_t width) {
  Forest forest;
  bool sound = true;
  const std::function<void(const Lists&)> add = [&](const Lists& lists) { sound = sound && forest.Add(lists, width); };
  TreeReader reader(add);
  nlohmann::json::sax_parse(model.begin(), model.end(), &reader, nlohmann::json::input_format_t::ubjson);
  if (!reader.error().empty() || !sound || forest.trees_.empty())
    return absl::InternalError(absl::StrCat("XGBoost's model is not what was expected ", reader.error()));
  return forest;
}

template <typename Lists>
bool Forest::Add(const Lists& in, size_t width) {
  constexpr double kMostFeatures = std::numeric_limits<uint16_t>::max() + 1.0;
  const double features = std::min(static_cast<double>(width), kMostFeatures);
  // NaN is in no range, so each is asked whether it is inside.
  const auto is_below = [](double value, double end) { return value >= 0 && value < end; };
  // Nodes by level, siblings side by side; `level` holds their numbers in the model.
  Tree tree;
  tree.nodes.resize(1);
  std::vector<size_t> level = {0}, next;
  for (size_t first = 0; !level.empty(); ++tree.levels, first += level.size(), level.swap(next)) {
    next.clear();
    for (size_t i = 0; i < level.size(); ++i) {
      const size_t from = level[i];
      const bool leaf = in.left[from] < 0;
      if (!std::isfinite(static_cast<float>(in.condition[from])) || (!leaf && !is_below(in.feature[from], features)))
        return false;
      Node& node = tree.nodes[first + i];
      node.threshold = leaf ? std::numeric_limits<float>::quiet_NaN() : static_cast<float>(in.condition[from]);
      node.feature = leaf ? 0 : static_cast<uint16_t>(in.feature[from]);
      node.missing_goes_right = !leaf && in.default_left[from] == 0;
      node.left = static_cast<int>(leaf ? first + i : tree.nodes.size());
      node.value = leaf ? static_cast<float>(in.condition[from]) : 0;
      if (leaf) continue;
      for (double child : {in.left[from], in.right[from]}) {
        if (!is_below(child, static_cast<double>(in.left.size())) || child < 1) return false;
        next.push_back(static_cast<size_t>(child));
      }
      tree.nodes.resize(tree.nodes.size() + 2);
      if (tree.nodes.size() > in.left.size()) return false;  // no tree: a node with two parents
    }
  }
  trees_.push_back(std::move(tree));
  return true;
}

std::string Forest::Text() const {
  std::string text;
  for (const Tree& tree : trees_) {
    for (size_t i = 0; i < tree.nodes.size(); ++i) {
      const Node& node = tree.nodes[i];
      if (i > 0) text += ' ';
      if (std::isnan(node.threshold))
        absl::StrAppendFormat(&text, "=%.6g", node.value);
      else
        absl::StrAppendFormat(&text, "%d%s<%.9g", node.feature, node.missing_goes_right ? "!" : "", node.threshold);
    }
    text += '\n';
  }
  return text;
}

absl::StatusOr<Forest> Forest::FromText(std::string_view text, size_t width) {
  Forest forest;
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(std::string(text), '\n', absl::SkipEmpty()))) {
    if (!forest.AddLine(line, width))
      return absl::InvalidArgumentError(absl::StrCat("tree ", forest.trees_.size(), " is none"));
  }
  return forest;
}

bool Forest::AddLine(const std::string& line, size_t width) {
  Tree tree;
  size_t known = 1, level_end = 1;  // nodes that have a parent; the first node below the level being read
  for (const std::string& token : std::vector<std::string>(absl::StrSplit(line, ' '))) {
    const size_t i = tree.nodes.size();
    if (i >= known) return false;
    if (i == 0 || i == level_end) {
      level_end = known;
      ++tree.levels;
    }
    Node node{std::numeric_limits<float>::quiet_NaN(), 0, false, static_cast<int>(i), 0};
    const size_t sign = token.find_first_of("=<");
    float number = 0;
    if (sign == token.npos || !absl::SimpleAtof(token.substr(sign + 1), &number) || !std::isfinite(number))
      return false;
    if (token[sign] == '=') {
      if (sign != 0) return false;
      node.value = number;
    } else {
      node.missing_goes_right = sign > 0 && token[sign - 1] == '!';
      uint32_t feature = 0;
      if (!absl::SimpleAtoi(token.substr(0, sign - node.missing_goes_right), &feature) || feature >= width ||
          feature > std::numeric_limits<uint16_t>::max())
        return false;
      node.feature = static_cast<uint16_t>(feature);
      node.threshold = number;
      node.left = static_cast<int>(known);
      known += 2;
    }
    tree.nodes.push_back(node);
  }
  if (tree.nodes.size() != known) return false;
  trees_.push_back(std::move(tree));
  return true;
}

void Forest::Scale(float factor) {
  for (Tree& tree : trees_) {
    for (Node& node : tree.nodes) node.value *= factor;
  }
}

template <size_t lanes>
void Forest::Descend(const Tree& tree, const float* rows, size_t width, float* scores) {
  const Node* const nodes = tree.nodes.data();
  int at[lanes] = {};
  for (int level = 1; level < tree.levels; ++level) {
    for (size_t lane = 0; lane < lanes; ++lane) {
      const Node& node = nodes[at[lane]];
      const float value = rows[lane * width + node.feature];
      const bool missing = value != value;
      at[lane] = node.left + static_cast<int>((value >= node.threshold) | (missing & node.missing_goes_right));
    }
  }
  for (size_t lane = 0; lane < lanes; ++lane) scores[lane] += nodes[at[lane]].value;
}

void Forest::AddTo(std::span<const float> rows, size_t width, std::span<float> scores) const {
  for (size_t first = 0; first < scores.size(); first += kBlock) {
    const size_t end = std::min(first + kBlock, scores.size());
    for (const Tree& tree : trees_) {
      size_t i = first;
      for (; i + kLanes <= end; i += kLanes) Descend<kLanes>(tree, &rows[i * width], width, &scores[i]);
      for (; i < end; ++i) Descend<1>(tree, &rows[i * width], width, &scores[i]);
    }
  }
}

}  // namespace temper
