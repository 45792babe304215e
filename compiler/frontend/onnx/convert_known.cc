// Operators whose result is known while importing, as every shape is.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/shape_limits.h"
#include "compiler/frontend/onnx/bounds.h"
#include "compiler/frontend/onnx/extents.h"
#include "compiler/frontend/onnx/places.h"
#include "compiler/frontend/onnx/tensor_data.h"

namespace temper::onnx_frontend {
namespace {

constexpr int64_t kMaxElements = int64_t{1} << 28;  // that a model may ask to have filled in

template <typename T, typename Field>
NDArray ListArray(DType dtype, const Field& field) {
  NDArray data(dtype, {field.size()});
  std::copy(field.begin(), field.end(), data.as<T>().begin());
  return data;
}

absl::Status Constant(Context& c, const OnnxNode& n) {
  NDArray data;
  if (const onnx::AttributeProto* a = n.Find("value")) {
    TEMPER_ASSIGN_OR_RETURN(const ValueId v, c.Shared(a->t()));
    return c.Set(n, v);
  }
  if (n.Has("value_float")) {
    data = NDArray(DType::kF32, {});
    data.Set(0, n.Float("value_float", 0));
  } else if (n.Has("value_int")) {
    data = NDArray(DType::kI64, {});
    data.as<int64_t>()[0] = n.Int("value_int", 0);
  } else if (const onnx::AttributeProto* floats = n.Find("value_floats")) {
    data = ListArray<float>(DType::kF32, floats->floats());
  } else if (const onnx::AttributeProto* ints = n.Find("value_ints")) {
    data = ListArray<int64_t>(DType::kI64, ints->ints());
  } else {
    return absl::UnimplementedError("sparse and text constants are not supported");
  }
  return c.Set(n, c.Constant(std::move(data)));
}

absl::Status ConstantOfShape(Context& c, const OnnxNode& n) {
  TEMPER_ASSIGN_OR_RETURN(const Dims dims, DimsOf(c, n.Input(0), "the shape"));
  const std::vector<int64_t>& shape = dims.most;
  NDArray value(DType::kF32, {});
  if (const onnx::AttributeProto* a = n.Find("value")) {
    TEMPER_ASSIGN_OR_RETURN(value, ArrayOf(a->t(), c.folder()));
  }
  TEMPER_RETURN_IF_ERROR(CheckTensorShape(shape));
  if (value.size() != 1 || NumElements(shape) > kMaxElements)
    return absl::InvalidArgumentError("more elements than are filled in, or not one value");
  NDArray data(value.dtype(), shape);
  for (int64_t i = 0; value.At(0) != 0 && i < data.size(); ++i) data.Set(i, value.At(0));
  TEMPER_ASSIGN_OR_RETURN(const ValueId v, WithVaryings(c, c.Constant(std::move(data)), dims.varyings));
  return c.Set(n, v);
}

absl::Status ShapeOf(Context& c, const OnnxNode& n) {
  const Shape shape = c.ShapeOf(n.Input(0));
  const int64_t rank = c.Rank(n.Input(0));
  auto clamped = [rank](int64_t axis) { return std::clamp<int64_t>(axis < 0 ? axis + rank : axis, 0, rank); };
  const int64_t start = clamped(n.Int("start", 0)), end = clamped(n.Int("end", rank));
  if (start >= end) return c.Set(n, c.IntVector({}));
  std::vector<ValueId> parts;
  int64_t first = start;
  const auto add_known = [&](int64_t last) {
    if (first < last) parts.push_back(c.IntVector({shape.begin() + first, shape.begin() + last}));
    first = last + 1;
  };
  for (const Varying& varying : Varyings(c.VaryingsOf(n.Input(0)))) {
    if (varying.axis < start || varying.axis >= end) continue;
    add_known(varying.axis);
    TEMPER_ASSIGN_OR_RETURN(parts.emplace_back(), c.Reshape(varying.extent, {1}));
  }
  add_known(end);
  TEMPER_ASSIGN_OR_RETURN(const ValueId v, c.Concat(std::move(parts), 0));
  return c.Set(n, v);
}

absl::Status Size(Context& c, const OnnxNode& n) {
  const Shape& shape = c.ShapeOf(n.Input(0));
  if (c.Varies(n.Input(0))) {
    if (c.VaryingsOf(n.Input(0)).size() > 1) return MustBeKnown(c, n.Input(0), "Size");
    const Varying varying = c.VaryingsOf(n.Input(0))[0];
    TEMPER_ASSIGN_OR_RETURN(
        const ValueId v, ScaledExtent(c, varying.extent, NumElements(shape), shape[static_cast<size_t>(varying.axis)]));
    return c.Set(n, v);
  }
  NDArray data(DType::kI64, {});
  data.as<int64_t>()[0] = NumElements(shape);
  return c.Set(n, c.Constant(std::move(data)));
}

// A count that is no extent yet, but that cannot be more than a number: as repeats of elements are added up.
absl::StatusOr<Dims> CountOfBounds(Context& c, ValueId v) {
  const Bounds bounds = BoundsOf(c, v);
  if (NumElements(c.ShapeOf(v)) != 1 || !(bounds.most >= 1 && bounds.most < static_cast<double>(kMaxElements)))
    return absl::UnimplementedError("a bound depends on the model's inputs");
  const std::string what = absl::StrCat("count of ", v);
  ValueId count = c.Made(what);
  const int64_t most = static_cast<int64_t>(bounds.most);
  if (count == kNoValue) {
    Attrs within;
    within.Set("min", 0.0);
    within.Set("max", static_cast<double>(most));
    TEMPER_ASSIGN_OR_RETURN(count, c.Reshape(v, {}));
    TEMPER_ASSIGN_OR_RETURN(count, c.Call("clip", std::move(within), {count}));
    c.SetMost(count, most);
    c.KeepMade(what, count);
  }
  return Dims{{most}, {{0, count}}};
}

// A bound of a range of numbers; the end of one may be a count that has bounds alone.
absl::StatusOr<Dims> BoundOfRange(Context& c, ValueId v, bool is_end) {
  absl::StatusOr<Dims> told = DimsOf(c, v, "a bound");
  if (!told.ok() && is_end && c.TypeOf(v).dtype == DType::kI64) told = CountOfBounds(c, v);
  if (told.ok() && told->most.size() != 1) return absl::InvalidArgumentError("bounds are scalars");
  return told;
}

// From one bound to another of which only the run knows one or both; nullopt: both are known.
absl::StatusOr<std::optional<ValueId>> VaryingRange(Context& c, const OnnxNode& n) {
  if (c.Known(n.Input(0)) != nullptr && c.Known(n.Input(1)) != nullptr) return std::nullopt;
  TEMPER_ASSIGN_OR_RETURN(const Dims start, BoundOfRange(c, n.Input(0), false));
  TEMPER_ASSIGN_OR_RETURN(const Dims end, BoundOfRange(c, n.Input(1), true));
  TEMPER_ASSIGN_OR_RETURN(const int64_t step, c.KnownInt(n.Input(2), "a bound"));
  if (step == 0) return absl::InvalidArgumentError("the range does not end");
  TEMPER_ASSIGN_OR_RETURN(const std::optional<Dims> count, StepsBetween(c, start, end, step));
  if (!count.has_value()) return absl::UnimplementedError("a range between such bounds");
  TEMPER_RETURN_IF_ERROR(CheckPlaces(count->most));
  const DType dtype = c.TypeOf(n.Input(0)).dtype;
  TEMPER_ASSIGN_OR_RETURN(ValueId v, WithVaryings(c, Counting(c, dtype, count->most, step), count->varyings));
  if (start.varyings.empty() && start.most[0] == 0) return v;
  TEMPER_ASSIGN_OR_RETURN(const ValueId first, c.Reshape(n.Input(0), {1}));
  TEMPER_ASSIGN_OR_RETURN(v, c.Call("add", {}, {v, first}));
  return v;
}

absl::Status Range(Context& c, const OnnxNode& n) {
  TEMPER_ASSIGN_OR_RETURN(const std::optional<ValueId> varying, VaryingRange(c, n));
  if (varying.has_value()) return c.Set(n, *varying);
  std::vector<double> bounds;
  for (size_t i = 0; i < 3; ++i) {
    TEMPER_ASSIGN_OR_RETURN(std::vector<double> bound, c.KnownFloats(n.Input(i), "a bound"));
    if (bound.size() != 1) return absl::InvalidArgumentError("bounds are scalars");
    bounds.push_back(bound[0]);
  }
  const double count = std::ceil((bounds[1] - bounds[0]) / bounds[2]);
  if (bounds[2] == 0 || !(count <= static_cast<double>(kMaxElements)))
    return absl::InvalidArgumentError("the range does not end");
  NDArray data(c.TypeOf(n.Input(0)).dtype, {std::max<int64_t>(0, static_cast<int64_t>(count))});
  for (int64_t i = 0; i < data.size(); ++i) data.Set(i, bounds[0] + static_cast<double>(i) * bounds[2]);
  return c.Set(n, c.Constant(std::move(data)));
}

// A matrix of ones where column - row - k is `within` bounds: the diagonal, or the triangle on one side of it.
NDArray Band(DType dtype, int64_t rows, int64_t columns, int64_t low, int64_t high) {
  NDArray data(dtype, {rows, columns});
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) data.Set(i * columns + j, j - i >= low && j - i <= high ? 1 : 0);
  }
  return data;
}

absl::Status EyeLike(Context& c, const OnnxNode& n) {
  const Shape& shape = c.ShapeOf(n.Input(0));
  DType dtype = c.TypeOf(n.Input(0)).dtype;
  if (n.Has("dtype")) {
    TEMPER_ASSIGN_OR_RETURN(dtype, DTypeOf(static_cast<int>(n.Int("dtype", 0))));
  }
  if (shape.size() != 2) return absl::InvalidArgumentError("takes rank 2");
  TEMPER_RETURN_IF_ERROR(MustBeOneLine(c, n.Input(0), "EyeLike"));
  const int64_t k = n.Int("k", 0);
  // The first rows and columns of a band are a band.
  const ValueId band = c.Constant(Band(dtype, shape[0], shape[1], k, k));
  TEMPER_ASSIGN_OR_RETURN(const ValueId v, WithVaryings(c, band, c.VaryingsOf(n.Input(0))));
  return c.Set(n, v);
}

absl::Status Trilu(Context& c, const OnnxNode& n) {
  int64_t k = 0;
  if (n.Input(1) != kNoValue) {
    TEMPER_ASSIGN_OR_RETURN(std::vector<int64_t> known, c.KnownInts(n.Input(1), "k"));
    if (known.size() == 1) k = known[0];
  }
  const Shape shape = c.ShapeOf(n.Input(0));
  if (shape.size() < 2) return absl::InvalidArgumentError("takes rank 2 or more");
  const int64_t rows = shape[shape.size() - 2], columns = shape.back();
  const bool upper = n.Int("upper", 1) != 0;
  ValueId kept = c.Constant(Band(DType::kBool, rows, columns, upper ? k : -rows, upper ? columns : k));
  Varyings kept_varyings;
  const int64_t before = std::ssize(shape) - 2;
  TEMPER_RETURN_IF_ERROR(MustBeOneLine(c, n.Input(0), "Trilu"));
  for (const Varying& v : c.VaryingsOf(n.Input(0))) {
    if (v.axis >= before) kept_varyings.push_back({v.axis - before, v.extent});
  }
  TEMPER_ASSIGN_OR_RETURN(kept, WithVaryings(c, kept, kept_varyings));
  TEMPER_ASSIGN_OR_RETURN(ValueId v, c.Call("where", {}, {kept, n.Input(0), c.Scalar(c.TypeOf(n.Input(0)).dtype, 0)}));
  return c.Set(n, v);
}

}  // namespace

std::span<const TableEntry> KnownTable() {
  static constexpr TableEntry kTable[] = {{"Constant", Constant, 0},
                                          {"ConstantOfShape", ConstantOfShape, 1, Extents::kAlongAnyAxis},
                                          {"Shape", ShapeOf, 1, Extents::kAlongAnyAxis},
                                          {"Size", Size, 1, Extents::kAlongAnyAxis},
                                          {"Range", Range, 3, Extents::kAlongAnyAxis},
                                          {"EyeLike", EyeLike, 1, Extents::kAlongAnyAxis},
                                          {"Trilu", Trilu, 1, Extents::kAlongAnyAxis}};
  return kTable;
}

}  // namespace temper::onnx_frontend
