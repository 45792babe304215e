// Weights that a model keeps as numbers of few bits, and dequantises for a product of floats. Such a product becomes
// one that keeps the numbers, where the target has a template for it.
#include <algorithm>
#include <numeric>

#include "compiler/graph/passes/integer_products.h"
#include "compiler/ops/template.h"

namespace temper::passes {
namespace {

constexpr int64_t kFewestWeights = 1 << 16;  // of fewer, floats stay in caches
constexpr int64_t kShortestBlock = 16;       // with less of it, scales are as large as the numbers

// What the product's right operand is made of: numbers, and moves that bring them where the product has them, the last
// one first.
struct Stored {
  Dequantized d;
  std::vector<const Node*> moves;
  bool trans_b;
};

std::optional<Stored> StoredAt(const Rewriter& r, const Node& product) {
  Stored s{{}, {}, product.attrs.Int("trans_b", 0) != 0};
  ValueId v = product.inputs[1];
  while (const Node* node = r.Producer(v)) {
    const bool narrows = node->op == "cast" && IsNarrowFloat(r.TypeOf(v).dtype);
    if (node->op == "reshape" || node->op == "transpose") {
      s.moves.push_back(node);
    } else if (!narrows || r.TypeOf(node->inputs[0]).dtype != DType::kF32) {
      break;
    }
    v = node->inputs[0];
  }
  const std::optional<Dequantized> d = DequantizedAt(r, v);
  if (!d.has_value()) return std::nullopt;
  s.d = *d;
  return s;
}

absl::StatusOr<NDArray> Run(std::string_view op, const Attrs& attrs, const NDArray& x, Shape shape) {
  const NDArray operands[] = {x};
  return FindOp(op)->reference(attrs, operands, {x.dtype(), std::move(shape), {}});
}

absl::StatusOr<NDArray> Transposed(const NDArray& x) {
  Attrs attrs;
  attrs.Set("perm", std::vector<int64_t>{1, 0});
  return Run("transpose", attrs, x, {x.shape()[1], x.shape()[0]});
}

// The numbers as the product has them, [k, n].
absl::StatusOr<NDArray> Moved(const Rewriter& r, const Stored& s, NDArray x) {
  for (size_t i = s.moves.size(); i-- > 0;) {
    const Node& move = *s.moves[i];
    TEMPER_ASSIGN_OR_RETURN(x, Run(move.op, move.attrs, x, r.ShapeOf(move.output)));
  }
  return s.trans_b ? Transposed(x) : x;
}

// A parameter of numbers of the shape `of`: along each axis, one for each run of so many numbers.
struct Parameter {
  NDArray values;
  Shape of;
  int64_t run(size_t axis) const { return of[axis] / values.shape()[axis]; }
};

// The same where axes become one: of those it has runs along the last ones. Nullopt where it has others.
std::optional<Parameter> Reshaped(const Parameter& p, const Shape& to) {
  Shape shape;
  size_t axis = 0;
  for (const int64_t extent : to) {
    int64_t numbers = 1, own = 1;
    for (bool runs = false; numbers < extent && axis < p.of.size(); ++axis) {
      const int64_t values = p.values.shape()[axis];
      if (runs && values > 1) return std::nullopt;
      runs = runs || values < p.of[axis];
      numbers *= p.of[axis], own *= values;
    }
    if (numbers != extent) return std::nullopt;
    shape.push_back(own);
  }
  return Parameter{p.values.Reshaped(std::move(shape)), to};
}

// For the numbers as the product has them. Nullopt where it is not known, or has no runs there.
std::optional<Parameter> ParameterOf(const Rewriter& r, const Stored& s, ValueId parameter) {
  const Shape& shape = r.ShapeOf(s.d.q);
  const std::optional<NDArray> known = parameter == kNoValue ? NDArray(DType::kF32, {}) : Known(r, parameter);
  if (!known.has_value() || known->shape().size() > shape.size()) return std::nullopt;
  Shape whole = known->shape();
  whole.insert(whole.begin(), shape.size() - whole.size(), 1);
  std::optional<Parameter> p = Parameter{known->ConvertedTo(DType::kF32).Reshaped(whole), shape};
  for (size_t i = s.moves.size(); i-- > 0 && p.has_value();) {
    const Node& move = *s.moves[i];
    if (move.op == "reshape") {
      p = Reshaped(*p, r.ShapeOf(move.output));
      continue;
    }
    Shape to;
    for (const int64_t axis : move.attrs.Ints("perm")) to.push_back(p->values.shape()[static_cast<size_t>(axis)]);
    const absl::StatusOr<NDArray> moved = Run(move.op, move.attrs, p->values, std::move(to));
    if (!moved.ok()) return std::nullopt;
    p = Parameter{*moved, r.ShapeOf(move.output)};
  }
  if (!p.has_value() || !s.trans_b) return p;
  const absl::StatusOr<NDArray> transposed = Transposed(p->values);
  if (!transposed.ok()) return std::nullopt;
  return Parameter{*transposed, {p->of[1], p->of[0]}};
}

// Of each block of a column: [k / block, n].
NDArray OfBlocks(const Parameter& p, int64_t block) {
  const int64_t blocks = p.of[0] / block, columns = p.of[1], width = p.values.shape()[1];
  NDArray rows(DType::kF32, {blocks, columns});
  float* to = rows.as<float>().data();
  for (int64_t b = 0; b < blocks; ++b) {
    const float* row = p.values.as<float>().data() + b * block / p.run(0) * width;
    for (int64_t n = 0; n < columns; ++n) *to++ = row[n / p.run(1)];
  }
  return rows;
}

bool Fit(const NDArray& q, DType dtype) {
  const int least = static_cast<int>(Lowest(dtype)), most = static_cast<int>(Largest(dtype));
  const auto fit = [&](auto numbers) {
    return std::ranges::all_of(numbers, [&](int i) { return i >= least && i <= most; });
  };
  return q.dtype() == DType::kI8 ? fit(q.as<int8_t>()) : fit(q.as<uint8_t>());
}

// Numbers from zero on, two in a byte where they fit, and what was added to them.
struct Unsigned {
  NDArray bytes;
  double added;
};
Unsigned UnsignedOf(const NDArray& q) {  // of i8 or u8
  const bool is_signed = q.dtype() == DType::kI8;
  const DType four = is_signed ? DType::kI4 : DType::kU4;
  const int64_t depth = q.shape()[0], columns = q.shape()[1];
  const bool halves = depth % 2 == 0 && Fit(q, four);
  const int added = !is_signed ? 0 : -static_cast<int>(Lowest(halves ? four : DType::kI8));
  NDArray bytes(DType::kU8, {halves ? depth / 2 : depth, columns});
  uint8_t* to = bytes.as<uint8_t>().data();
  const uint8_t* from = static_cast<const uint8_t*>(q.data());
  const auto number = [&](int64_t k, int64_t n) { return static_cast<uint8_t>(from[k * columns + n] + added); };
  for (int64_t row = 0; row < bytes.shape()[0]; ++row) {
    for (int64_t n = 0; n < columns; ++n)
      *to++ = halves ? static_cast<uint8_t>(number(2 * row, n) | number(2 * row + 1, n) << 4) : number(row, n);
  }
  return {std::move(bytes), static_cast<double>(added)};
}

constexpr double kMostOfByte = 127;

// The left operand in bytes, and the largest magnitude of each block of floats, which became 127.
struct Rounded {
  ValueId bytes, most;
};
absl::StatusOr<Rounded> RoundedToBytes(Rewriter& r, ValueId x, int64_t block) {
  constexpr double kLeast = 1e-30;  // a block of zeros is multiplied by any number
  const auto rank = static_cast<int64_t>(r.ShapeOf(x).size());
  std::vector<int64_t> whole = r.ShapeOf(x), apart = whole, each = whole;
  each.back() = apart.back() = whole.back() / block;
  apart.push_back(block);
  const auto scalar = [&](double value) {
    NDArray data(DType::kF32, {});
    data.Set(0, value);
    return r.AddConstant(std::move(data));
  };
  const auto reshape = [&](ValueId v, std::vector<int64_t> shape) {
    return r.Emit("reshape", IntsAttrs("shape", std::move(shape)), {v});
  };
  Attrs last;
  last.Set("axes", std::vector<int64_t>{rank});
  last.Set("keepdims", int64_t{1});
  TEMPER_ASSIGN_OR_RETURN(ValueId v, reshape(x, apart));
  TEMPER_ASSIGN_OR_RETURN(ValueId most, r.Emit("abs", {}, {v}));
  TEMPER_ASSIGN_OR_RETURN(most, r.Emit("reduce_max", std::move(last), {most}));
  TEMPER_ASSIGN_OR_RETURN(ValueId factor, r.Emit("max", {}, {most, scalar(kLeast)}));
  TEMPER_ASSIGN_OR_RETURN(factor, r.Emit("div", {}, {scalar(kMostOfByte), factor}));
  TEMPER_ASSIGN_OR_RETURN(v, r.Emit("mul", {}, {v, factor}));
  TEMPER_ASSIGN_OR_RETURN(v, r.Emit("round", {}, {v}));
  TEMPER_ASSIGN_OR_RETURN(v, EmitCast(r, v, DType::kI8));
  TEMPER_ASSIGN_OR_RETURN(v, reshape(v, std::move(whole)));
  TEMPER_ASSIGN_OR_RETURN(most, reshape(most, std::move(each)));
  return Rounded{v, most};
}

// As the operators have them, where all blocks of the left operand and of the numbers are so long.
Workload WorkloadOf(const TensorType& x, const TensorType& numbers, int64_t block, bool rounds, TensorType result) {
  const int64_t blocks = x.shape.back() / block;
  const auto floats = [](Shape shape) { return TensorType{DType::kF32, std::move(shape), {}}; };
  Workload w;
  w.inputs = {{x}, {numbers, true}, {floats({blocks, numbers.shape[1]}), true}};
  if (rounds) {
    Shape each = x.shape;
    each.back() = blocks;
    w.inputs[0].type.dtype = DType::kI8;
    w.inputs.push_back({floats(std::move(each))});
  }
  std::vector<int> args(w.inputs.size());
  std::iota(args.begin(), args.end(), 0);
  result.dtype = DType::kF32;
  w.calls = {{rounds ? "matmul_nbits_i8" : "matmul_nbits", {}, std::move(args), std::move(result)}};
  return w;
}

// Whether the left operand may be rounded, and products of four bytes by numbers of so many bits are faster then.
bool Rounds(const Node& node, const Target& t, bool halves) {
  return node.attrs.Int("left_bits", 0) == 8 && (MultipliesBytes(t) || (halves && t.cpu()->Has("avx2")));
}

}  // namespace

absl::StatusOr<bool> MultiplyNBits(Rewriter& r, Node& node, const Target& t, NBitsConstants& shared) {
  if (node.op != "matmul" || node.attrs.Int("trans_a", 0) != 0 || r.ShapeOf(node.inputs[1]).size() != 2 ||
      NumElements(r.ShapeOf(node.inputs[1])) < kFewestWeights || r.Constant(node.inputs[0]) != nullptr)
    return false;
  const DType dtype = r.TypeOf(node.output).dtype;
  const std::optional<Stored> s = StoredAt(r, node);
  if (!s.has_value() || (dtype != DType::kF32 && !IsNarrowFloat(dtype))) return false;
  // What another type of device multiplies as floats is not looked at more closely.
  const TensorType a{DType::kF32, r.ShapeOf(node.inputs[0]), {}};
  const int64_t depth = a.shape.back(), columns = r.ShapeOf(node.output).back();
  const TensorType bytes{DType::kU8, {depth, columns}, {}};
  if (!HasOwnTemplate(WorkloadOf(a, bytes, depth, false, r.TypeOf(node.output)), t)) return false;

  const std::optional<NDArray> known = Known(r, s->d.q);
  if (!known.has_value()) return false;
  const bool is_signed = Info(known->dtype()).kind == TypeKind::kSigned;
  const std::optional<Parameter> scales = ParameterOf(r, *s, s->d.scale), zeros = ParameterOf(r, *s, s->d.zero);
  if (!scales.has_value() || !zeros.has_value()) return false;
  const int64_t block = std::gcd(scales->run(0), zeros->run(0));
  if (block < kShortestBlock || block % 2 != 0) return false;
  TEMPER_ASSIGN_OR_RETURN(const NDArray q, Moved(r, *s, known->ConvertedTo(is_signed ? DType::kI8 : DType::kU8)));
  Unsigned numbers = UnsignedOf(q);
  NDArray scale = OfBlocks(*scales, block);
  const double first = zeros->values.At(0), zero = first + numbers.added;
  const bool one_zero = LieBetween(zeros->values, first, first);

  TEMPER_ASSIGN_OR_RETURN(ValueId x, EmitCast(r, node.inputs[0], DType::kF32));
  const TensorType packed{DType::kU8, numbers.bytes.shape(), {}};
  const bool rounds = Rounds(node, t, packed.shape[0] < depth) &&
                      HasOwnTemplate(WorkloadOf(a, packed, block, true, r.TypeOf(node.output)), t);
  ValueId most = kNoValue;
  if (rounds) {
    TEMPER_ASSIGN_OR_RETURN(const Rounded left, RoundedToBytes(r, x, block));
    x = left.bytes, most = left.most;
    for (float& s : scale.as<float>()) s /= static_cast<float>(kMostOfByte);
  }
  // Steps of a sequence are products by the same weights.
  std::vector<ValueId>& constants = shared[{node.inputs[1], rounds}];
  if (constants.empty()) {
    constants = {r.AddConstant(std::move(numbers.bytes)), r.AddConstant(scale)};
    if (!one_zero) {
      NDArray offset = OfBlocks(*zeros, block);
      for (int64_t i = 0; i < offset.size(); ++i) offset.Set(i, -(offset.At(i) + numbers.added) * scale.At(i));
      constants.push_back(r.AddConstant(std::move(offset)));
    }
  }
  std::vector<ValueId> inputs = {x, constants[0], constants[1]};
  if (rounds) inputs.push_back(most);
  if (!one_zero) inputs.push_back(constants[2]);
  Attrs attrs;
  if (one_zero && zero != 0) attrs.Set("zero", static_cast<int64_t>(zero));
  const char* op = rounds ? "matmul_nbits_i8" : "matmul_nbits";
  TEMPER_ASSIGN_OR_RETURN(ValueId v, r.Emit(op, std::move(attrs), std::move(inputs), node.name));
  TEMPER_ASSIGN_OR_RETURN(v, EmitCast(r, v, dtype));
  return r.ReplaceOutput(node, v);
}

absl::StatusOr<bool> ForgetLeftBits(Rewriter& r, Node& node) {
  if (node.op != "matmul" || node.attrs.Int("left_bits", 0) == 0) return false;
  r.Become(node, node.op, Without(node.attrs, "left_bits"), node.inputs);
  return true;
}

}  // namespace temper::passes
