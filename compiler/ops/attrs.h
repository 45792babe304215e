// Operator attributes: a small ordered map with a canonical text, part of workloads' hashes.
#pragma once

#include <map>
#include <string>
#include <variant>
#include <vector>

#include "base/ndarray.h"

namespace temper {

using AttrValue = std::variant<int64_t, double, std::string, std::vector<int64_t>>;

class Attrs {
 public:
  void Set(std::string name, AttrValue value) { values_[std::move(name)] = std::move(value); }
  bool Has(const std::string& name) const { return values_.contains(name); }
  int64_t Int(const std::string& name, int64_t otherwise) const;
  double Float(const std::string& name, double otherwise) const;
  std::string String(const std::string& name, std::string otherwise) const;
  std::vector<int64_t> Ints(const std::string& name, std::vector<int64_t> otherwise = {}) const;
  const std::map<std::string, AttrValue>& values() const { return values_; }
  bool operator==(const Attrs&) const = default;

 private:
  std::map<std::string, AttrValue> values_;
};
// "axis=1 pads=[0,1] mode='same' eps=1e-05": names sorted, floats in shortest round-trip form.
std::string Text(const Attrs& a);
absl::StatusOr<Attrs> ParseAttrs(std::string_view text);

}  // namespace temper
