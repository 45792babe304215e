#include "cases.h"

#include <limits>
#include <numeric>

#include "ops_testing.h"

namespace temper {
namespace {

using Ints = std::vector<int64_t>;

Shape RandomShape(Rng& rng, int64_t least = 1, int64_t most = 5) {
  Shape shape(static_cast<size_t>(least + rng.Below(most - least + 1)));
  for (int64_t& d : shape) d = 1 + rng.Below(4);
  return shape;
}
DType RandomNumber(Rng& rng) {
  constexpr DType kNumbers[] = {DType::kF32, DType::kF32, DType::kF64, DType::kI64, DType::kI32};
  return kNumbers[rng.Below(5)];
}
// A shape that broadcasts with `shape`: leading axes dropped, others made 1.
Shape Narrowed(Rng& rng, const Shape& shape) {
  Shape result(shape.begin() + rng.Below(static_cast<int64_t>(shape.size()) + 1), shape.end());
  for (int64_t& d : result) d = rng.Below(3) == 0 ? 1 : d;
  return result;
}
int64_t RandomAxis(Rng& rng, const Shape& shape) {
  return rng.Below(2 * static_cast<int64_t>(shape.size())) - static_cast<int64_t>(shape.size());
}
Ints RandomAxes(Rng& rng, const Shape& shape) {
  Ints axes;
  int64_t rank = static_cast<int64_t>(shape.size());
  for (int64_t i = 0; i < rank; ++i) {
    if (rng.Below(2) == 0) axes.push_back(rng.Below(2) == 0 ? i : i - rank);
  }
  return axes;
}

Case Float(Rng& rng) {
  return {{}, {RandomArray(rng, rng.Below(4) == 0 ? DType::kF64 : DType::kF32, RandomShape(rng))}};
}
Case Positive(Rng& rng) { return {{}, {RandomArray(rng, DType::kF32, RandomShape(rng), 0.1, 4)}}; }
Case Number(Rng& rng) { return {{}, {RandomArray(rng, RandomNumber(rng), RandomShape(rng))}}; }
Case Boolean(Rng& rng) { return {{}, {RandomArray(rng, DType::kBool, RandomShape(rng))}}; }
Case Anything(Rng& rng) { return rng.Below(3) == 0 ? Boolean(rng) : Number(rng); }

Case WithFloats(Case c, std::initializer_list<const char*> names, Rng& rng) {
  for (const char* name : names) {
    if (rng.Below(3) > 0) c.attrs.Set(name, rng.Uniform());
  }
  return c;
}
Case Clip(Rng& rng) {
  Case c = Number(rng);
  if (rng.Below(3) > 0) c.attrs.Set("min", -1.0);
  if (rng.Below(3) > 0) c.attrs.Set("max", 1.0);
  return c;
}
Case Alpha(Rng& rng) { return WithFloats(Float(rng), {"alpha"}, rng); }
Case AlphaBeta(Rng& rng) { return WithFloats(Float(rng), {"alpha", "beta"}, rng); }
Case Gelu(Rng& rng) {
  Case c = Float(rng);
  if (rng.Below(2) == 0) c.attrs.Set("approximate", std::string("tanh"));
  return c;
}
Case Cast(Rng& rng) {
  Case c = Anything(rng);
  constexpr const char* kTo[] = {"f32", "f64", "i64", "i32", "bool", "i8"};
  c.attrs.Set("to", std::string(kTo[rng.Below(6)]));
  return c;
}

Case TwoOf(Rng& rng, DType dtype, double low = -2, double high = 2) {
  Shape shape = RandomShape(rng);
  NDArray a = RandomArray(rng, dtype, rng.Below(3) == 0 ? Narrowed(rng, shape) : shape);
  NDArray b = RandomArray(rng, dtype, rng.Below(3) == 0 ? shape : Narrowed(rng, shape), low, high);
  return {{}, {a, b}};
}
Case TwoNumbers(Rng& rng) { return TwoOf(rng, RandomNumber(rng)); }
Case TwoOfAny(Rng& rng) { return rng.Below(3) == 0 ? TwoOf(rng, DType::kBool) : TwoNumbers(rng); }
Case TwoBooleans(Rng& rng) { return TwoOf(rng, DType::kBool); }
Case Divisible(Rng& rng) {
  Case c = TwoNumbers(rng);
  for (int64_t i = 0; i < c.inputs[1].size(); ++i) {
    if (c.inputs[1].At(i) == 0) c.inputs[1].Set(i, i % 2 == 0 ? 3 : -3);
  }
  return c;
}
Case Modulo(Rng& rng) {
  Case c = Divisible(rng);
  bool floats = IsFloat(c.inputs[0].dtype());
  if (floats || rng.Below(2) == 0) c.attrs.Set("fmod", int64_t{1});
  // Quotients away from whole numbers, where a rounding would change them by one.
  for (int64_t i = 0; floats && i < c.inputs[0].size(); ++i)
    c.inputs[0].Set(i, static_cast<double>(rng.Below(40) - 20) + 0.3);
  for (int64_t i = 0; floats && i < c.inputs[1].size(); ++i)
    c.inputs[1].Set(i, (rng.Below(2) == 0 ? -1 : 1) * static_cast<double>(1 + rng.Below(5)));
  return c;
}
Case Power(Rng& rng) {
  Shape shape = RandomShape(rng);
  bool whole = rng.Below(2) == 0;
  DType base = whole ? RandomNumber(rng) : DType::kF32;
  NDArray a = RandomArray(rng, base, shape, whole ? -1 : 0.1, 2);
  NDArray b = RandomArray(rng, whole ? DType::kI64 : DType::kF32, Narrowed(rng, shape), 0, whole ? 1 : 2);
  return {{}, {a, b}};
}
Case PRelu(Rng& rng) {
  Case c = Float(rng);
  c.inputs.push_back(RandomArray(rng, c.inputs[0].dtype(), Narrowed(rng, c.inputs[0].shape())));
  return c;
}
Case Where(Rng& rng) {
  Case c = TwoOfAny(rng);
  c.inputs.insert(c.inputs.begin(), RandomArray(rng, DType::kBool, Narrowed(rng, c.inputs[0].shape())));
  return c;
}

Attrs RandomWindow(Rng& rng, int64_t kh, int64_t kw, int64_t most_pad) {
  Ints pads, strides = {1 + rng.Below(3), 1 + rng.Below(3)}, dilations = {1 + rng.Below(2), 1 + rng.Below(2)};
  for (int i = 0; i < 4; ++i) pads.push_back(rng.Below(std::min(i % 2 == 0 ? kh : kw, most_pad) + 1));
  return MakeAttrs({{"strides", strides}, {"dilations", dilations}, {"pads", pads}});
}
Case Conv(Rng& rng) {
  int64_t group = 1 + rng.Below(3), channels = 1 + rng.Below(3), kh = 1 + rng.Below(3), kw = 1 + rng.Below(3);
  DType dtype = rng.Below(4) == 0 ? DType::kI32 : DType::kF32;
  Case c{RandomWindow(rng, kh, kw, 2),
         {RandomArray(rng, dtype, {1 + rng.Below(2), group * channels, 5 + rng.Below(3), 5 + rng.Below(3)}),
          RandomArray(rng, dtype, {group * (1 + rng.Below(3)), channels, kh, kw})}};
  c.attrs.Set("group", group);
  return c;
}
Case ConvTranspose(Rng& rng) {
  int64_t group = 1 + rng.Below(2), channels = 1 + rng.Below(3), kh = 2 + rng.Below(2), kw = 2 + rng.Below(2);
  Case c{RandomWindow(rng, kh, kw, 1),
         {RandomArray(rng, DType::kF32, {1 + rng.Below(2), group * channels, 2 + rng.Below(3), 2 + rng.Below(3)}),
          RandomArray(rng, DType::kF32, {group * channels, 1 + rng.Below(3), kh, kw})}};
  c.attrs.Set("group", group);
  Ints strides = c.attrs.Ints("strides");
  c.attrs.Set("output_padding", Ints{rng.Below(strides[0]), rng.Below(strides[1])});
  return c;
}
Case Matmul(Rng& rng) {
  Shape batch = RandomShape(rng, 1, 3), a = Narrowed(rng, batch), b = rng.Below(2) == 0 ? batch : Narrowed(rng, batch);
  int64_t m = 1 + rng.Below(4), n = 1 + rng.Below(4), k = 1 + rng.Below(5), trans_a = rng.Below(2),
          trans_b = rng.Below(2);
  for (int64_t d : trans_a == 1 ? Ints{k, m} : Ints{m, k}) a.push_back(d);
  for (int64_t d : trans_b == 1 ? Ints{n, k} : Ints{k, n}) b.push_back(d);
  DType dtype = RandomNumber(rng);
  return {MakeAttrs({{"trans_a", trans_a}, {"trans_b", trans_b}}),
          {RandomArray(rng, dtype, a), RandomArray(rng, dtype, b)}};
}
Case MatmulNBitsOf(Rng& rng, bool bytes) {
  const int64_t per_byte = 1 + rng.Below(2), blocks = 1 + rng.Below(3), block = 2 * (1 + rng.Below(4));
  const int64_t depth = blocks * block, columns = 1 + rng.Below(5);
  Shape x = RandomShape(rng, 2, 3);
  x.back() = depth;
  NDArray numbers(DType::kU8, {depth / per_byte, columns});
  for (int64_t i = 0; i < numbers.size(); ++i) numbers.Set(i, static_cast<double>(rng.Below(256)));
  Case c{{},
         {RandomArray(rng, bytes ? DType::kI8 : DType::kF32, x), numbers,
          RandomArray(rng, DType::kF32, {blocks, columns})}};
  x.back() = blocks;
  if (bytes) c.inputs.push_back(RandomArray(rng, DType::kF32, x));
  if (rng.Below(2) == 0) {
    c.inputs.push_back(RandomArray(rng, DType::kF32, {blocks, columns}));
  } else {
    c.attrs.Set("zero", rng.Below(256));
  }
  return c;
}
Case MatmulNBits(Rng& rng) { return MatmulNBitsOf(rng, false); }
Case MatmulNBitsI8(Rng& rng) { return MatmulNBitsOf(rng, true); }
Case Pool(Rng& rng, DType dtype) {
  int64_t kh = 1 + rng.Below(3), kw = 1 + rng.Below(3);
  Case c{RandomWindow(rng, kh - 1, kw - 1, 2),
         {RandomArray(rng, dtype, {1 + rng.Below(2), 1 + rng.Below(3), 5 + rng.Below(4), 5 + rng.Below(4)})}};
  c.attrs.Set("kernel", Ints{kh, kw});
  c.attrs.Set("ceil_mode", rng.Below(2));
  return c;
}
Case MaxPool(Rng& rng) { return Pool(rng, RandomNumber(rng)); }
Case AvgPool(Rng& rng) {
  Case c = Pool(rng, DType::kF32);
  c.attrs.Set("count_include_pad", rng.Below(2));
  return c;
}
Case Reduce(Rng& rng) {
  Case c = Number(rng);
  Ints axes = RandomAxes(rng, c.inputs[0].shape());
  if (!axes.empty()) c.attrs.Set("axes", axes);
  c.attrs.Set("keepdims", rng.Below(2));
  return c;
}
Case ReduceFloat(Rng& rng) {
  Case c = Reduce(rng);
  c.inputs[0] = RandomArray(rng, DType::kF32, c.inputs[0].shape());
  return c;
}
Case Axis(Case c, Rng& rng) {
  c.attrs.Set("axis", RandomAxis(rng, c.inputs[0].shape()));
  return c;
}
// Of few values, so that many are equal; of floats some are no numbers, or infinite.
Case Arg(Rng& rng) {
  Case c = Axis(Number(rng), rng);
  NDArray& x = c.inputs[0];
  constexpr double kInfinity = std::numeric_limits<double>::infinity(), kNan = std::numeric_limits<double>::quiet_NaN();
  const double odd[] = {kNan, kInfinity, -kInfinity};
  for (int64_t i = 0; i < x.size(); ++i) {
    const bool number = !IsFloat(x.dtype()) || rng.Below(4) > 0;
    x.Set(i, number ? static_cast<double>(rng.Below(5) - 2) : odd[rng.Below(3)]);
  }
  c.attrs.Set("keepdims", rng.Below(2));
  if (rng.Below(2) == 0) c.attrs.Set("select_last_index", rng.Below(2));
  return c;
}
Case Softmax(Rng& rng) { return Axis(Float(rng), rng); }
Case LayerNorm(Rng& rng) {
  Case c = Axis(Float(rng), rng);
  DType dtype = c.inputs[0].dtype();
  const Shape shape = c.inputs[0].shape();
  int64_t axis = c.attrs.Int("axis", 0), first = axis < 0 ? axis + static_cast<int64_t>(shape.size()) : axis;
  Shape normalized(shape.begin() + first, shape.end());
  c.inputs.push_back(RandomArray(rng, dtype, normalized));
  if (rng.Below(2) == 0) c.inputs.push_back(RandomArray(rng, dtype, normalized));
  c.attrs.Set("epsilon", 0.01);
  return c;
}
Case PerChannel(Rng& rng, int parameters, int64_t least_rank) {
  Shape shape = RandomShape(rng, least_rank);
  Case c{MakeAttrs({{"epsilon", 0.01}}), {RandomArray(rng, DType::kF32, shape)}};
  for (int i = 0; i < parameters; ++i) c.inputs.push_back(RandomArray(rng, DType::kF32, {shape[1]}, 0.1, 2));
  return c;
}
Case GroupNorm(Rng& rng) {
  Case c = PerChannel(rng, 2, 3);
  const int64_t channels = c.inputs[0].shape()[1], groups = 1 + rng.Below(channels);
  if (channels % groups == 0) c.attrs.Set("groups", groups);
  return c;
}
Case BatchNorm(Rng& rng) { return PerChannel(rng, 4, 2); }

Case Reshape(Rng& rng) {
  Case c = Anything(rng);
  Ints factors;
  for (int64_t d : c.inputs[0].shape()) {
    if (d == 4)
      factors.insert(factors.end(), {2, 2});
    else
      factors.push_back(d);
  }
  for (size_t i = factors.size(); rng.Below(3) > 0 && i > 1; --i)
    std::swap(factors[i - 1], factors[static_cast<size_t>(rng.Below(static_cast<int64_t>(i)))]);
  Ints shape;
  for (int64_t f : factors) {
    if (!shape.empty() && rng.Below(2) == 0)
      shape.back() *= f;
    else
      shape.push_back(f);
  }
  if (rng.Below(3) == 0) shape[static_cast<size_t>(rng.Below(static_cast<int64_t>(shape.size())))] = -1;
  c.attrs.Set("shape", shape);
  return c;
}
Case Transpose(Rng& rng) {
  Case c = Anything(rng);
  Ints perm(c.inputs[0].shape().size());
  std::iota(perm.begin(), perm.end(), 0);
  for (size_t i = perm.size(); i > 1; --i)
    std::swap(perm[i - 1], perm[static_cast<size_t>(rng.Below(static_cast<int64_t>(i)))]);
  c.attrs.Set("perm", perm);
  return c;
}
Case Concat(Rng& rng) {
  Case c = Axis(Anything(rng), rng);
  Shape shape = c.inputs[0].shape();
  int64_t axis = c.attrs.Int("axis", 0);
  for (int64_t more = rng.Below(4); more > 0; --more) {
    shape[static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(shape.size()) : axis)] = 1 + rng.Below(3);
    c.inputs.push_back(RandomArray(rng, c.inputs[0].dtype(), shape));
  }
  return c;
}
Case Slice(Rng& rng) {
  Case c = Anything(rng);
  Ints axes = RandomAxes(rng, c.inputs[0].shape()), starts, ends, steps;
  for (size_t i = 0; i < axes.size(); ++i) {
    steps.push_back(rng.Below(2) == 0 ? 1 + rng.Below(3) : -1 - rng.Below(3));
    starts.push_back(rng.Below(8) - 4);
    ends.push_back(steps[i] > 0 ? (rng.Below(3) == 0 ? INT64_MAX : rng.Below(8) - 1)
                                : (rng.Below(3) == 0 ? INT64_MIN : rng.Below(8) - 6));
  }
  if (!axes.empty()) c.attrs = MakeAttrs({{"axes", axes}, {"starts", starts}, {"ends", ends}, {"steps", steps}});
  return c;
}
Case Pad(Rng& rng) {
  Case c = Anything(rng);
  constexpr const char* kModes[] = {"constant", "reflect", "edge"};
  Ints pads;
  for (int side = 0; side < 2; ++side) {
    for (int64_t d : c.inputs[0].shape()) pads.push_back(d > 2 && rng.Below(5) == 0 ? -1 : rng.Below(d));
  }
  c.attrs = MakeAttrs({{"pads", pads}, {"mode", std::string(kModes[rng.Below(3)])}});
  if (rng.Below(2) == 0) c.attrs.Set("value", 1.0);
  return c;
}
Case Gather(Rng& rng) {
  Case c = Axis(Anything(rng), rng);
  NDArray indices =
      RandomArray(rng, rng.Below(2) == 0 ? DType::kI64 : DType::kI32, Narrowed(rng, RandomShape(rng, 1, 2)));
  c.inputs.push_back(indices);
  return c;
}
Case GatherElements(Rng& rng) {
  Case c = Axis(Anything(rng), rng);
  const Shape& shape = c.inputs[0].shape();
  const int64_t stated = c.attrs.Int("axis", 0), axis = stated < 0 ? stated + std::ssize(shape) : stated;
  Shape indices = shape;
  for (int64_t d = 0; d < std::ssize(shape); ++d)
    indices[static_cast<size_t>(d)] = 1 + rng.Below(d == axis ? 7 : shape[static_cast<size_t>(d)]);
  c.inputs.push_back(RandomArray(rng, rng.Below(2) == 0 ? DType::kI64 : DType::kI32, indices));
  return c;
}
// Of few different elements, so that many are equal, and some no numbers.
Case TopK(Rng& rng) {
  Case c = Arg(rng);
  c.attrs = MakeAttrs({{"k", 1 + rng.Below(c.inputs[0].shape().back())}, {"largest", rng.Below(2)}});
  return c;
}
// On a coarse grid, so that boxes overlap by halves and thirds, or are the same; scores are often equal.
Case Suppression(Rng& rng) {
  const int64_t images = 1 + rng.Below(2), classes = 1 + rng.Below(3), count = 1 + rng.Below(9);
  Case c{{},
         {NDArray(DType::kF32, {images, 4, count}), NDArray(DType::kF32, {images, classes, count}),
          NDArray(DType::kF32, {1}), NDArray(DType::kF32, {1})}};
  for (int64_t i = 0; i < images * count; ++i) {
    const int64_t first = i / count * 4 * count + i % count;
    for (int64_t axis = 0; axis < 2; ++axis) {
      const double low = static_cast<double>(rng.Below(4));
      c.inputs[0].Set(first + axis * count, low);
      c.inputs[0].Set(first + (axis + 2) * count, low + static_cast<double>(rng.Below(4)));
    }
  }
  for (int64_t i = 0; i < c.inputs[1].size(); ++i)
    c.inputs[1].Set(i, rng.Below(10) == 0 ? std::nan("") : static_cast<double>(rng.Below(8)));
  c.inputs[2].Set(0, static_cast<double>(rng.Below(4)) / 4);
  c.inputs[3].Set(0, static_cast<double>(rng.Below(5)) - 1);
  c.attrs.Set("k", 1 + rng.Below(std::min<int64_t>(count, 4)));
  return c;
}
Case CumSum(Rng& rng) {
  Case c = Axis(Number(rng), rng);
  c.attrs.Set("exclusive", rng.Below(2));
  c.attrs.Set("reverse", rng.Below(2));
  return c;
}
// Places are named more than once, and some are outside.
Case Updates(Case c, Rng& rng) {
  c = Axis(std::move(c), rng);
  const Shape& data = c.inputs[0].shape();
  const auto rank = static_cast<int64_t>(data.size());
  const int64_t axis = (c.attrs.Int("axis", 0) + rank) % rank, number = 1 + rng.Below(6);
  Shape places(data.begin(), data.begin() + axis), updates = data;
  places.push_back(number);
  updates[static_cast<size_t>(axis)] = number;
  NDArray at(rng.Below(2) == 0 ? DType::kI64 : DType::kI32, places);
  for (int64_t i = 0; i < at.size(); ++i) at.Set(i, static_cast<double>(rng.Below(6) - 1));
  const DType dtype = c.inputs[0].dtype();
  c.inputs.push_back(std::move(at));
  c.inputs.push_back(RandomArray(rng, dtype, updates));
  return c;
}
Case Scatter(Rng& rng) { return Updates(Anything(rng), rng); }
Case ScatterReduce(Rng& rng) {
  Case c = Updates(Number(rng), rng);
  constexpr const char* kReductions[] = {"sum", "product", "least", "largest"};
  c.attrs.Set("reduction", std::string(kReductions[rng.Below(4)]));
  return c;
}
Case Expand(Rng& rng) {
  Shape shape = RandomShape(rng);
  return {MakeAttrs({{"shape", Ints(shape)}}), {RandomArray(rng, RandomNumber(rng), Narrowed(rng, shape))}};
}
Case Tile(Rng& rng) {
  Case c = Anything(rng);
  Ints repeats;
  for (size_t i = 0; i < c.inputs[0].shape().size(); ++i) repeats.push_back(1 + rng.Below(2));
  c.attrs.Set("repeats", repeats);
  return c;
}
Case DepthToSpace(Rng& rng) {
  const int64_t block = 1 + rng.Below(3), width = 1 + rng.Below(3);
  return {MakeAttrs({{"blocksize", block}, {"width", width}, {"mode", std::string(rng.Below(2) == 0 ? "DCR" : "CRD")}}),
          {RandomArray(rng, DType::kF32,
                       {1 + rng.Below(2), block * width * (1 + rng.Below(2)), 1 + rng.Below(3), 1 + rng.Below(3)})}};
}
Case Compact(Rng& rng) {
  Case c = Anything(rng);
  NDArray extent(DType::kI64, {});
  extent.Set(0, static_cast<double>(rng.Below(7) - 1));
  c.attrs.Set("axis", RandomAxis(rng, c.inputs[0].shape()));
  c.inputs.push_back(extent);
  return c;
}
Case UnfoldPlanes(Rng& rng) {
  const int64_t depth = 1 + rng.Below(4), taps = 1 + rng.Below(3), dilation = 1 + rng.Below(2),
                group = 1 + rng.Below(2);
  const int64_t reach = (taps - 1) * dilation, before = rng.Below(reach + 3) - 1;
  return {MakeAttrs({{"depth", depth},
                     {"taps", taps},
                     {"stride", 1 + rng.Below(2)},
                     {"dilation", dilation},
                     {"group", group},
                     {"pads", Ints{before, reach - before}}}),
          {RandomArray(rng, RandomNumber(rng),
                       {depth * (1 + rng.Below(2)), group * (1 + rng.Below(3)), 1 + rng.Below(3), 1 + rng.Below(3)})}};
}
Case Resize(Rng& rng) {
  Case c = Float(rng);
  constexpr const char* kCoordinates[] = {"half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners"};
  constexpr const char* kNearest[] = {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"};
  Ints sizes;
  for (int64_t d : c.inputs[0].shape()) sizes.push_back(rng.Below(2) == 0 ? d : 1 + rng.Below(7));
  c.attrs = MakeAttrs({{"sizes", sizes},
                       {"mode", std::string(rng.Below(2) == 0 ? "linear" : "nearest")},
                       {"coordinate_transformation_mode", std::string(kCoordinates[rng.Below(4)])},
                       {"nearest_mode", std::string(kNearest[rng.Below(4)])}});
  return c;
}

}  // namespace

const std::map<std::string_view, Generator>& CaseGenerators() {
  static const std::map<std::string_view, Generator> generators = {
      {"relu", Number},
      {"sigmoid", Float},
      {"silu", Float},
      {"tanh", Float},
      {"erf", Float},
      {"exp", Float},
      {"log", Positive},
      {"sqrt", Positive},
      {"neg", Number},
      {"abs", Number},
      {"floor", Float},
      {"ceil", Float},
      {"round", Float},
      {"sin", Float},
      {"cos", Float},
      {"reciprocal", Positive},
      {"not", Boolean},
      {"identity", Anything},
      {"layout_copy", Anything},
      {"clip", Clip},
      {"leaky_relu", Alpha},
      {"elu", Alpha},
      {"hard_sigmoid", AlphaBeta},
      {"hard_swish", Float},
      {"softplus", Float},
      {"gelu", Gelu},
      {"cast", Cast},
      {"add", TwoNumbers},
      {"sub", TwoNumbers},
      {"mul", TwoNumbers},
      {"div", Divisible},
      {"pow", Power},
      {"min", TwoNumbers},
      {"max", TwoNumbers},
      {"mod", Modulo},
      {"prelu", PRelu},
      {"equal", TwoOfAny},
      {"less", TwoNumbers},
      {"less_equal", TwoNumbers},
      {"greater", TwoNumbers},
      {"greater_equal", TwoNumbers},
      {"and", TwoBooleans},
      {"or", TwoBooleans},
      {"where", Where},
      {"conv2d", Conv},
      {"conv_transpose2d", ConvTranspose},
      {"matmul", Matmul},
      {"matmul_nbits", MatmulNBits},
      {"matmul_nbits_i8", MatmulNBitsI8},
      {"max_pool2d", MaxPool},
      {"avg_pool2d", AvgPool},
      {"reduce_sum", Reduce},
      {"reduce_mean", Reduce},
      {"reduce_max", Reduce},
      {"reduce_min", Reduce},
      {"reduce_prod", Reduce},
      {"reduce_l2", ReduceFloat},
      {"arg_max", Arg},
      {"arg_min", Arg},
      {"softmax", Softmax},
      {"log_softmax", Softmax},
      {"layer_norm", LayerNorm},
      {"group_norm", GroupNorm},
      {"batch_norm", BatchNorm},
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
      {"resize", Resize},
      {"top_k", TopK},
      {"cum_sum", CumSum},
      {"scatter", Scatter},
      {"compact", Compact},
      {"scatter_reduce", ScatterReduce},
      {"non_max_suppression", Suppression},
  };
  return generators;
}

}  // namespace temper
