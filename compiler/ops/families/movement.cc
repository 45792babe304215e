// Operators that move elements without computing: reshape, transpose, concat, slice, pad, gather, gather_elements,
// expand, tile, depth_to_space, unfold_planes.
#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "compiler/ops/families/compute_util.h"
#include "compiler/ops/families/families.h"
#include "compiler/ops/families/infer_util.h"
#include "compiler/ops/families/planes.h"
#include "compiler/ops/families/slice_util.h"

namespace temper::ops {
namespace {

using ir::Expr;
using ir::Tensor;
using Inputs = std::span<const Tensor>;
using Types = std::span<const TensorType>;

// --- reshape ---

// A dimension of -1 takes what is left.
absl::StatusOr<TensorType> InferReshape(const Attrs& attrs, Types in) {
  TEMPER_RETURN_IF_ERROR(CheckAttrs(attrs, {{"shape", AttrKind::kInts}}));
  Shape shape = attrs.Ints("shape");
  double known = 1, total = Elements(in[0]);  // no product of doubles overflows
  int64_t open = -1;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] < -1) return InvalidType("a dimension is below -1");
    if (shape[i] == -1 && open >= 0) return InvalidType("shape has two open dimensions");
    if (shape[i] == -1)
      open = static_cast<int64_t>(i);
    else
      known *= static_cast<double>(shape[i]);
  }
  if (open >= 0 && known > 0) {
    shape[open] = static_cast<int64_t>(total / known);
    known *= static_cast<double>(shape[open]);
  }
  if (known != total || std::count(shape.begin(), shape.end(), -1) > 0) {
    return InvalidType(absl::StrCat("does not fit ", ShapeText(in[0].shape), " into ", ShapeText(attrs.Ints("shape"))));
  }
  return TensorType{in[0].dtype, std::move(shape), {}};
}

// Runs of axes on both sides that hold the same elements are mapped on their own, so that most axes stay as they are.
absl::StatusOr<Tensor> ComputeReshape(ir::ProgramBuilder&, const Attrs&, Inputs in, const TensorType& output) {
  Shape from = in[0].shape(), to = output.shape;
  if (NumElements(to) == 0) return InvalidType("reshape of nothing has no expression");
  return Tensor(output.dtype, to, [x = in[0], from, to](const Index& i) {
    Index result(from.size(), Expr(0));
    size_t a = 0, b = 0;
    while (a < from.size()) {
      size_t a_end = a + 1, b_end = b;
      int64_t size_a = from[a], size_b = 1;
      while (size_a != size_b) {
        if (size_b < size_a)
          size_b *= to[b_end++];
        else
          size_a *= from[a_end++];
      }
      Expr flat = 0;
      for (size_t k = b; k < b_end; ++k) flat = flat * Expr(to[k]) + i[k];
      for (size_t k = a_end; k-- > a;) {
        result[k] = k == a ? flat : flat % Expr(from[k]);
        flat = flat / Expr(from[k]);
      }
      a = a_end;
      b = b_end;
    }
    return x(result);
  });
}

// --- transpose ---

absl::StatusOr<TensorType> InferTranspose(const Attrs& attrs, Types in) {
  TEMPER_RETURN_IF_ERROR(CheckAttrs(attrs, {{"perm", AttrKind::kInts}}));
  std::vector<int64_t> perm = attrs.Ints("perm"), sorted = perm;
  std::sort(sorted.begin(), sorted.end());
  std::vector<int64_t> axes(in[0].shape.size());
  std::iota(axes.begin(), axes.end(), 0);
  if (sorted != axes) return InvalidType("perm is no permutation of the axes");
  TensorType result{in[0].dtype, {}, {}};
  for (int64_t axis : perm) result.shape.push_back(in[0].shape[axis]);
  return result;
}

absl::StatusOr<Tensor> ComputeTranspose(ir::ProgramBuilder&, const Attrs& attrs, Inputs in, const TensorType& output) {
  return Tensor(output.dtype, output.shape, [x = in[0], perm = attrs.Ints("perm")](const Index& i) {
    Index source(i.size());
    for (size_t k = 0; k < i.size(); ++k) source[perm[k]] = i[k];
    return x(source);
  });
}

// --- concat ---

absl::StatusOr<TensorType> InferConcat(const Attrs& attrs, Types in) {
  TEMPER_RETURN_IF_ERROR(CheckAttrs(attrs, {{"axis", AttrKind::kInt}}));
  TEMPER_ASSIGN_OR_RETURN(int64_t axis, NormalizeAxis(attrs.Int("axis", 0), Rank(in[0])));
  TensorType result{in[0].dtype, in[0].shape, {}};
  for (size_t i = 1; i < in.size(); ++i) {
    if (in[i].dtype != in[0].dtype || Rank(in[i]) != Rank(in[0]))
      return InvalidType("operands are of one dtype and rank");
    Shape shape = in[i].shape;
    result.shape[axis] += shape[axis];
    shape[axis] = in[0].shape[axis];
    if (shape != in[0].shape) return InvalidType("operands differ in more than the axis");
  }
  return result;
}

// parts[first, last) beside each other along `axis`, the first at `begins[first]`. Which one has an element is found by
// halving: a recurrent network's steps are hundreds of parts.
Expr PartAt(const std::vector<Tensor>& parts, const std::vector<int64_t>& begins, size_t first, size_t last,
            int64_t axis, const Index& i) {
  if (last - first == 1) {
    Index source = i;
    source[axis] = i[axis] - Expr(begins[first]);
    return parts[first](source);
  }
  const size_t middle = first + (last - first) / 2;
  return ir::Select(i[axis] < Expr(begins[middle]), PartAt(parts, begins, first, middle, axis, i),
                    PartAt(parts, begins, middle, last, axis, i));
}

absl::StatusOr<Tensor> ComputeConcat(ir::ProgramBuilder&, const Attrs& attrs, Inputs in, const TensorType& output) {
  TEMPER_ASSIGN_OR_RETURN(int64_t axis, NormalizeAxis(attrs.Int("axis", 0), in[0].rank()));
  std::vector<Tensor> parts;
  std::vector<int64_t> begins;
  int64_t begin = 0;
  for (const Tensor& part : in) {
    if (part.shape()[axis] == 0) continue;
    parts.push_back(part);
    begins.push_back(begin);
    begin += part.shape()[axis];
  }
  if (parts.empty()) parts = {in[0]}, begins = {0};
  return Tensor(output.dtype, output.shape,
                [=](const Index& i) { return PartAt(parts, begins, 0, parts.size(), axis, i); });
}

// --- slice ---

absl::StatusOr<TensorType> InferSlice(const Attrs& attrs, Types in) {
  TEMPER_RETURN_IF_ERROR(CheckAttrs(
      attrs,
      {{"starts", AttrKind::kInts}, {"ends", AttrKind::kInts}, {"axes", AttrKind::kInts}, {"steps", AttrKind::kInts}}));
  TEMPER_ASSIGN_OR_RETURN(std::vector<AxisSlice> slices, SlicesOf(attrs, in[0].shape));
  TensorType result{in[0].dtype, {}, {}};
  for (const AxisSlice& s : slices) result.shape.push_back(s.count);
  return result;
}

absl::StatusOr<Tensor> ComputeSlice(ir::ProgramBuilder&, const Attrs& attrs, Inputs in, const TensorType& output) {
  TEMPER_ASSIGN_OR_RETURN(std::vector<AxisSlice> slices, SlicesOf(attrs, in[0].shape()));
  return Tensor(output.dtype, output.shape, [x = in[0], slices](const Index& i) {
    Index source;
    for (size_t k = 0; k < i.size(); ++k) source.push_back(i[k] * Expr(slices[k].step) + Expr(slices[k].start));
    return x(source);
  });
}

// --- pad ---

absl::StatusOr<TensorType> InferPad(const Attrs& attrs, Types in) {
  TEMPER_RETURN_IF_ERROR(
      CheckAttrs(attrs, {{"pads", AttrKind::kInts}, {"mode", AttrKind::kString}, {"value", AttrKind::kFloat}}));
  std::vector<int64_t> pads = attrs.Ints("pads");
  std::string mode = attrs.String("mode", "constant");
  size_t rank = in[0].shape.size();
  if (pads.size() != 2 * rank) return InvalidType("pads has two elements an axis: all begins, then all ends");
  if (mode != "constant" && mode != "reflect" && mode != "edge")
    return InvalidType("mode is 'constant', 'reflect' or 'edge'");
  TensorType result{in[0].dtype, {}, {}};
  for (size_t i = 0; i < rank; ++i) {
    int64_t extent = in[0].shape[i], begin = pads[i], end = pads[rank + i];
    constexpr int64_t kLimit = int64_t{1} << 32;
    const bool sane = std::max(begin, end) <= kLimit && std::min(begin, end) >= -kLimit;
    if (!sane || extent + begin + end < 0) return InvalidType("pads are out of range");
    if (mode == "reflect" && std::max(begin, end) >= extent) return InvalidType("reflect pads less than the extent");
    if (mode == "edge" && extent == 0) return InvalidType("edge needs an element");
    result.shape.push_back(extent + begin + end);
  }
  return result;
}

// Position `j` (outside [0, extent) perhaps) as the position whose element is taken.
Expr PadSource(const Expr& j, int64_t extent, const std::string& mode) {
  Expr last = extent - 1;
  if (mode == "edge") return ir::Min(ir::Max(j, Expr(0)), last);
  Expr mirrored = ir::Max(j, Expr(0) - j);
  return last - ir::Max(last - mirrored, mirrored - last);
}

absl::StatusOr<Tensor> ComputePad(ir::ProgramBuilder&, const Attrs& attrs, Inputs in, const TensorType& output) {
  std::vector<int64_t> pads = attrs.Ints("pads");
  std::string mode = attrs.String("mode", "constant");
  Expr value = ir::Const(attrs.Float("value", 0), output.dtype);
  return Tensor(output.dtype, output.shape, [=, x = in[0]](const Index& i) {
    Index source;
    std::vector<Expr> conditions;
    for (size_t k = 0; k < i.size(); ++k) {
      int64_t begin = pads[k], end = pads[i.size() + k], extent = x.shape()[k];
      Expr j = i[k] - Expr(begin);
      bool inside = begin <= 0 && end <= 0;
      if (mode == "constant" && begin > 0) conditions.push_back(Expr(0) <= j);
      if (mode == "constant" && end > 0) conditions.push_back(j < Expr(extent));
      source.push_back(inside || mode == "constant" ? j : PadSource(j, extent, mode));
    }
    return InBounds(conditions, x(source), value);
  });
}

// --- gather ---

absl::StatusOr<TensorType> InferGather(const Attrs& attrs, Types in) {
  TEMPER_RETURN_IF_ERROR(CheckAttrs(attrs, {{"axis", AttrKind::kInt}}));
  TEMPER_ASSIGN_OR_RETURN(int64_t axis, NormalizeAxis(attrs.Int("axis", 0), Rank(in[0])));
  if (in[1].dtype != DType::kI64 && in[1].dtype != DType::kI32) return InvalidType("indices are i64 or i32");
  if (in[0].shape[axis] == 0) return InvalidType("the axis has no element");
  TensorType result = {in[0].dtype, in[0].shape, {}};
  result.shape.erase(result.shape.begin() + axis);
  result.shape.insert(result.shape.begin() + axis, in[1].shape.begin(), in[1].shape.end());
  return result;
}

// Where an element is along an axis, counted from the end where it is negative. What is still outside is taken to the
// nearest element: an index is data, and data must not make a kernel read where it may not.
Expr PlaceIn(Expr at, Expr extent) {
  at = ir::Cast(std::move(at), DType::kI64);
  at = ir::Select(at < Expr(0), at + extent, at);
  return ir::Min(ir::Max(at, Expr(0)), extent - Expr(1));
}

absl::StatusOr<Tensor> ComputeGather(ir::ProgramBuilder&, const Attrs& attrs, Inputs in, const TensorType& output) {
  TEMPER_ASSIGN_OR_RETURN(int64_t axis, NormalizeAxis(attrs.Int("axis", 0), in[0].rank()));
  return Tensor(output.dtype, output.shape, [x = in[0], indices = in[1], axis](const Index& i) {
    auto first = i.begin() + axis, last = first + indices.rank();
    Index source(i.begin(), first);
    source.push_back(PlaceIn(indices(Index(first, last)), x.shape()[axis]));
    source.insert(source.end(), last, i.end());
    return x(source);
  });
}

// --- gather_elements ---

absl::StatusOr<TensorType> InferGatherElements(const Attrs& attrs, Types in) {
  TEMPER_RETURN_IF_ERROR(CheckAttrs(attrs, {{"axis", AttrKind::kInt}}));
  TEMPER_ASSIGN_OR_RETURN(const int64_t axis, NormalizeAxis(attrs.Int("axis", 0), Rank(in[0])));
  if (in[1].dtype != DType::kI64 && in[1].dtype != DType::kI32) return InvalidType("indices are i64 or i32");
  if (Rank(in[1]) != Rank(in[0])) return InvalidType("indices have as many axes as the tensor");
  for (int64_t d = 0; d < Rank(in[0]); ++d) {
    if (d != axis && in[1].shape[d] > in[0].shape[d]) return InvalidType("the indices reach beyond the tensor");
  }
  if (in[0].shape[axis] == 0) return InvalidType("the axis has no element");
  return TensorType{in[0].dtype, in[1].shape, {}};
}

absl::StatusOr<Tensor> ComputeGatherElements(ir::ProgramBuilder&, const Attrs& attrs, Inputs in,
                                             const TensorType& output) {
  TEMPER_ASSIGN_OR_RETURN(const int64_t axis, NormalizeAxis(attrs.Int("axis", 0), in[0].rank()));
  return Tensor(output.dtype, output.shape, [x = in[0], indices = in[1], axis](const Index& i) {
    Index source = i;
    source[static_cast<size_t>(axis)] = PlaceIn(indices(i), x.shape()[axis]);
    return x(source);
  });
}

// --- expand, tile ---

absl::StatusOr<TensorType> InferExpand(const Attrs& attrs, Types in) {
  TEMPER_RETURN_IF_ERROR(CheckAttrs(attrs, {{"shape", AttrKind::kInts}}));
  Shape wanted = attrs.Ints("shape");
  if (std::any_of(wanted.begin(), wanted.end(), [](int64_t d) { return d < 0; }))
    return InvalidType("a dimension is negative");
  TEMPER_ASSIGN_OR_RETURN(Shape shape, BroadcastShapes(in[0].shape, wanted));
  return TensorType{in[0].dtype, std::move(shape), {}};
}

absl::StatusOr<Tensor> ComputeExpand(ir::ProgramBuilder&, const Attrs&, Inputs in, const TensorType& output) {
  return Tensor(output.dtype, output.shape, [x = in[0]](const Index& i) { return x(BroadcastIndex(i, x.shape())); });
}

absl::StatusOr<TensorType> InferTile(const Attrs& attrs, Types in) {
  TEMPER_RETURN_IF_ERROR(CheckAttrs(attrs, {{"repeats", AttrKind::kInts}}));
  std::vector<int64_t> repeats = attrs.Ints("repeats");
  if (repeats.size() != in[0].shape.size()) return InvalidType("repeats has one element an axis");
  TensorType result{in[0].dtype, in[0].shape, {}};
  for (size_t i = 0; i < repeats.size(); ++i) {
    if (repeats[i] < 0 || repeats[i] > (int64_t{1} << 24)) return InvalidType("repeats are out of range");
    result.shape[i] *= repeats[i];
  }
  return result;
}

absl::StatusOr<Tensor> ComputeTile(ir::ProgramBuilder&, const Attrs&, Inputs in, const TensorType& output) {
  return Tensor(output.dtype, output.shape, [x = in[0]](const Index& i) {
    Index source;
    for (size_t k = 0; k < i.size(); ++k) source.push_back(i[k] % Expr(x.shape()[k]));
    return x(source);
  });
}

// --- depth_to_space ---

absl::StatusOr<TensorType> InferDepthToSpace(const Attrs& attrs, Types in) {
  TEMPER_RETURN_IF_ERROR(CheckAttrs(attrs, {{"blocksize", AttrKind::kInt},
                                            {"width", AttrKind::kInt},  // of a block that is no square
                                            {"mode", AttrKind::kString}}));
  const int64_t block = attrs.Int("blocksize", 0), width = attrs.Int("width", block);
  std::string mode = attrs.String("mode", "DCR");
  if (Rank(in[0]) != 4) return InvalidType("takes rank 4");
  if (mode != "DCR" && mode != "CRD") return InvalidType("mode is 'DCR' or 'CRD'");
  const Shape& x = in[0].shape;
  constexpr int64_t kMost = 1 << 16;
  if (std::min(block, width) < 1 || std::max(block, width) > kMost || x[1] % (block * width) != 0)
    return InvalidType("a block's pixels divide the channels");
  return TensorType{in[0].dtype, {x[0], x[1] / (block * width), x[2] * block, x[3] * width}, {}};
}

absl::StatusOr<Tensor> ComputeDepthToSpace(ir::ProgramBuilder&, const Attrs& attrs, Inputs in,
                                           const TensorType& output) {
  const int64_t block = attrs.Int("blocksize", 0), wide = attrs.Int("width", block);
  bool depth_first = attrs.String("mode", "DCR") == "DCR";
  return Tensor(output.dtype, output.shape, [=, x = in[0]](const Index& i) {
    Expr height = block, width = wide, channels = output.shape[1];
    Expr corner = i[2] % height * width + i[3] % width;
    Expr channel = depth_first ? corner * channels + i[1] : i[1] * Expr(block * wide) + corner;
    return x({i[0], channel, i[2] / height, i[3] / width});
  });
}

// --- unfold_planes ---

// Planes of volumes, [n * depth, c, h, w]: what a window that slides along them sees, as channels of one plane. Of each
// group the taps follow one another, and of each tap its channels.
absl::StatusOr<TensorType> InferUnfoldPlanes(const Attrs& attrs, Types in) {
  TEMPER_ASSIGN_OR_RETURN(const PlaneWindow w, PlaneWindow::Of(attrs, in[0].shape));
  const Shape& x = in[0].shape;
  return TensorType{in[0].dtype, {x[0] / w.depth * w.planes, w.channels_out(), x[2], x[3]}, {}};
}

absl::StatusOr<Tensor> ComputeUnfoldPlanes(ir::ProgramBuilder&, const Attrs& attrs, Inputs in,
                                           const TensorType& output) {
  TEMPER_ASSIGN_OR_RETURN(const PlaneWindow w, PlaneWindow::Of(attrs, in[0].shape()));
  return Tensor(output.dtype, output.shape, [=, x = in[0]](const Index& i) {
    const Expr tap = i[1] / Expr(w.channels) % Expr(w.taps);
    const Expr channel = i[1] / Expr(w.taps * w.channels) * Expr(w.channels) + i[1] % Expr(w.channels);
    std::vector<Expr> conditions;
    w.AddInside(i[0], tap, &conditions);
    return InBounds(conditions, x({w.Plane(i[0], tap), channel, i[2], i[3]}), ir::Const(0, output.dtype));
  });
}

double NoFlops(const Attrs&, Types, const TensorType&) { return 0; }

using InferRule = absl::StatusOr<TensorType> (*)(const Attrs&, Types);
using Formula = absl::StatusOr<Tensor> (*)(ir::ProgramBuilder&, const Attrs&, Inputs, const TensorType&);
OpDef MoveOp(std::string_view name, int least, int most, InferRule infer, Formula compute, Move move = Move::kNone) {
  OpDef op{name, OpPattern::kInjective, least, most, infer, compute, NoFlops, OpTypes::kMoves};
  op.move = move;
  return op;
}

OpDef ByPlaces(OpDef op) {
  op.numbers = {Numbers::kAny, Numbers::kPlace};
  return op;
}

}  // namespace

std::vector<OpDef> MovementOps() {
  constexpr int kMostParts = 1024;
  return {
      MoveOp("reshape", 1, 1, InferReshape, ComputeReshape, Move::kReshapes),
      MoveOp("transpose", 1, 1, InferTranspose, ComputeTranspose, Move::kTransposes),
      MoveOp("concat", 1, kMostParts, InferConcat, ComputeConcat, Move::kConcatenates),
      MoveOp("slice", 1, 1, InferSlice, ComputeSlice, Move::kSlices),
      MoveOp("pad", 1, 1, InferPad, ComputePad),
      ByPlaces(MoveOp("gather", 2, 2, InferGather, ComputeGather, Move::kPicks)),
      ByPlaces(MoveOp("gather_elements", 2, 2, InferGatherElements, ComputeGatherElements)),
      MoveOp("expand", 1, 1, InferExpand, ComputeExpand),
      MoveOp("tile", 1, 1, InferTile, ComputeTile),
      MoveOp("depth_to_space", 1, 1, InferDepthToSpace, ComputeDepthToSpace),
      MoveOp("unfold_planes", 1, 1, InferUnfoldPlanes, ComputeUnfoldPlanes),
  };
}

}  // namespace temper::ops
