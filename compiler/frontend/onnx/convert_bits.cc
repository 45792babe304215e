// Operators on the bits of numbers, as arithmetic. Shifts are products and quotients of powers of two. What two
// integers have in common is found bit by bit, along an axis of bits; the rest follows from it.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>

#include "absl/strings/str_cat.h"
#include "compiler/frontend/onnx/formula.h"
#include "compiler/frontend/onnx/tensor_data.h"

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

// Of as many bits.
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

// Unsigned integers shifted. A shift by all bits or more leaves nothing.
ValueId ShiftedBits(Context& c, Formula& f, ValueId x, ValueId by, bool left) {
  if (!f.status().ok()) return kNoValue;
  const DType dtype = c.TypeOf(x).dtype;
  Attrs first;
  first.Set("axis", int64_t{0});
  const ValueId most = f.Number(Info(dtype).bits - 1);
  const ValueId bounded = f.Call("min", {by, most});
  const ValueId power = f.Call("gather", {Powers(c, dtype), f.Cast(bounded, "i32")}, std::move(first));
  const ValueId shifted = left ? f.Mul(x, power) : f.Div(x, power);
  return f.Call("where", {f.Call("less_equal", {by, most}), shifted, f.Number(0)});
}

// Of signed integers a shift by less than nothing is one by all bits. To the right the sign comes in: what is below
// zero is shifted as -1 - x, which is x with all bits turned round, and turned back.
absl::Status BitShift(Context& c, const OnnxNode& n) {
  TEMPER_RETURN_IF_ERROR(CheckIntegers(c, n));
  constexpr int kFirstSigned = 28;
  const DType dtype = c.TypeOf(n.Input(0)).dtype, plain = UnsignedOf(dtype);
  const bool is_signed = dtype != plain;
  if (is_signed && n.opset < kFirstSigned)
    return absl::InvalidArgumentError(absl::StrCat("takes unsigned integers before opset ", kFirstSigned));
  const std::string direction = n.String("direction", "");
  if (direction != "LEFT" && direction != "RIGHT") return absl::InvalidArgumentError("direction is 'LEFT' or 'RIGHT'");
  const bool left = direction == "LEFT", turns = is_signed && !left;
  const std::string name(Name(dtype)), plain_name(Name(plain));
  Formula own(c, dtype), f(c, plain);
  ValueId x = n.Input(0), by = n.Input(1), below = kNoValue;
  if (turns) {
    below = own.Call("less", {x, own.Number(0)});
    x = own.Call("where", {below, own.Minus(-1, x), x});
  }
  if (is_signed) x = own.Cast(x, plain_name.c_str()), by = own.Cast(by, plain_name.c_str());
  TEMPER_RETURN_IF_ERROR(own.status());
  ValueId v = ShiftedBits(c, f, x, by, left);
  TEMPER_RETURN_IF_ERROR(f.status());
  if (is_signed) v = own.Cast(v, name.c_str());
  if (turns) v = own.Call("where", {below, own.Minus(-1, v), v});
  TEMPER_RETURN_IF_ERROR(own.status());
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

// How the bits of a float are laid out: below the sign the exponent, which counts from -bias, and the mantissa.
struct FloatBits {
  DType dtype;
  int mantissa, bias;
};
const FloatBits* FloatBitsOf(DType dtype) {
  static constexpr FloatBits kAll[] = {
      {DType::kF16, 10, 15}, {DType::kBF16, 7, 127}, {DType::kF32, 23, 127}, {DType::kF64, 52, 1023}};
  const auto* found = std::ranges::find(kAll, dtype, &FloatBits::dtype);
  return found == std::end(kAll) ? nullptr : found;
}

// The float with these bits, which are of an unsigned type. Of 16 bits or fewer there is a table of all.
ValueId FloatOfBits(Context& c, Formula& f, ValueId bits, DType to) {
  Attrs first;
  first.Set("axis", int64_t{0});
  const int64_t count = int64_t{1} << std::min(Info(to).bits, 16);
  if (Info(to).bits <= 16) {
    NDArray table(to, {count});
    for (int64_t i = 0; i < count; ++i) StoreBits(to, table.MutableData(), i, static_cast<uint64_t>(i));
    return f.Call("gather", {c.Constant(std::move(table)), f.Cast(bits, "i32")}, std::move(first));
  }
  const FloatBits& layout = *FloatBitsOf(to);
  const int exponents = 2 * (layout.bias + 1);
  NDArray units(to, {exponents});  // what one of the mantissa is worth
  for (int i = 0; i < exponents - 1; ++i) units.Set(i, std::ldexp(1, std::max(i, 1) - layout.bias - layout.mantissa));
  Formula g(c, to);
  const double one = std::ldexp(1, layout.mantissa);
  const std::string name(Name(to));
  const ValueId exponent = f.Call("mod", {f.Div(bits, f.Number(one)), f.Number(exponents)});
  const ValueId mantissa = f.Call("mod", {bits, f.Number(one)});
  const ValueId sign = f.Call("less_equal", {f.Number(one * exponents), bits});
  const ValueId whole = f.Call("where", {f.Call("equal", {exponent, f.Number(0)}), mantissa, f.Plus(mantissa, one)});
  const ValueId unit = f.Call("gather", {c.Constant(std::move(units)), f.Cast(exponent, "i32")}, std::move(first));
  const ValueId infinite = f.Call("equal", {exponent, f.Number(exponents - 1)});
  const ValueId exact = f.Call("equal", {mantissa, f.Number(0)});
  const ValueId finite = f.Mul(f.Cast(whole, name.c_str()), unit);
  if (!f.status().ok()) return kNoValue;
  const ValueId last = g.Call("where", {exact, g.Number(std::numeric_limits<double>::infinity()),
                                        g.Number(std::numeric_limits<double>::quiet_NaN())});
  const ValueId size = g.Call("where", {infinite, last, finite});
  return f.Call("where", {sign, f.Call("neg", {size}), size});
}

// The bits of a float, in an unsigned type. All that are no numbers have the same ones.
ValueId BitsOfFloat(Context& c, Formula& g, ValueId x, const FloatBits& layout, const std::string& plain) {
  const double one = std::ldexp(1, layout.mantissa), least = std::ldexp(1, 1 - layout.bias);
  const ValueId zero = g.Number(0), a = g.Call("abs", {x});
  const ValueId signed_zero = g.Call("where", {g.Call("equal", {x, zero}), g.Call("reciprocal", {x}), x});
  const ValueId sign = g.Call("where", {g.Call("less", {signed_zero, zero}), g.Number(1), zero});
  // What is left of the number beside a power of two is from 1 to 2. The logarithm tells which power, or its neighbour.
  const ValueId finite = g.Call("less", {a, g.Number(std::numeric_limits<double>::infinity())});
  NDArray powers(g.dtype(), {2 * layout.bias - 1});
  for (int64_t i = 0; i < powers.size(); ++i) powers.Set(i, std::ldexp(1, layout.bias - 1 - static_cast<int>(i)));
  const ValueId known = g.Call("where", {finite, a, g.Number(1)});
  const ValueId guess = g.Clip(g.Call("floor", {g.Times(g.Call("log", {known}), 1 / std::numbers::ln2)}),
                               1 - layout.bias, layout.bias - 1);
  Attrs first;
  first.Set("axis", int64_t{0});
  const ValueId place = g.Cast(g.Plus(guess, layout.bias - 1), "i32");
  ValueId y = g.Mul(known, g.Call("gather", {c.Constant(std::move(powers)), place}, std::move(first)));
  const ValueId large = g.Call("less_equal", {g.Number(2), y}), small = g.Call("less", {y, g.Number(1)});
  y = g.Call("where", {large, g.Times(y, 0.5), g.Call("where", {small, g.Times(y, 2), y})});
  const ValueId step = g.Call("where", {large, g.Number(1), g.Call("where", {small, g.Number(-1), zero})});
  ValueId exponent = g.Plus(g.Add(guess, step), layout.bias);
  ValueId mantissa = g.Times(g.Plus(y, -1), one);
  const ValueId tiny =
      g.Call("less", {a, g.Number(least)});  // in two steps: the factor of both is no number of its own
  mantissa = g.Call("where", {tiny, g.Times(g.Times(a, 1 / least), one), mantissa});
  exponent = g.Call("where", {tiny, zero, exponent});
  const ValueId number = g.Call("equal", {x, x});
  mantissa = g.Call("where", {finite, mantissa, g.Call("where", {number, zero, g.Number(one / 2)})});
  exponent = g.Call("where", {finite, exponent, g.Number(2 * layout.bias + 1)});
  // Sums of the parts are more than the float type holds.
  const auto part = [&](ValueId v) { return g.Cast(v, plain.c_str()); };
  const ValueId high = g.Add(g.Times(sign, 2 * layout.bias + 2), exponent);
  return g.status().ok() ? g.Call("add", {g.Call("mul", {part(high), part(g.Number(one))}), part(mantissa)}) : kNoValue;
}

// What is known keeps its bits; what the run computes is taken apart and put together again.
absl::Status BitCast(Context& c, const OnnxNode& n) {
  const DType from = c.TypeOf(n.Input(0)).dtype;
  TEMPER_ASSIGN_OR_RETURN(const DType to, DTypeOf(static_cast<int>(n.Int("to", 0))));
  if (Info(from).bits != Info(to).bits)
    return absl::InvalidArgumentError(
        absl::StrCat(std::string(Name(from)), " and ", std::string(Name(to)), " have not as many bits"));
  if (const NDArray* known = c.Known(n.Input(0))) {
    NDArray same(to, known->shape());
    std::memcpy(same.MutableData(), known->data(), static_cast<size_t>(known->bytes()));
    return c.Set(n, c.Constant(std::move(same)));
  }
  if (from == to) return c.Set(n, n.Input(0));
  if (IsPacked(from)) return absl::UnimplementedError("numbers of less than a byte are not supported");
  if (IsFloat(from) && FloatBitsOf(from) == nullptr)
    return absl::UnimplementedError("floats of a byte are not supported");
  ValueId v = n.Input(0);
  const DType plain = UnsignedOf(to);
  Formula f(c, plain), g(c, from == DType::kF64 ? from : DType::kF32);
  if (IsFloat(from)) {
    TEMPER_ASSIGN_OR_RETURN(v, c.Cast(v, from == DType::kF64 ? from : DType::kF32));
    v = BitsOfFloat(c, g, v, *FloatBitsOf(from), std::string(Name(plain)));
    TEMPER_RETURN_IF_ERROR(g.status());
  }
  TEMPER_ASSIGN_OR_RETURN(v, c.Cast(v, plain));
  if (IsFloat(to)) {
    v = FloatOfBits(c, f, v, to);
    TEMPER_RETURN_IF_ERROR(f.status());
  }
  TEMPER_ASSIGN_OR_RETURN(v, c.Cast(v, to));
  return c.Set(n, v);
}

}  // namespace

std::span<const TableEntry> BitsTable() {
  static constexpr TableEntry kTable[] = {
      {"BitShift", BitShift, 2, Extents::kAlongAnyAxis},     {"BitwiseAnd", BitwisePair, 2, Extents::kAlongAnyAxis},
      {"BitwiseOr", BitwisePair, 2, Extents::kAlongAnyAxis}, {"BitwiseXor", BitwisePair, 2, Extents::kAlongAnyAxis},
      {"BitwiseNot", BitwiseNot, 1, Extents::kAlongAnyAxis}, {"BitCast", BitCast, 1, Extents::kAlongAnyAxis}};
  return kTable;
}

}  // namespace temper::onnx_frontend
