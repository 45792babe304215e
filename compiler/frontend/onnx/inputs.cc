#include "compiler/frontend/onnx/inputs.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/shape_limits.h"
#include "base/status.h"

namespace temper::onnx_frontend {
namespace {

// False: the text is no number of that type.
bool SetElement(NDArray& array, int64_t i, const std::string& text) {
  const DTypeInfo& type = Info(array.dtype());
  double number = 0;
  int64_t integer = 0;
  bool truth = false;
  if (array.dtype() == DType::kBool) {
    if (!absl::SimpleAtob(text, &truth)) return false;
    array.Set(i, truth ? 1 : 0);
  } else if (type.kind == TypeKind::kFloat) {
    if (!absl::SimpleAtod(text, &number)) return false;
    array.Set(i, number);
  } else {
    if (!absl::SimpleAtoi(text, &integer)) return false;
    if (array.dtype() == DType::kI64) {
      array.as<int64_t>()[static_cast<size_t>(i)] = integer;
      return true;
    }
    array.Set(i, static_cast<double>(integer));
    return array.At(i) == static_cast<double>(integer);
  }
  return true;
}

std::string Only(const std::string& what, const auto& names) {
  if (names.empty()) return absl::StrCat("the model has no such ", what);
  return absl::StrCat("the model has no such ", what, ", only ", absl::StrJoin(names, ", "));
}

}  // namespace

// A name, or a sum of names and numbers, as tools write it.
std::optional<int64_t> InputOptions::ByName(const std::string& dimension, std::set<std::string>& open) {
  const auto fixed = [&](const std::string& name) -> std::optional<int64_t> {
    const auto given = options_.dims.find(name);
    return given == options_.dims.end() ? std::nullopt : std::optional<int64_t>(given->second.most);
  };
  if (const std::optional<int64_t> whole = fixed(dimension)) {
    dimensions_.insert(dimension);
    return whole;
  }
  constexpr int64_t kMost = int64_t{1} << 40;
  int64_t sum = 0;
  bool known = true;
  for (const absl::string_view part : absl::StrSplit(dimension, '+')) {
    const std::string name(absl::StripAsciiWhitespace(part));
    int64_t term = 0;
    if (const std::optional<int64_t> given = fixed(name); given.has_value() || !absl::SimpleAtoi(name, &term)) {
      dimensions_.insert(name);
      if (!given.has_value()) open.insert(name);
      term = given.value_or(-1);
    }
    known = known && term >= 0 && term <= kMost;
    sum += known ? term : 0;
  }
  return known ? std::optional<int64_t>(sum) : std::nullopt;
}

absl::StatusOr<std::vector<InputOptions::Dim>> InputOptions::DimsOf(const onnx::ValueInfoProto& input) const {
  std::vector<Dim> dims;
  for (const auto& dim : input.type().tensor_type().shape().dim()) {
    const bool own = dim.has_dim_value() && dim.dim_value() >= 0;
    dims.push_back({own ? std::optional(dim.dim_value()) : std::nullopt, std::nullopt, own ? "" : dim.dim_param()});
  }
  const auto said = options_.shapes.find(input.name());
  if (said == options_.shapes.end()) return dims;
  if (!input.type().tensor_type().has_shape()) dims.resize(said->second.size());
  if (dims.size() != said->second.size()) {
    return absl::InvalidArgumentError(absl::StrCat("--shape ", input.name(), " gives ", said->second.size(),
                                                   " dimensions, the model has ", dims.size()));
  }
  for (size_t i = 0; i < dims.size(); ++i) {
    Dim& dim = dims[i];
    if (dim.own == 0) dim.own = std::nullopt;  // some tools write 0 for what is open
    if (const auto* name = std::get_if<std::string>(&said->second[i])) {
      dim.name = *name;
    } else {
      dim.given = std::get<int64_t>(said->second[i]);
      if (*dim.given < 0)
        return absl::InvalidArgumentError(absl::StrCat("--shape ", input.name(), ": dimensions are at least 0"));
    }
  }
  return dims;
}

absl::StatusOr<std::vector<std::optional<int64_t>>> InputOptions::Extents(const onnx::ValueInfoProto& input,
                                                                          std::set<std::string>& open) {
  TEMPER_ASSIGN_OR_RETURN(const std::vector<Dim> dims, DimsOf(input));
  std::vector<std::optional<int64_t>> extents;
  for (const Dim& dim : dims) {
    std::set<std::string> unsaid;
    const std::optional<int64_t> named = dim.name.empty() ? std::nullopt : ByName(dim.name, unsaid);
    if (!dim.given.has_value()) open.merge(unsaid);
    // What two of them say is the same.
    const std::optional<int64_t> fixed = dim.own.has_value() ? dim.own : named;
    const std::optional<int64_t> said = dim.given.has_value() ? dim.given : named;
    if (fixed.has_value() && said.has_value() && *fixed != *said) {
      return absl::InvalidArgumentError(
          absl::StrCat("--shape ", input.name(), ": dimension ", extents.size(), " is ", *fixed,
                       dim.own.has_value() ? " in the model" : absl::StrCat(" by --dim ", dim.name), ", not ", *said));
    }
    extents.push_back(said.has_value() ? said : fixed);
  }
  return extents;
}

std::optional<InputOptions::Range> InputOptions::RangeOf(const std::string& dimension) const {
  Range range{0, dimension, 0};
  if (const auto whole = options_.dims.find(dimension); whole != options_.dims.end()) {
    range.least = whole->second.least;
    return range.least < whole->second.most ? std::optional(std::move(range)) : std::nullopt;
  }
  std::vector<std::string> names = absl::StrSplit(dimension, '+');
  for (std::string& name : names) {
    absl::StripAsciiWhitespace(&name);
    const auto given = options_.dims.find(name);
    int64_t term = 0;
    if (given == options_.dims.end() && !absl::SimpleAtoi(name, &term)) return std::nullopt;  // and it stays open
    if (given != options_.dims.end()) term = given->second.least;
    range.least += term;
    if (given != options_.dims.end() && given->second.least < given->second.most) {
      range.terms.push_back(name);
    } else {
      range.number += term;
    }
  }
  if (range.terms.empty()) return std::nullopt;
  const bool adds = range.terms.size() > 1 || range.number != 0;
  range.dimension = adds ? absl::StrJoin(names, " + ") : range.terms[0];  // the same for the same sum
  if (!adds) range.terms.clear();
  return range;
}

absl::StatusOr<std::vector<InputOptions::Range>> InputOptions::RangesOf(const onnx::ValueInfoProto& input) const {
  TEMPER_ASSIGN_OR_RETURN(const std::vector<Dim> dims, DimsOf(input));
  std::vector<Range> found;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i].name.empty() || dims[i].given.has_value()) continue;
    std::optional<Range> range = RangeOf(dims[i].name);
    if (!range.has_value()) continue;
    if (dims[i].own.has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--shape ", input.name(), ": dimension ", i, " is ", *dims[i].own, " in the model, no range"));
    }
    range->axis = static_cast<int64_t>(i);
    found.push_back(*std::move(range));
  }
  return found;
}

absl::StatusOr<Shape> InputOptions::ShapeOf(const onnx::ValueInfoProto& input) {
  const std::string& name = input.name();
  inputs_.push_back(name);
  if (!input.type().tensor_type().has_shape() && !options_.shapes.contains(name)) {
    advice_.push_back(absl::StrCat("input '", name, "' has no shape: give --shape ", name, "=D0,D1,..."));
    return Shape{};
  }
  TEMPER_ASSIGN_OR_RETURN(const std::vector<std::optional<int64_t>> extents, Extents(input, open_));
  Shape shape;
  std::vector<std::string> texts;
  for (size_t i = 0; i < extents.size(); ++i) {
    shape.push_back(extents[i].value_or(1));
    texts.push_back(extents[i].has_value() ? absl::StrCat(shape[i]) : absl::StrCat("D", i));
  }
  const bool open = std::ranges::any_of(extents, [](const auto& extent) { return !extent.has_value(); });
  if (open && !options_.shapes.contains(name)) {
    advice_.push_back(absl::StrCat("input '", name, "' has open dimensions: give --shape ", name, "=",
                                   absl::StrJoin(texts, ","),
                                   " with numbers in place of D0, D1, ..., or with names that --dim gives lengths"));
  }
  return shape;
}

absl::StatusOr<std::optional<NDArray>> InputOptions::ValueOf(const onnx::ValueInfoProto& input, DType dtype) {
  const auto given = options_.values.find(input.name());
  if (given == options_.values.end()) return std::nullopt;
  inputs_.push_back(input.name());
  const auto count = static_cast<int64_t>(given->second.size());
  const onnx::TypeProto::Tensor& type = input.type().tensor_type();
  TEMPER_ASSIGN_OR_RETURN(const std::vector<Range> ranges, RangesOf(input));
  if (!ranges.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--value ", input.name(), ": its dimension ", ranges[0].dimension, " has a range"));
  }
  Shape shape = {count};
  if (type.has_shape()) {
    std::set<std::string> open;
    TEMPER_ASSIGN_OR_RETURN(const std::vector<std::optional<int64_t>> extents, Extents(input, open));
    // One dimension may be what the number of values makes it.
    shape.clear();
    for (const std::optional<int64_t>& extent : extents) shape.push_back(extent.value_or(-1));
    if (std::ranges::count(shape, -1) == 1) {
      int64_t others = 1;
      for (const int64_t extent : shape) others = extent < 0 || others > count ? others : others * extent;
      *std::ranges::find(shape, -1) = others > 0 ? count / others : 0;
    }
    int64_t elements = 1;
    for (const int64_t extent : shape) elements = elements > count ? elements : elements * extent;
    if (std::ranges::count(shape, -1) > 0 || elements != count) {
      return absl::InvalidArgumentError(absl::StrCat("--value ", input.name(), " gives ", count,
                                                     count == 1 ? " number" : " numbers",
                                                     " for an input of another size"));
    }
  }
  if (const absl::Status sound = CheckTensorShape(shape); !sound.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("--value ", input.name(), ": ", std::string(sound.message())));
  }
  NDArray array(dtype, std::move(shape));
  for (int64_t i = 0; i < count; ++i) {
    const std::string& text = given->second[static_cast<size_t>(i)];
    if (!SetElement(array, i, text))
      return absl::InvalidArgumentError(
          absl::StrCat("--value ", input.name(), ": '", text, "' is no ", std::string(Name(dtype))));
  }
  return array;
}

absl::Status InputOptions::Finish() const {
  const auto missing = [&](const std::string& name) { return std::ranges::find(inputs_, name) == inputs_.end(); };
  for (const auto& [name, shape] : options_.shapes) {
    if (missing(name)) return absl::InvalidArgumentError(absl::StrCat("--shape ", name, ": ", Only("input", inputs_)));
  }
  for (const auto& [name, value] : options_.values) {
    if (missing(name)) return absl::InvalidArgumentError(absl::StrCat("--value ", name, ": ", Only("input", inputs_)));
  }
  for (const auto& [name, extent] : options_.dims) {
    if (!dimensions_.contains(name))
      return absl::InvalidArgumentError(absl::StrCat("--dim ", name, ": ", Only("dimension", dimensions_)));
  }
  if (advice_.empty() && open_.empty()) return absl::OkStatus();
  std::vector<std::string> advice = advice_;
  if (!open_.empty())
    advice.push_back(absl::StrCat(advice_.empty() ? "" : "or ", "give --dim NAME=N for ", absl::StrJoin(open_, ", ")));
  return absl::InvalidArgumentError(absl::StrJoin(advice, "; "));
}

}  // namespace temper::onnx_frontend
