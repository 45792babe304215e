#include <algorithm>
#include <cstring>

#include "compiler/ops/reference/loops.h"
#include "compiler/ops/reference/reference.h"
#include "compiler/ops/families/planes.h"
#include "compiler/ops/families/slice_util.h"

namespace temper::reference {
namespace {

constexpr int64_t kFill = -1;
// For each axis of the result: which position of the operand's axis each of its positions shows, or kFill.
using AxisTables = std::vector<std::vector<int64_t>>;

// The operand's axes are those of the tables. Where any axis says kFill, the result keeps what it holds.
void CopyByTables(const NDArray& x, const AxisTables& tables, NDArray& result) {
  std::vector<int64_t> strides = RowMajorStrides(x.shape());
  const Shape& outer = result.shape();
  int64_t length = outer.empty() ? 1 : outer.back();
  if (result.size() == 0) return;
  WithSize(x.dtype(), [&](auto t) {
    using T = decltype(t);
    const T* in = static_cast<const T*>(x.data());
    T* out = static_cast<T*>(result.MutableData());
    for (int64_t run = 0; run < result.size() / length; ++run, out += length) {
      int64_t base = 0, rest = run;
      bool fill = false;
      for (size_t d = outer.size(); d-- > 1;) {
        int64_t at = tables[d - 1][rest % outer[d - 1]];
        rest /= outer[d - 1];
        fill = fill || at == kFill;
        base += at * strides[d - 1];
      }
      if (fill) continue;
      for (int64_t i = 0; i < length; ++i) {
        int64_t at = outer.empty() ? 0 : tables.back()[i];
        if (at != kFill) out[i] = in[base + at];
      }
    }
  });
}

// The operand has `strides` along the axes of the result.
void CopyByStrides(const NDArray& x, const std::vector<int64_t>& strides, NDArray& result) {
  const int64_t step = strides.empty() ? 0 : strides.back();
  WithSize(x.dtype(), [&](auto t) {
    using T = decltype(t);
    ForEachRun(result.shape(), {strides}, [&](int64_t at, const std::vector<int64_t>& offsets, int64_t n) {
      const T* from = static_cast<const T*>(x.data()) + offsets[0];
      T* to = static_cast<T*>(result.MutableData()) + at;
      for (int64_t i = 0; i < n; ++i) to[i] = from[i * step];
    });
  });
}

AxisTables TablesFor(const Shape& result) {
  AxisTables tables;
  for (int64_t extent : result) tables.emplace_back(static_cast<size_t>(extent));
  return tables;
}

absl::StatusOr<NDArray> Reshape(const Attrs&, Arrays in, const TensorType& output) {
  return in[0].Reshaped(output.shape);
}

absl::StatusOr<NDArray> Transpose(const Attrs& attrs, Arrays in, const TensorType& output) {
  NDArray result(output.dtype, output.shape);
  const std::vector<int64_t> dense = RowMajorStrides(in[0].shape());
  std::vector<int64_t> strides;
  for (int64_t axis : attrs.Ints("perm")) strides.push_back(dense[axis]);
  CopyByStrides(in[0], strides, result);
  return result;
}

absl::StatusOr<NDArray> Concat(const Attrs& attrs, Arrays in, const TensorType& output) {
  NDArray result(output.dtype, output.shape);
  const int64_t axis = AxisOf(attrs, 0, output.shape);
  int64_t outer = NumElements(Shape(output.shape.begin(), output.shape.begin() + axis));
  char* to = static_cast<char*>(result.MutableData());
  for (int64_t i = 0; i < outer; ++i) {
    for (const NDArray& part : in) {
      int64_t bytes = part.bytes() / outer;
      if (bytes > 0) std::memcpy(to, static_cast<const char*>(part.data()) + i * bytes, static_cast<size_t>(bytes));
      to += bytes;
    }
  }
  return result;
}

absl::StatusOr<NDArray> Slice(const Attrs& attrs, Arrays in, const TensorType& output) {
  TEMPER_ASSIGN_OR_RETURN(std::vector<ops::AxisSlice> slices, ops::SlicesOf(attrs, in[0].shape()));
  NDArray result(output.dtype, output.shape);
  AxisTables tables = TablesFor(output.shape);
  for (size_t d = 0; d < tables.size(); ++d) {
    int64_t at = slices[d].start;
    for (int64_t& position : tables[d]) {
      position = at;
      at += slices[d].step;
    }
  }
  CopyByTables(in[0], tables, result);
  return result;
}

absl::StatusOr<NDArray> Pad(const Attrs& attrs, Arrays in, const TensorType& output) {
  NDArray result(output.dtype, output.shape);
  std::string mode = attrs.String("mode", "constant");
  if (double value = attrs.Float("value", 0); mode == "constant" && value != 0) {
    for (int64_t i = 0; i < result.size(); ++i) result.Set(i, value);
  }
  std::vector<int64_t> pads = attrs.Ints("pads");
  AxisTables tables = TablesFor(output.shape);
  for (size_t d = 0; d < tables.size(); ++d) {
    int64_t extent = in[0].shape()[d];
    for (int64_t i = 0; i < output.shape[d]; ++i) {
      int64_t at = i - pads[d];
      if (mode == "edge") at = std::clamp<int64_t>(at, 0, extent - 1);
      if (mode == "reflect" && at < 0) at = -at;
      if (mode == "reflect" && at >= extent) at = 2 * (extent - 1) - at;
      tables[d][i] = at < 0 || at >= extent ? kFill : at;
    }
  }
  CopyByTables(in[0], tables, result);
  return result;
}

absl::StatusOr<NDArray> Gather(const Attrs& attrs, Arrays in, const TensorType& output) {
  NDArray result(output.dtype, output.shape);
  const Shape& shape = in[0].shape();
  const int64_t axis = AxisOf(attrs, 0, shape);
  int64_t outer = NumElements(Shape(shape.begin(), shape.begin() + axis)), extent = shape[axis];
  size_t row = static_cast<size_t>(NumElements(Shape(shape.begin() + axis + 1, shape.end())) * SizeOf(output.dtype));
  const char* from = static_cast<const char*>(in[0].data());
  char* to = static_cast<char*>(result.MutableData());
  bool wide = in[1].dtype() == DType::kI64;
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t i = 0; i < in[1].size(); ++i, to += row) {
      int64_t at = wide ? in[1].as<int64_t>()[i] : in[1].as<int32_t>()[i];
      if (at < 0) at += extent;
      at = std::clamp<int64_t>(at, 0, extent - 1);
      std::memcpy(to, from + static_cast<size_t>(o * extent + at) * row, row);
    }
  }
  return result;
}

absl::StatusOr<NDArray> GatherElements(const Attrs& attrs, Arrays in, const TensorType& output) {
  NDArray result(output.dtype, output.shape);
  const Shape& shape = in[0].shape();
  const auto axis = static_cast<size_t>(AxisOf(attrs, 0, shape));
  const std::vector<int64_t> strides = RowMajorStrides(shape), own = RowMajorStrides(output.shape);
  for (int64_t i = 0; i < result.size(); ++i) {
    const int64_t at = static_cast<int64_t>(in[1].At(i)), counted = at < 0 ? at + shape[axis] : at;
    int64_t from = std::clamp<int64_t>(counted, 0, shape[axis] - 1) * strides[axis];
    for (size_t d = 0; d < shape.size(); ++d) from += d == axis ? 0 : i / own[d] % output.shape[d] * strides[d];
    std::memcpy(static_cast<char*>(result.MutableData()) + i * SizeOf(output.dtype),
                static_cast<const char*>(in[0].data()) + from * SizeOf(output.dtype), SizeOf(output.dtype));
  }
  return result;
}

absl::StatusOr<NDArray> Expand(const Attrs&, Arrays in, const TensorType& output) {
  NDArray result(output.dtype, output.shape);
  CopyByStrides(in[0], BroadcastStrides(in[0].shape(), output.shape), result);
  return result;
}

absl::StatusOr<NDArray> Tile(const Attrs&, Arrays in, const TensorType& output) {
  NDArray result(output.dtype, output.shape);
  AxisTables tables = TablesFor(output.shape);
  for (size_t d = 0; d < tables.size(); ++d) {
    for (int64_t i = 0; i < output.shape[d]; ++i) tables[d][i] = i % in[0].shape()[d];
  }
  CopyByTables(in[0], tables, result);
  return result;
}

// By ONNX's own definition: reshape, transpose, reshape.
absl::StatusOr<NDArray> DepthToSpace(const Attrs& attrs, Arrays in, const TensorType& output) {
  const int64_t h = attrs.Int("blocksize", 1), w = attrs.Int("width", h);
  const Shape& x = in[0].shape();
  bool depth_first = attrs.String("mode", "DCR") == "DCR";
  int64_t c = x[1] / (h * w);
  std::vector<int64_t> perm =
      depth_first ? std::vector<int64_t>{0, 3, 4, 1, 5, 2} : std::vector<int64_t>{0, 1, 4, 2, 5, 3};
  NDArray split = in[0].Reshaped(depth_first ? Shape{x[0], h, w, c, x[2], x[3]} : Shape{x[0], c, h, w, x[2], x[3]});
  Attrs transpose;
  transpose.Set("perm", perm);
  TensorType moved{output.dtype, {x[0], c, x[2], h, x[3], w}, {}};
  TEMPER_ASSIGN_OR_RETURN(NDArray result, Transpose(transpose, {&split, 1}, moved));
  return result.Reshaped(output.shape);
}

absl::StatusOr<NDArray> UnfoldPlanes(const Attrs& attrs, Arrays in, const TensorType& output) {
  TEMPER_ASSIGN_OR_RETURN(const ops::PlaneWindow w, ops::PlaneWindow::Of(attrs, in[0].shape()));
  NDArray result(output.dtype, output.shape);
  if (result.size() == 0) return result;
  const int64_t bytes = in[0].bytes() / (in[0].shape()[0] * w.group);  // of a group's channels of a plane
  const auto* from = static_cast<const char*>(in[0].data());
  auto* to = static_cast<char*>(result.MutableData());
  for (int64_t plane = 0; plane < output.shape[0]; ++plane) {
    for (int64_t group = 0; group < w.group; ++group) {
      for (int64_t tap = 0; tap < w.taps; ++tap, to += bytes) {
        const int64_t at = plane % w.planes * w.stride + tap * w.dilation - w.before;
        if (at < 0 || at >= w.depth) continue;  // the array is zero-filled
        const int64_t source = plane / w.planes * w.depth + at;
        std::memcpy(to, from + (source * w.group + group) * bytes, static_cast<size_t>(bytes));
      }
    }
  }
  return result;
}

}  // namespace

std::span<const Reference> MovementReferences() {
  static constexpr Reference kTable[] = {
      {"reshape", Reshape},
      {"transpose", Transpose},
      {"concat", Concat},
      {"slice", Slice},
      {"pad", Pad},
      {"gather", Gather},
      {"gather_elements", GatherElements},
      {"expand", Expand},
      {"tile", Tile},
      {"depth_to_space", DepthToSpace},
      {"unfold_planes", UnfoldPlanes},
  };
  return kTable;
}

}  // namespace temper::reference
