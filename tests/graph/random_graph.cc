#include "tests/graph/random_graph.h"

#include <algorithm>
#include <numeric>

#include "tests/graph/builder.h"

namespace temper::testing {
namespace {

using Ints = std::vector<int64_t>;

class Generator {
 public:
  explicit Generator(uint64_t seed) : b_(seed) {}

  Graph Make(int nodes) {
    const int inputs = 1 + static_cast<int>(Below(2));
    for (int i = 0; i < inputs; ++i) pool_.push_back(b_.Input(Below(2) == 0 ? Image() : AnyShape()));
    for (int i = 0; i < nodes; ++i) Step();
    const int outputs = 1 + static_cast<int>(Below(3));
    for (int i = 0; i < outputs; ++i) {
      const ValueId v = i == 0 ? pool_.back() : Pick();
      const bool taken = std::find(b_.g.outputs.begin(), b_.g.outputs.end(), v) != b_.g.outputs.end();
      const bool is_input = std::find(b_.g.inputs.begin(), b_.g.inputs.end(), v) != b_.g.inputs.end();
      if (!taken && !is_input) b_.Output(v);
    }
    if (b_.g.outputs.empty()) b_.Output(b_.Call("identity", {pool_[0]}));
    return std::move(b_.g);
  }

 private:
  int64_t Below(int64_t n) { return b_.rng.Below(n); }
  Shape AnyShape() {
    Shape shape(static_cast<size_t>(1 + Below(5)));
    for (int64_t& d : shape) d = 1 + Below(4);
    return shape;
  }
  Shape Image() { return {1 + Below(2), 1 + Below(5), 3 + Below(5), 3 + Below(5)}; }
  const Shape& ShapeOf(ValueId v) const { return b_.g.values[v].type.shape; }
  int64_t Rank(ValueId v) const { return static_cast<int64_t>(ShapeOf(v).size()); }
  // Recent values more often, so that chains get long.
  ValueId Pick() {
    const int64_t n = static_cast<int64_t>(pool_.size());
    return pool_[static_cast<size_t>(Below(3) == 0 ? Below(n) : n - 1 - Below(std::min<int64_t>(n, 2)))];
  }
  int64_t AxisOf(ValueId v) { return Below(Rank(v)); }
  void Push(ValueId v) {
    if (NumElements(ShapeOf(v)) <= 4096 && !ShapeOf(v).empty()) pool_.push_back(v);
  }

  void Step() {
    using Rule = void (Generator::*)(ValueId);
    static constexpr Rule kRules[] = {
        &Generator::Unary,     &Generator::Unary,      &Generator::WithConstant,  &Generator::WithConstant,
        &Generator::WithOther, &Generator::Gate,       &Generator::Concat,        &Generator::Softmax,
        &Generator::Reduce,    &Generator::Slice,      &Generator::Reshape,       &Generator::Transpose,
        &Generator::Transpose, &Generator::Pad,        &Generator::Dense,         &Generator::Product,
        &Generator::Conv,      &Generator::Conv,       &Generator::ConvTranspose, &Generator::Pool,
        &Generator::BatchNorm, &Generator::LayerNorm,  &Generator::Flatten,       &Generator::SplitDense,
        &Generator::SplitConv, &Generator::ScaledConv, &Generator::Gather,        &Generator::Residual,
        &Generator::Branches,  &Generator::GroupNorm,  &Generator::FlatRows};
    (this->*kRules[Below(std::size(kRules))])(Pick());
  }

  void Unary(ValueId v) {
    static constexpr const char* kOps[] = {"relu", "sigmoid", "tanh", "neg", "abs", "identity", "hard_swish"};
    Push(b_.Call(kOps[Below(std::size(kOps))], {v}));
  }
  // A constant that broadcasts: full, per some axes, of lower rank, or a scalar.
  Shape BroadcastShape(const Shape& full) {
    Shape shape = full;
    for (int64_t& d : shape) d = Below(2) == 0 ? 1 : d;
    shape.erase(shape.begin(), shape.begin() + Below(static_cast<int64_t>(shape.size()) + 1));
    return Below(4) == 0 ? full : shape;
  }
  void WithConstant(ValueId v) {
    static constexpr const char* kOps[] = {"add", "mul", "sub", "div", "min", "max"};
    const char* op = kOps[Below(std::size(kOps))];
    const ValueId c = b_.Random(BroadcastShape(ShapeOf(v)), 0.5, 1.5);
    const bool swapped = Below(3) == 0 && std::string_view(op) != "div";
    Push(swapped ? b_.Call(op, {c, v}) : b_.Call(op, {v, c}));
  }
  void WithOther(ValueId v) {
    for (ValueId w : pool_) {
      if (w != v && ShapeOf(w) == ShapeOf(v)) return Push(b_.Call(Below(2) == 0 ? "add" : "mul", {v, w}));
    }
    Push(b_.Call("mul", {v, v}));
  }
  void Gate(ValueId v) { Push(b_.Call("mul", {v, b_.Call("sigmoid", {v})})); }
  void Residual(ValueId v) {
    ValueId w = b_.Call("tanh", {v});
    for (int64_t n = Below(3); n > 0; --n) w = b_.Call("mul", {w, b_.Random({})});
    Push(b_.Call("add", {v, w}));
  }
  void Concat(ValueId v) {
    const int64_t axis = AxisOf(v);
    Shape other = ShapeOf(v);
    other[static_cast<size_t>(axis)] = 1 + Below(3);
    if (Below(2) == 0) {  // of what nothing else reads
      Push(b_.Call("concat", {b_.Call("tanh", {v}), b_.Call("sigmoid", {v})}, Builder::Int("axis", axis)));
      return;
    }
    Push(
        b_.Call("concat", {v, Below(2) == 0 ? b_.Random(other) : b_.Call("relu", {v}), v}, Builder::Int("axis", axis)));
  }
  void Softmax(ValueId v) {
    Push(b_.Call(Below(4) == 0 ? "log_softmax" : "softmax", {v}, Builder::Int("axis", AxisOf(v))));
  }
  void Reduce(ValueId v) {
    static constexpr const char* kOps[] = {"reduce_mean", "reduce_sum", "reduce_max", "reduce_min"};
    Ints axes;
    for (int64_t a = 0; a < Rank(v); ++a) {
      if (Below(2) == 0) axes.push_back(a);
    }
    if (axes.empty()) axes.push_back(AxisOf(v));
    Attrs attrs = Builder::Ints("axes", axes);
    attrs.Set("keepdims", Below(2));
    Push(b_.Call(kOps[Below(std::size(kOps))], {v}, std::move(attrs)));
  }
  ValueId SliceAxis(ValueId v, int64_t axis, int64_t start, int64_t end, int64_t step) {
    Attrs attrs = Builder::Ints("axes", {axis});
    attrs.Set("starts", Ints{start});
    attrs.Set("ends", Ints{end});
    attrs.Set("steps", Ints{step});
    return b_.Call("slice", {v}, std::move(attrs));
  }
  void Slice(ValueId v) {
    const int64_t axis = AxisOf(v), extent = ShapeOf(v)[static_cast<size_t>(axis)];
    const int64_t start = Below(extent), end = start + 1 + Below(extent - start);
    Push(Below(4) == 0 ? SliceAxis(v, axis, -1, -1 - extent, -1) : SliceAxis(v, axis, start, end, 1 + Below(2)));
  }
  void Reshape(ValueId v) {
    // Dimensions are merged and split at random.
    Shape shape = ShapeOf(v);
    for (int n = 0; n < 3; ++n) {
      const size_t at = static_cast<size_t>(Below(static_cast<int64_t>(shape.size())));
      if (Below(2) == 0 && at + 1 < shape.size()) {
        shape[at] *= shape[at + 1];
        shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(at) + 1);
      } else if (shape.size() < 5) {
        int64_t factor = 1 + Below(4);
        if (shape[at] % factor != 0) factor = Below(2) == 0 ? 1 : shape[at];
        shape[at] /= factor;
        shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(at) + Below(2), factor);
      }
    }
    Push(b_.Reshape(v, shape));
  }
  void Flatten(ValueId v) {
    const size_t axis = static_cast<size_t>(Below(Rank(v) + 1));
    const std::span<const int64_t> dims(ShapeOf(v));
    const ValueId flat = b_.Reshape(v, {NumElements(dims.first(axis)), NumElements(dims.subspan(axis))});
    Push(Below(2) == 0 ? flat : b_.Call("matmul", {flat, b_.Random({ShapeOf(flat)[1], 1 + Below(4)})}));
  }
  void Transpose(ValueId v) {
    Ints perm(static_cast<size_t>(Rank(v)));
    std::iota(perm.begin(), perm.end(), 0);
    for (size_t i = perm.size(); i > 1; --i)
      std::swap(perm[i - 1], perm[static_cast<size_t>(Below(static_cast<int64_t>(i)))]);
    Push(b_.Transpose(v, perm));
  }
  void Pad(ValueId v) {
    Ints pads(static_cast<size_t>(2 * Rank(v)), 0);
    pads[static_cast<size_t>(Below(2 * Rank(v)))] = 1 + Below(2);
    Attrs attrs = Builder::Ints("pads", pads);
    attrs.Set("value", Below(2) == 0 ? 0.0 : 0.5);
    Push(b_.Call("pad", {v}, std::move(attrs)));
  }
  void Dense(ValueId v) {
    if (Rank(v) < 2) return;
    const bool trans = Below(2) == 0;
    const int64_t k = ShapeOf(v).back(), n = 1 + Below(5);
    const ValueId w = trans ? b_.Random({n, k}) : b_.Random({k, n});
    ValueId y = b_.Call("matmul", {v, w}, trans ? Builder::Int("trans_b", 1) : Attrs());
    if (Below(2) == 0) y = b_.Call("add", {y, b_.Random({n})});
    Push(Below(2) == 0 ? b_.Call("mul", {y, b_.Random(Below(2) == 0 ? Shape{n} : Shape{})}) : y);
  }
  // Of two activations: the value with its own transpose, as attention has it.
  void Product(ValueId v) {
    if (Rank(v) < 2) return;
    Ints swap(static_cast<size_t>(Rank(v)));
    std::iota(swap.begin(), swap.end(), 0);
    std::swap(swap[swap.size() - 1], swap[swap.size() - 2]);
    const ValueId scaled = b_.Call("mul", {v, b_.Scalar(0.25)});
    const ValueId scores = b_.Call("matmul", {scaled, b_.Transpose(v, swap)});
    Push(b_.Call("matmul", {b_.Call("softmax", {scores}, Builder::Int("axis", Rank(v) - 1)), v}));
  }
  void SplitDense(ValueId v) {
    if (Rank(v) < 2 || Rank(v) > 4) return;
    const int64_t d = 1 + Below(3);
    ValueId y = b_.Call("matmul", {v, b_.Random({ShapeOf(v).back(), 3 * d})});
    if (Below(2) == 0) y = b_.Call("add", {y, b_.Random({3 * d})});
    Shape cut = ShapeOf(v);
    cut.back() = 3;
    cut.push_back(d);
    y = b_.Reshape(y, cut);
    const int64_t axis = Rank(v) - 1;
    const ValueId q = SliceAxis(y, axis, 0, 1, 1), k = SliceAxis(y, axis, 1, 3, 1);
    Push(b_.Call("tanh", {q}));
    Push(k);
  }
  ValueId AsImage(ValueId v) {
    if (Rank(v) == 4) return v;
    const std::span<const int64_t> dims(ShapeOf(v));
    return b_.Reshape(v, {1, dims[0], NumElements(dims.subspan(1)), 1});
  }
  void Conv(ValueId v) {
    v = AsImage(v);
    const Shape x = ShapeOf(v);
    const bool depthwise = Below(3) == 0;
    const int64_t kernel = Below(2) == 0 ? 1 : 3, out = depthwise ? x[1] : 1 + Below(6);
    if (kernel == 3 && Below(2) == 0) {
      Attrs attrs = Builder::Ints("pads", {0, 0, 1, 1, 0, 0, 1, 1});
      v = b_.Call("pad", {v}, std::move(attrs));
    }
    ValueId y = b_.Conv(v, b_.Random({out, depthwise ? 1 : x[1], kernel, kernel}), kernel / 2, depthwise ? x[1] : 1);
    if (Below(2) == 0) y = b_.Call("add", {y, b_.Random({out, 1, 1})});
    Push(y);
  }
  void ScaledConv(ValueId v) {
    v = AsImage(v);
    const int64_t c = ShapeOf(v)[1];
    Conv(b_.Call("mul", {v, b_.Random(Below(3) == 0 ? Shape{} : Shape{c, 1, 1}, 0.5, 1.5)}));
  }
  // Channels cut apart after a reshape that need not keep them whole.
  void SplitConv(ValueId v) {
    v = AsImage(v);
    const Shape x = ShapeOf(v);
    const ValueId y = b_.Conv(v, b_.Random({4, x[1], 1, 1}));
    const int64_t pixels = x[2] * x[3], factor = pixels % 2 == 0 && Below(2) == 0 ? 2 : 1;
    const ValueId flat = b_.Reshape(y, {x[0], 4 * factor, pixels / factor});
    const int64_t at = 1 + Below(4 * factor - 1);
    Push(b_.Call("tanh", {SliceAxis(flat, 1, 0, at, 1)}));
    Push(SliceAxis(flat, 1, at, 4 * factor, 1));
  }
  void ConvTranspose(ValueId v) {
    v = AsImage(v);
    const int64_t kernel = 2 + Below(2);
    Attrs attrs = Builder::Ints("strides", {2, 2});
    Push(b_.Call("conv_transpose2d", {v, b_.Random({ShapeOf(v)[1], 1 + Below(4), kernel, kernel})}, std::move(attrs)));
  }
  void Pool(ValueId v) {
    v = AsImage(v);
    if (ShapeOf(v)[2] < 2 || ShapeOf(v)[3] < 2) return;
    Attrs attrs = Builder::Ints("kernel", {2, 2});
    attrs.Set("strides", Ints{1 + Below(2), 1});
    Push(b_.Call(Below(2) == 0 ? "max_pool2d" : "avg_pool2d", {v}, std::move(attrs)));
  }
  void BatchNorm(ValueId v) {
    if (Rank(v) < 2) return;
    const Shape c = {ShapeOf(v)[1]};
    Push(b_.Call("batch_norm", {v, b_.Random(c, 0.5, 1.5), b_.Random(c), b_.Random(c), b_.Random(c, 0.5, 1.5)}));
  }
  void LayerNorm(ValueId v) {
    Attrs attrs = Builder::Ints("axes", {Rank(v) - 1});
    const ValueId d = b_.Call("sub", {v, b_.Call("reduce_mean", {v}, attrs)});
    const ValueId variance = b_.Call("reduce_mean", {b_.Call("pow", {d, b_.Scalar(2)})}, attrs);
    ValueId y = b_.Call("div", {d, b_.Call("sqrt", {b_.Call("add", {variance, b_.Scalar(0.01)})})});
    if (Below(2) == 0) y = b_.Call("mul", {y, b_.Random({ShapeOf(v).back()})});
    if (Below(2) == 0) y = b_.Call("add", {y, b_.Random({ShapeOf(v).back()})});
    Push(y);
  }
  // Convolutions of one image, which may be like each other in all but their filters, and the image itself.
  void Branches(ValueId v) {
    v = AsImage(v);
    const Shape x = ShapeOf(v);
    const int64_t group = Below(2) == 0 ? 1 : x[1], dilation = 1 + Below(2);
    ValueId sum = kNoValue;
    for (int64_t i = 2 + Below(2); i > 0; --i) {
      const int64_t kernel = 1 + 2 * Below(2), step = Below(4) == 0 ? 1 : dilation, pad = step * (kernel / 2);
      Attrs attrs = Builder::Ints("pads", {pad, pad, pad, pad});
      attrs.Set("dilations", Ints{step, step});
      attrs.Set("group", group);
      const ValueId y = Below(3) == 0 ? b_.Call("mul", {v, b_.Random({x[1], 1, 1})})
                                      : b_.Call("conv2d", {v, b_.Random({x[1], x[1] / group, kernel, kernel})}, attrs);
      const ValueId biased = Below(2) == 0 ? y : b_.Call("add", {y, b_.Random({x[1], 1, 1})});
      sum = sum == kNoValue ? biased : b_.Call(Below(3) == 0 ? "sub" : "add", {sum, biased});
      if (Below(6) == 0) Push(y);
    }
    Push(sum);
  }
  void GroupNorm(ValueId v) {
    v = AsImage(v);
    const Shape x = ShapeOf(v);
    const int64_t channels = x[1], drawn = 1 + Below(channels), groups = channels % drawn == 0 ? drawn : 1;
    ValueId y = b_.Reshape(v, {x[0], groups, NumElements(x) / (x[0] * groups)});
    y = b_.Call("group_norm", {y, b_.Random({groups}), b_.Random({groups})});
    Push(b_.Reshape(y, x));
  }
  void FlatRows(ValueId v) {
    if (Rank(v) < 2) return;
    Shape shape = ShapeOf(v);
    const int64_t in = shape.back(), out = 1 + Below(5);
    ValueId y = b_.Call("matmul", {b_.Reshape(v, {NumElements(shape) / in, in}), b_.Random({in, out})});
    if (Below(2) == 0) y = b_.Call("add", {y, b_.Random({out})});
    shape.back() = out;
    Push(b_.Reshape(y, shape));
  }
  void Gather(ValueId v) {
    const int64_t axis = AxisOf(v), extent = ShapeOf(v)[static_cast<size_t>(axis)];
    NDArray at(DType::kI64, Below(2) == 0 ? Shape{} : Shape{2});
    for (int64_t i = 0; i < at.size(); ++i) at.Set(i, static_cast<double>(Below(extent)));
    Push(b_.Call("gather", {v, b_.Constant(at)}, Builder::Int("axis", axis)));
  }

  Builder b_;
  std::vector<ValueId> pool_;
};

}  // namespace

Graph RandomGraph(uint64_t seed, int nodes) { return Generator(seed).Make(nodes); }

}  // namespace temper::testing
