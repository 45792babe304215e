#include "cost_model/training_shapes.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "compiler/ops/op.h"

namespace temper {

// Generated from bench/shapes.txt.
const char* BenchShapesText();

namespace {

constexpr double kNear = 1.25;
constexpr double kLeastFlops = 5e5, kMostFlops = 5e8;

std::string Tensor(const std::vector<int64_t>& shape) {
  std::string text = "f32[";
  for (size_t i = 0; i < shape.size(); ++i) absl::StrAppend(&text, i > 0 ? "," : "", shape[i]);
  return text + "]";
}

// A convolution of `channels` inputs to as many outputs as `filter` says, half of them with a relu.
std::string ConvText(int64_t batch, int64_t channels, int64_t side, const std::vector<int64_t>& filter, int64_t groups,
                     int64_t stride, bool relu) {
  const int64_t kernel = filter[2], pad = kernel / 2, out_side = (side + 2 * pad - kernel) / stride + 1;
  const std::string out = Tensor({batch, filter[0], out_side, out_side}) + "@0231";
  return absl::StrCat("(", Tensor({batch, channels, side, side}), "@0231, const ", Tensor(filter),
                      ") conv2d(0,1; dilations=[1,1] group=", groups, " pads=[", pad, ",", pad, ",", pad, ",", pad,
                      "] strides=[", stride, ",", stride, "]) -> ", out, relu ? absl::StrCat("; relu(2) -> ", out) : "",
                      "; anchor=0");
}

// What a filter sees of a square image that it does not shrink but by its stride.
struct Window {
  int64_t kernel, stride, side;
  int64_t pad() const { return kernel / 2; }
  int64_t out() const { return (side + 2 * pad() - kernel) / stride + 1; }
};

std::string DepthwiseCall(const char* args, int64_t channels, const Window& w) {
  return absl::StrCat("conv2d(", args, "; dilations=[1,1] group=", channels, " pads=[", w.pad(), ",", w.pad(), ",",
                      w.pad(), ",", w.pad(), "] strides=[", w.stride, ",", w.stride, "])");
}

std::string PointwiseCall(const char* args) {
  return absl::StrCat("conv2d(", args, "; dilations=[1,1] group=1 pads=[0,0,0,0] strides=[1,1])");
}

}  // namespace

std::vector<int64_t> TrainingDims(const Workload& w) {
  const Workload::Call& anchor = w.calls[w.anchor];
  if (anchor.op != "conv2d" && anchor.op != "matmul") return {};
  const Shape &left = w.TypeOf(anchor.args[0]).shape, &right = w.TypeOf(anchor.args[1]).shape;
  std::vector<int64_t> dims;
  if (anchor.op == "conv2d") {
    dims.assign(left.begin(), left.end());
    dims.insert(dims.end(), right.begin(), right.end());
    return dims;
  }
  const Shape& out = anchor.type.shape;
  if (out.size() < 2 || left.size() < 2) return {};
  int64_t batch = 1, rows = out[out.size() - 2];
  for (size_t i = 0; i + 2 < out.size(); ++i) (right.size() > 2 ? batch : rows) *= out[i];
  const bool trans_a = anchor.attrs.Int("trans_a", 0) != 0;
  return {batch, rows, left[left.size() - (trans_a ? 2 : 1)], out.back()};
}

bool NearInShape(const Workload& a, const Workload& b) {
  const std::vector<int64_t> x = TrainingDims(a), y = TrainingDims(b);
  if (a.calls[a.anchor].op != b.calls[b.anchor].op || x.empty() || x.size() != y.size()) return false;
  return std::equal(x.begin(), x.end(), y.begin(), [](int64_t p, int64_t q) {
    return static_cast<double>(std::max(p, q)) <= kNear * static_cast<double>(std::min(p, q));
  });
}

const std::vector<Workload>& BenchShapes() {
  static const std::vector<Workload> shapes = [] {
    std::vector<Workload> all;
    for (const std::string& line :
         std::vector<std::string>(absl::StrSplit(BenchShapesText(), '\n', absl::SkipEmpty()))) {
      if (absl::StatusOr<Workload> w = ParseWorkload(line); w.ok()) all.push_back(*std::move(w));
    }
    return all;
  }();
  return shapes;
}

Workload ShapeGenerator::Next() {
  while (true) {
    const absl::StatusOr<Workload> w = ParseWorkload(Draw());
    if (!w.ok() || Flops(*w) < kLeastFlops || Flops(*w) > kMostFlops) continue;
    const auto near = [&](const Workload& other) { return NearInShape(*w, other); };
    if (std::none_of(excluded_.begin(), excluded_.end(), near) && drawn_.insert(Text(*w)).second) return *w;
  }
}

std::string ShapeGenerator::Draw() {
  const double kind = rng_.Uniform();
  if (kind < 0.5) return Conv();
  if (kind < 0.6) return Depthwise();
  if (kind < 0.67) return Separable();
  return kind < 0.74 ? Expanded() : Matmul();
}

std::string ShapeGenerator::Conv() {
  const double size = rng_.Uniform();
  const int64_t kernel = size < 0.45 ? 1 : size < 0.85 ? 3 : size < 0.93 ? 5 : 7;
  const int64_t batch = Chance(0.9) ? 1 : LogUniform(2, 8);
  const int64_t side = LogUniform(std::max<int64_t>(4, kernel), 224);
  const int64_t in = Chance(0.05) ? 3 : Channels(8, 1280), out = Channels(8, 1280);
  const bool strided = Chance(0.25), relu = Chance(0.5);
  return ConvText(batch, in, side, {out, in, kernel, kernel}, 1, strided ? 2 : 1, relu);
}

std::string ShapeGenerator::Depthwise() {
  const double size = rng_.Uniform();
  const int64_t kernel = size < 0.6 ? 3 : size < 0.9 ? 5 : 7;
  const int64_t channels = Channels(16, 1280), side = LogUniform(7, 128);
  const bool strided = Chance(0.3), relu = Chance(0.5);
  return ConvText(1, channels, side, {channels, 1, kernel, kernel}, channels, strided ? 2 : 1, relu);
}

std::string ShapeGenerator::Separable() {
  const int64_t kernel = Chance(0.8) ? 3 : 5, stride = Chance(0.3) ? 2 : 1;
  const int64_t channels = Channels(16, 640), out = Channels(16, 320), side = LogUniform(14, 128);
  const Window w{kernel, stride, side};
  const std::string between = Tensor({1, channels, w.out(), w.out()}) + "@0231";
  return absl::StrCat("(", Tensor({1, channels, side, side}), "@0231, const ", Tensor({channels, 1, kernel, kernel}),
                      ", const ", Tensor({out, channels, 1, 1}), ") ", DepthwiseCall("0,1", channels, w), " -> ",
                      between, "; relu(3) -> ", between, "; ", PointwiseCall("4,2"), " -> ",
                      Tensor({1, out, w.out(), w.out()}), "@0231; anchor=2");
}

std::string ShapeGenerator::Expanded() {
  const int64_t kernel = Chance(0.7) ? 3 : 5, stride = Chance(0.5) ? 2 : 1;
  const int64_t in = Channels(8, 160), side = LogUniform(14, 128);
  const int64_t channels = std::max<int64_t>(16, (in * LogUniform(3, 6) + 8) / 16 * 16);
  const Window w{kernel, stride, side};
  const std::string between = Tensor({1, channels, side, side}) + "@0231";
  return absl::StrCat("(", Tensor({1, in, side, side}), "@0231, const ", Tensor({channels, in, 1, 1}), ", const ",
                      Tensor({channels, 1, kernel, kernel}), ") ", PointwiseCall("0,1"), " -> ", between,
                      Chance(0.5) ? "; relu(3) -> " : "; silu(3) -> ", between, "; ", DepthwiseCall("4,2", channels, w),
                      " -> ", Tensor({1, channels, w.out(), w.out()}), "@0231; anchor=2");
}

std::string ShapeGenerator::Matmul() {
  const bool batched = Chance(0.3), trans_b = Chance(batched ? 0.3 : 0.2);
  const int64_t batch = batched ? LogUniform(2, 32) : 1;
  const int64_t rows = !batched && Chance(0.1) ? 1 : LogUniform(4, 1024);
  const int64_t depth = Channels(16, 4096), columns = Channels(16, 4096);
  const auto shape = [&](int64_t a, int64_t b) {
    return Tensor(batched ? std::vector<int64_t>{batch, a, b} : std::vector<int64_t>{a, b});
  };
  const std::string out = shape(rows, columns);
  return absl::StrCat("(", shape(rows, depth), ", ", batched ? "" : "const ",
                      trans_b ? shape(columns, depth) : shape(depth, columns), ") matmul(0,1",
                      trans_b ? "; trans_b=1" : "", ") -> ", out, Chance(0.3) ? absl::StrCat("; relu(2) -> ", out) : "",
                      "; anchor=0");
}

int64_t ShapeGenerator::LogUniform(int64_t least, int64_t most) {
  const double low = std::log(static_cast<double>(least)), high = std::log(static_cast<double>(most));
  return std::clamp<int64_t>(std::llround(std::exp(low + rng_.Uniform() * (high - low))), least, most);
}

int64_t ShapeGenerator::Channels(int64_t least, int64_t most) {
  const int64_t drawn = LogUniform(least, most);
  if (Chance(0.2)) return drawn;
  const int64_t whole = drawn >= 64 ? 16 : 8;
  return std::max(least, (drawn + whole / 2) / whole * whole);
}

}  // namespace temper
