#include "compiler/ops/families/infer_util.h"

#include <algorithm>
#include <variant>

#include "absl/strings/str_cat.h"

namespace temper::ops {
namespace {

bool IsOfKind(const AttrValue& value, AttrKind kind) {
  switch (kind) {
    case AttrKind::kInt:
      return std::holds_alternative<int64_t>(value);
    case AttrKind::kFloat:
      return std::holds_alternative<double>(value) || std::holds_alternative<int64_t>(value);
    case AttrKind::kString:
      return std::holds_alternative<std::string>(value);
    case AttrKind::kInts:
      return std::holds_alternative<std::vector<int64_t>>(value);
  }
  return false;
}

}  // namespace

absl::Status InvalidType(std::string_view rule) { return absl::InvalidArgumentError(std::string(rule)); }

absl::Status CheckAttrs(const Attrs& attrs, const std::vector<AttrRule>& rules) {
  for (const auto& [name, value] : attrs.values()) {
    auto rule = std::find_if(rules.begin(), rules.end(), [&](const AttrRule& r) { return r.name == name; });
    if (rule == rules.end()) return InvalidType(absl::StrCat("has no attribute '", name, "'"));
    if (!IsOfKind(value, rule->kind)) return InvalidType(absl::StrCat("attribute '", name, "' is of the wrong kind"));
  }
  return absl::OkStatus();
}

absl::StatusOr<CastMode> CastModeOf(const Attrs& attrs) {
  const std::string rounding = attrs.String("rounding", "nearest");
  CastMode mode{attrs.Int("saturate", 0) != 0, Rounding::kNearest};
  if (rounding == "up") mode.rounding = Rounding::kUp;
  if (rounding == "down") mode.rounding = Rounding::kDown;
  if (rounding != "nearest" && mode.rounding == Rounding::kNearest)
    return InvalidType("rounding is 'nearest', 'up' or 'down'");
  return mode;
}

absl::Status CheckFactors(const Attrs& attrs, DType a, DType b) {
  const bool by_bytes = (a == DType::kU8 || a == DType::kI16) && b == DType::kI8 && attrs.Has("result");
  if ((a == b && a != DType::kBool) || by_bytes) return absl::OkStatus();
  return InvalidType("operands are numbers of one dtype, or u8 or i16 and i8 with sums of i32");
}

absl::StatusOr<DType> ContractionResult(const Attrs& attrs, DType dtype) {
  if (!attrs.Has("result")) return dtype;
  TEMPER_ASSIGN_OR_RETURN(const DType result, DTypeFromName(attrs.String("result", "")));
  if (result == Info(dtype).accumulator) return result;
  return InvalidType(absl::StrCat("sums of ", std::string(Name(dtype)), " are ",
                                  std::string(Name(Info(dtype).accumulator)), ", not ", std::string(Name(result))));
}

absl::StatusOr<Shape> BroadcastShapes(const Shape& a, const Shape& b) {
  const Shape& longer = a.size() >= b.size() ? a : b;
  const Shape& shorter = a.size() >= b.size() ? b : a;
  Shape result = longer;
  size_t offset = longer.size() - shorter.size();
  for (size_t i = 0; i < shorter.size(); ++i) {
    int64_t x = longer[offset + i], y = shorter[i];
    if (x != y && x != 1 && y != 1) {
      return InvalidType(absl::StrCat("shapes ", ShapeText(a), " and ", ShapeText(b), " do not broadcast"));
    }
    result[offset + i] = x == 1 ? y : x;
  }
  return result;
}

absl::StatusOr<int64_t> NormalizeAxis(int64_t axis, int64_t rank) {
  if (axis < -rank || axis >= rank) return InvalidType(absl::StrCat("axis ", axis, " is outside rank ", rank));
  return axis < 0 ? axis + rank : axis;
}

absl::StatusOr<std::vector<int64_t>> NormalizeAxes(const std::vector<int64_t>& axes, int64_t rank) {
  std::vector<int64_t> result;
  for (int64_t axis : axes) {
    TEMPER_ASSIGN_OR_RETURN(int64_t a, NormalizeAxis(axis, rank));
    result.push_back(a);
  }
  if (axes.empty()) {
    for (int64_t i = 0; i < rank; ++i) result.push_back(i);
  }
  std::sort(result.begin(), result.end());
  if (std::adjacent_find(result.begin(), result.end()) != result.end()) return InvalidType("an axis is given twice");
  return result;
}

absl::StatusOr<Window> WindowOf(const Attrs& attrs, int64_t kernel_h, int64_t kernel_w) {
  constexpr int64_t kLimit = int64_t{1} << 20;  // so that products of a few of them and of a dimension fit
  std::vector<int64_t> strides = attrs.Ints("strides", {1, 1}), dilations = attrs.Ints("dilations", {1, 1});
  std::vector<int64_t> pads = attrs.Ints("pads", {0, 0, 0, 0});
  if (strides.size() != 2 || dilations.size() != 2) return InvalidType("strides and dilations have two elements");
  if (pads.size() != 4) return InvalidType("pads are [top,left,bottom,right]");
  Window w{{kernel_h, kernel_w},
           {strides[0], strides[1]},
           {dilations[0], dilations[1]},
           {pads[0], pads[1]},
           {pads[2], pads[3]}};
  for (int i = 0; i < 2; ++i) {
    if (w.kernel[i] < 1 || w.stride[i] < 1 || w.dilation[i] < 1)
      return InvalidType("kernel, strides and dilations are at least 1");
    if (w.pad_begin[i] < 0 || w.pad_end[i] < 0) return InvalidType("pads are not negative");
    if (std::max({w.kernel[i], w.stride[i], w.dilation[i], w.pad_begin[i], w.pad_end[i]}) > kLimit) {
      return InvalidType("kernel, strides, dilations or pads are too large");
    }
  }
  return w;
}

namespace {

// The sum of floor((a * i + b) / m) for i in [0, n), by Euclid's steps; nothing is negative, m is not 0.
int64_t FloorSum(int64_t n, int64_t m, int64_t a, int64_t b) {
  int64_t sum = 0;
  while (n > 0) {
    sum += n * (n - 1) / 2 * (a / m) + n * (b / m);
    a %= m;
    b %= m;
    const int64_t last = a * n + b;
    if (last < m) break;
    n = last / m;
    b = last % m;
    std::swap(m, a);
  }
  return sum;
}

// Pairs with position * stride + tap * dilation <= most.
int64_t PairsUpTo(int64_t outputs, int64_t taps, int64_t stride, int64_t dilation, int64_t most) {
  if (most < 0 || outputs < 1) return 0;
  const int64_t some = std::min(taps, most / dilation + 1);  // taps that meet any position
  const int64_t last = (outputs - 1) * stride;
  const int64_t all = most < last ? 0 : std::min(some, (most - last) / dilation + 1);  // those that meet every one
  // The others from the farthest tap on, which meets the fewest.
  return all * outputs + FloorSum(some - all, stride, dilation, most - (some - 1) * dilation) + (some - all);
}

}  // namespace

int64_t TapsInside(int64_t outputs, int64_t taps, int64_t stride, int64_t dilation, int64_t before, int64_t image) {
  return PairsUpTo(outputs, taps, stride, dilation, before + image - 1) -
         PairsUpTo(outputs, taps, stride, dilation, before - 1);
}

double Elements(const TensorType& t) {
  double n = 1;
  for (int64_t d : t.shape) n *= static_cast<double>(d);
  return n;
}

}  // namespace temper::ops
