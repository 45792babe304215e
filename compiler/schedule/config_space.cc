#include "compiler/schedule/config_space.h"

#include <algorithm>
#include <limits>
#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "spdlog/spdlog.h"

namespace temper {
namespace {

const std::pair<std::string, int64_t>* FindIn(const std::vector<std::pair<std::string, int64_t>>& values,
                                              std::string_view knob) {
  auto it = std::find_if(values.begin(), values.end(), [&](const auto& v) { return v.first == knob; });
  return it == values.end() ? nullptr : &*it;
}

}  // namespace

const std::pair<std::string, int64_t>* Config::Find(std::string_view knob) const {
  const auto* value = FindIn(values_, knob);
  if (value != nullptr && watch_.last_asked != nullptr)
    *watch_.last_asked = std::max(*watch_.last_asked, static_cast<size_t>(value - values_.data()));
  return value;
}

const std::vector<std::pair<std::string, int64_t>>& Config::values() const {
  watch_.AskedForAll();
  return values_;
}

int64_t Config::operator[](std::string_view knob) const {
  const auto* value = Find(knob);
  if (value == nullptr) {
    spdlog::critical("config '{}' has no knob '{}'", Text(*this), knob);
    std::abort();
  }
  return value->second;
}

bool Config::Has(std::string_view knob) const { return Find(knob) != nullptr; }

std::string Text(const Config& c) {
  std::string text;
  for (const auto& [name, value] : c.values()) absl::StrAppend(&text, text.empty() ? "" : ",", name, "=", value);
  return text;
}

absl::StatusOr<Config> ParseConfig(std::string_view text) {
  std::vector<std::pair<std::string, int64_t>> values;
  if (text.empty()) return Config();
  const std::vector<std::string> items = absl::StrSplit(std::string(text), ',');
  for (const std::string& item : items) {
    const size_t equals = item.find('=');
    int64_t value = 0;
    if (equals == std::string::npos || equals == 0 || !absl::SimpleAtoi(item.substr(equals + 1), &value)) {
      return absl::InvalidArgumentError(
          absl::StrCat("config '", std::string(text), "': '", item, "' is not NAME=INTEGER"));
    }
    std::string name = item.substr(0, equals);
    if (FindIn(values, name) != nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("config '", std::string(text), "': knob '", name, "' twice"));
    }
    values.emplace_back(std::move(name), value);
  }
  return Config(std::move(values));
}

void ConfigSpace::Add(std::string name, std::vector<int64_t> values) {
  const bool is_new = std::none_of(knobs_.begin(), knobs_.end(), [&](const Knob& k) { return k.name == name; });
  const bool distinct = std::set<int64_t>(values.begin(), values.end()).size() == values.size();
  if (!is_new || !distinct || values.empty()) {
    spdlog::critical("knob '{}' needs a name of its own and one or more distinct values", name);
    std::abort();
  }
  knobs_.push_back({std::move(name), std::move(values)});
}

void ConfigSpace::Require(std::string why, std::function<bool(const Config&)> holds) {
  constraints_.push_back({std::move(why), std::move(holds)});
}

int64_t ConfigSpace::product_size() const {
  int64_t size = 1;
  for (const Knob& k : knobs_) {
    if (__builtin_mul_overflow(size, static_cast<int64_t>(k.values.size()), &size))
      return std::numeric_limits<int64_t>::max();
  }
  return size;
}

Config ConfigSpace::At(int64_t index) const {
  std::vector<std::pair<std::string, int64_t>> values(knobs_.size());
  for (size_t i = knobs_.size(); i-- > 0;) {
    const int64_t radix = static_cast<int64_t>(knobs_[i].values.size());
    values[i] = {knobs_[i].name, knobs_[i].values[static_cast<size_t>(index % radix)]};
    index /= radix;
  }
  return Config(std::move(values));
}

absl::StatusOr<int64_t> ConfigSpace::IndexOf(const Config& c) const {
  for (const auto& [name, value] : c.values()) {
    if (std::none_of(knobs_.begin(), knobs_.end(), [&](const Knob& k) { return k.name == name; })) {
      return absl::InvalidArgumentError(absl::StrCat("config '", Text(c), "': no knob is named '", name, "'"));
    }
  }
  int64_t index = 0;
  for (const Knob& k : knobs_) {
    const auto* value = FindIn(c.values(), k.name);
    if (value == nullptr)
      return absl::InvalidArgumentError(absl::StrCat("config '", Text(c), "' lacks knob '", k.name, "'"));
    auto it = std::find(k.values.begin(), k.values.end(), value->second);
    if (it == k.values.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("config '", Text(c), "': ", value->second, " is no value of knob '", k.name, "'"));
    }
    index = index * static_cast<int64_t>(k.values.size()) + (it - k.values.begin());
  }
  return index;
}

bool ConfigSpace::Allows(const Config& c) const {
  return std::all_of(constraints_.begin(), constraints_.end(), [&](const Constraint& k) { return k.holds(c); });
}

absl::Status ConfigSpace::Check(const Config& c) const {
  TEMPER_RETURN_IF_ERROR(IndexOf(c).status());
  for (const Constraint& constraint : constraints_) {
    if (!constraint.holds(c))
      return absl::InvalidArgumentError(absl::StrCat("config '", Text(c), "': ", constraint.why));
  }
  return absl::OkStatus();
}

// In the order of their indices. Whatever a constraint refuses, it refuses for all values of the knobs that it did not
// ask for: those behind the last one that it did are passed over.
std::vector<Config> ConfigSpace::All() const {
  std::vector<Config> legal;
  Config c = At(0);
  size_t asked = 0;
  c.watch_.last_asked = &asked;
  std::vector<size_t> turns(knobs_.size(), 0);
  const auto turn_to = [&](size_t knob, size_t turn) {
    turns[knob] = turn;
    c.values_[knob].second = knobs_[knob].values[turn];
  };
  for (;;) {
    const bool allowed = std::ranges::all_of(constraints_, [&](const Constraint& k) {
      asked = 0;
      return k.holds(c);
    });
    if (allowed) legal.push_back(c);
    size_t knob = !allowed && asked < knobs_.size() ? asked + 1 : knobs_.size();  // behind the one to be turned
    for (size_t k = knob; k < knobs_.size(); ++k) turn_to(k, 0);
    while (knob > 0 && turns[knob - 1] + 1 == knobs_[knob - 1].values.size()) turn_to(--knob, 0);
    if (knob == 0) return legal;
    turn_to(knob - 1, turns[knob - 1] + 1);
  }
}

std::vector<Config> ConfigSpace::Enumerate(int64_t limit, uint64_t seed) const {
  const int64_t size = product_size();
  if (size <= limit) return All();
  std::vector<Config> configs;
  Rng rng(seed);
  std::set<int64_t> seen;
  // Where nearly everything is illegal the sample comes out smaller: the number of draws is bounded.
  for (int64_t draws = 0; draws < 16 * limit && static_cast<int64_t>(configs.size()) < limit; ++draws) {
    const int64_t index = rng.Below(size);
    if (!seen.insert(index).second) continue;
    Config c = At(index);
    if (Allows(c)) configs.push_back(std::move(c));
  }
  return configs;
}

ConfigSpace::Size ConfigSpace::Count(int64_t limit) const {
  const int64_t size = product_size();
  const bool sampled = size > limit;
  const int64_t looked_at = sampled ? limit : size;
  std::vector<int64_t> refused(constraints_.size(), 0);
  int64_t legal = 0;
  Rng rng(0);
  for (int64_t i = 0; i < looked_at; ++i) {
    const Config c = At(sampled ? rng.Below(size) : i);
    size_t k = 0;
    while (k < constraints_.size() && constraints_[k].holds(c)) ++k;
    if (k == constraints_.size()) {
      ++legal;
    } else {
      ++refused[k];
    }
  }
  auto scale = [&](int64_t n) {
    return sampled ? static_cast<int64_t>(static_cast<double>(n) / static_cast<double>(looked_at) *
                                          static_cast<double>(size))
                   : n;
  };
  Size result{scale(legal), {}};
  for (size_t k = 0; k < constraints_.size(); ++k) result.refused.emplace_back(constraints_[k].why, scale(refused[k]));
  return result;
}

}  // namespace temper
