// Operators on the bits of integers, as arithmetic. Shifts are products and quotients of powers of two. What two
// integers have in common is found bit by bit, along an axis of bits; the rest follows from it.
#include <cstring>

#include "absl/strings/str_cat.h"
#include "compiler/frontend/onnx/formula.h"

namespace temper::onnx_frontend {
namespace {

absl::Status CheckIntegers(Context& c, const OnnxNode& n) {
  for (const ValueId v : n.inputs) {
    if (v == kNoValue) return absl::InvalidArgumentError("an operand is missing");
    const DType dtype = c.TypeOf(v).dtype;
    if (IsFloat(dtype) || dtype == DType::kBool || dtype != c.TypeOf(n.Input(0)).dtype)
      return absl::InvalidArgumentError("takes integers of one type");
    if (IsPacked(dtype)) return absl::UnimplementedError("integers of less than a byte are not supported");
  }
  return absl::OkStatus();
}

DType UnsignedOf(DType dtype) {
  constexpr DType kAll[] = {DType::kU8, DType::kU16, DType::kU32, DType::kU64};
  for (const DType u : kAll) {
    if (Info(u).bits == Info(dtype).bits) return u;
  }
  return dtype;
}

// 1, 2, 4, ...: a number for each bit.
ValueId Powers(Context& c, DType dtype) {
  NDArray powers(dtype, {Info(dtype).bits});
  for (int i = 0; i < Info(dtype).bits; ++i) StoreBits(dtype, powers.MutableData(), i, uint64_t{1} << i);
  return c.Constant(std::move(powers));
}

// A shift by all bits or more leaves nothing.
absl::Status BitShift(Context& c, const OnnxNode& n) {
  TEMPER_RETURN_IF_ERROR(CheckIntegers(c, n));
  const DType dtype = c.TypeOf(n.Input(0)).dtype;
  if (!IsUnsigned(dtype)) return absl::InvalidArgumentError("takes unsigned integers");
  const std::string direction = n.String("direction", "");
  if (direction != "LEFT" && direction != "RIGHT") return absl::InvalidArgumentError("direction is 'LEFT' or 'RIGHT'");
  Formula f(c, dtype);
  Attrs first;
  first.Set("axis", int64_t{0});
  const ValueId most = f.Number(Info(dtype).bits - 1);
  const ValueId bounded = f.Call("min", {n.Input(1), most});
  const ValueId power = f.Call("gather", {Powers(c, dtype), f.Cast(bounded, "i32")}, std::move(first));
  const ValueId shifted = direction == "LEFT" ? f.Mul(n.Input(0), power) : f.Div(n.Input(0), power);
  const ValueId v = f.Call("where", {f.Call("less_equal", {n.Input(1), most}), shifted, f.Number(0)});
  TEMPER_RETURN_IF_ERROR(f.status());
  return c.Set(n, v);
}

// The bits that both have. `f` is of the unsigned type that the operands have.
ValueId Common(Context& c, Formula& f, ValueId a, ValueId b) {
  const ValueId powers = Powers(c, c.TypeOf(a).dtype);
  ValueId bit[2] = {a, b};
  for (ValueId& v : bit) {
    Shape apart = c.ShapeOf(v);
    apart.push_back(1);
    Attrs shape;
    shape.Set("shape", std::move(apart));
    v = f.Call("mod", {f.Div(f.Call("reshape", {v}, std::move(shape)), powers), f.Number(2)});
  }
  const ValueId places = f.Mul(f.Mul(bit[0], bit[1]), powers);
  if (!f.status().ok()) return kNoValue;
  Attrs last;
  last.Set("axes", std::vector<int64_t>{c.Rank(places) - 1});
  last.Set("keepdims", int64_t{0});
  return f.Call("reduce_sum", {places}, std::move(last));
}

// a | b is a + b without what both have once, a ^ b without both.
absl::Status BitwisePair(Context& c, const OnnxNode& n) {
  TEMPER_RETURN_IF_ERROR(CheckIntegers(c, n));
  const DType dtype = c.TypeOf(n.Input(0)).dtype, plain = UnsignedOf(dtype);
  TEMPER_ASSIGN_OR_RETURN(const ValueId a, c.Cast(n.Input(0), plain));
  TEMPER_ASSIGN_OR_RETURN(const ValueId b, c.Cast(n.Input(1), plain));
  Formula f(c, plain);
  ValueId v = Common(c, f, a, b);
  if (n.proto.op_type() == "BitwiseXor") v = f.Times(v, 2);
  if (n.proto.op_type() != "BitwiseAnd") v = f.Sub(f.Add(a, b), v);
  TEMPER_RETURN_IF_ERROR(f.status());
  TEMPER_ASSIGN_OR_RETURN(v, c.Cast(v, dtype));
  return c.Set(n, v);
}

absl::Status BitwiseNot(Context& c, const OnnxNode& n) {
  TEMPER_RETURN_IF_ERROR(CheckIntegers(c, n));
  NDArray ones(c.TypeOf(n.Input(0)).dtype, {});
  std::memset(ones.MutableData(), 0xff, static_cast<size_t>(ones.bytes()));
  TEMPER_ASSIGN_OR_RETURN(ValueId v, c.Call("sub", {}, {c.Constant(std::move(ones)), n.Input(0)}));
  return c.Set(n, v);
}

}  // namespace

std::span<const TableEntry> BitsTable() {
  static constexpr TableEntry kTable[] = {{"BitShift", BitShift, 2},
                                          {"BitwiseAnd", BitwisePair, 2},
                                          {"BitwiseOr", BitwisePair, 2},
                                          {"BitwiseXor", BitwisePair, 2},
                                          {"BitwiseNot", BitwiseNot}};
  return kTable;
}

}  // namespace temper::onnx_frontend
