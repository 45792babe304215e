// Windows, Fourier transforms and the mel scale. A transform is a product with a constant matrix of cosines and sines.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "absl/strings/str_cat.h"
#include "base/division.h"
#include "compiler/frontend/onnx/ends.h"
#include "compiler/frontend/onnx/extents.h"
#include "compiler/frontend/onnx/places.h"
#include "compiler/frontend/onnx/tensor_data.h"

namespace temper::onnx_frontend {
namespace {

using Ints = std::vector<int64_t>;

constexpr int64_t kLargestTransform = int64_t{1} << 25;  // of a matrix or window that a model may ask to have filled in
constexpr int64_t kLongestFrame = 64;                    // that a frame may be long

// --- windows ---

struct Cosines {
  double constant, once, twice;  // constant - once * cos(angle) + twice * cos(2 * angle)
};

template <Cosines factors>
absl::Status CosineWindow(Context& c, const OnnxNode& n) {
  TEMPER_ASSIGN_OR_RETURN(const int64_t size, c.KnownInt(n.Input(0), "size"));
  TEMPER_ASSIGN_OR_RETURN(const DType dtype, DTypeOf(static_cast<int>(n.Int("output_datatype", 1))));
  if (size < 0 || size > kLargestTransform)
    return absl::InvalidArgumentError(absl::StrCat("no window has size ", size));
  NDArray window(dtype, {size});
  // The last of a symmetric window is the first again.
  const int64_t period = n.Int("periodic", 1) != 0 ? size : size - 1;
  for (int64_t i = 0; i < size; ++i) {
    const double angle = 2 * std::numbers::pi * static_cast<double>(i) / static_cast<double>(period);
    const double value = factors.constant - factors.once * std::cos(angle) + factors.twice * std::cos(2 * angle);
    window.Set(i, period == 0 ? 1 : value);
  }
  return c.Set(n, c.Constant(std::move(window)));
}

// --- the mel scale ---

// Where the triangles begin, have their tops and end, in bins of the spectrum.
absl::StatusOr<Ints> MelEdges(Context& c, const OnnxNode& n, int64_t bands, int64_t length) {
  TEMPER_ASSIGN_OR_RETURN(const int64_t rate, c.KnownInt(n.Input(2), "sample_rate"));
  TEMPER_ASSIGN_OR_RETURN(const std::vector<double> low, c.KnownFloats(n.Input(3), "lower_edge_hertz"));
  TEMPER_ASSIGN_OR_RETURN(const std::vector<double> high, c.KnownFloats(n.Input(4), "upper_edge_hertz"));
  if (rate < 1 || low.size() != 1 || high.size() != 1)
    return absl::InvalidArgumentError("sample_rate is positive, and the edges are scalars");
  const double first = 2595 * std::log10(1 + low[0] / 700), last = 2595 * std::log10(1 + high[0] / 700);
  Ints edges;
  for (int64_t i = 0; i < bands + 2; ++i) {
    const double mel = first + static_cast<double>(i) * (last - first) / static_cast<double>(bands + 2);
    const double hertz = 700 * (std::pow(10, mel / 2595) - 1);
    const double bin = std::floor(static_cast<double>(length + 1) * hertz / static_cast<double>(rate));
    if (!(bin >= 0 && bin <= static_cast<double>(length / 2)) || (i > 0 && bin < static_cast<double>(edges.back())))
      return absl::InvalidArgumentError("the edges are in their order and inside the spectrum");
    edges.push_back(static_cast<int64_t>(bin));
  }
  return edges;
}

absl::Status MelWeightMatrix(Context& c, const OnnxNode& n) {
  TEMPER_ASSIGN_OR_RETURN(const int64_t bands, c.KnownInt(n.Input(0), "num_mel_bins"));
  TEMPER_ASSIGN_OR_RETURN(const int64_t length, c.KnownInt(n.Input(1), "dft_length"));
  TEMPER_ASSIGN_OR_RETURN(const DType dtype, DTypeOf(static_cast<int>(n.Int("output_datatype", 1))));
  if (bands < 1 || length < 1 || bands > kLargestTransform || length > kLargestTransform / bands)
    return absl::InvalidArgumentError("there is no such matrix");
  TEMPER_ASSIGN_OR_RETURN(const Ints edges, MelEdges(c, n, bands, length));
  NDArray weights(dtype, {length / 2 + 1, bands});
  for (int64_t band = 0; band < bands; ++band) {
    const int64_t* edge = &edges[static_cast<size_t>(band)];
    const int64_t begin = edge[0], top = edge[1], end = edge[2];
    for (int64_t bin = begin; bin < top; ++bin)
      weights.Set(bin * bands + band, static_cast<double>(bin - begin) / static_cast<double>(top - begin));
    for (int64_t bin = top; bin < end; ++bin)
      weights.Set(bin * bands + band, static_cast<double>(end - bin) / static_cast<double>(end - top));
    if (top == end) weights.Set(top * bands + band, 1);
  }
  return c.Set(n, c.Constant(std::move(weights)));
}

// --- Fourier transforms ---

struct Transform {
  int64_t length = 0;   // its period
  int64_t samples = 0;  // that there are; the others of a period are zero
  int64_t parts = 1;    // numbers a sample: real, or real and imaginary
  int64_t bins = 0;     // that are asked for
  bool inverse = false;
  bool real = false;                                // of one side of a spectrum, the real signal that it is of
  int64_t results() const { return real ? 1 : 2; }  // numbers a bin
};

// The inverse of one side takes up to half a period of frequencies.
int64_t MostSamples(int64_t length, bool half) { return half ? length / 2 + 1 : length; }

absl::StatusOr<Transform> TransformOf(int64_t length, int64_t samples, int64_t parts, bool onesided, bool inverse) {
  if (parts != 1 && parts != 2)
    return absl::InvalidArgumentError("the last axis has a real part, or a real and an imaginary one");
  const bool real = onesided && inverse;
  if (onesided && !inverse && parts == 2)
    return absl::InvalidArgumentError("one side of a complex signal is not its transform");
  if (real && parts == 1) return absl::InvalidArgumentError("one side of a spectrum has complex numbers");
  if (length < 1 || samples < 1) return absl::InvalidArgumentError("there is nothing to transform");
  const Transform t{length, samples, parts, onesided && !real ? length / 2 + 1 : length, inverse, real};
  if (static_cast<double>(samples) * static_cast<double>(2 * parts) * static_cast<double>(t.bins) >
      static_cast<double>(kLargestTransform))
    return absl::UnimplementedError(absl::StrCat("a transform of length ", length, " is not supported"));
  return t;
}

// [frequencies * 2, length]. A frequency stands for itself and for its conjugate, if that is another one.
NDArray RealMatrix(const Transform& t, DType dtype) {
  NDArray matrix(dtype, {t.samples * 2, t.length});
  for (int64_t k = 0; k < t.samples; ++k) {
    const double factor = (k == 0 || 2 * k == t.length ? 1.0 : 2.0) / static_cast<double>(t.length);
    for (int64_t i = 0; i < t.length; ++i) {
      const double turn = 2 * std::numbers::pi * static_cast<double>(i * k % t.length) / static_cast<double>(t.length);
      matrix.Set(2 * k * t.length + i, factor * std::cos(turn));
      matrix.Set((2 * k + 1) * t.length + i, 2 * k == t.length ? 0 : -factor * std::sin(turn));
    }
  }
  return matrix;
}

// [samples * parts, bins * 2]: a sample's parts lie beside each other, and so do a frequency's.
NDArray Matrix(const Transform& t, DType dtype) {
  if (t.real) return RealMatrix(t, dtype);
  std::vector<double> cosine, sine;
  const double scale = t.inverse ? 1 / static_cast<double>(t.length) : 1;
  for (int64_t i = 0; i < t.length; ++i) {
    const double turn = 2 * std::numbers::pi * static_cast<double>(i) / static_cast<double>(t.length);
    cosine.push_back(scale * std::cos(turn));
    sine.push_back(scale * (t.inverse ? std::sin(turn) : -std::sin(turn)));
  }
  NDArray matrix(dtype, {t.samples * t.parts, t.bins * 2});
  for (int64_t sample = 0; sample < t.samples; ++sample) {
    for (int64_t bin = 0; bin < t.bins; ++bin) {
      const size_t turn = static_cast<size_t>(sample * bin % t.length);
      const int64_t real = sample * t.parts * t.bins * 2 + bin * 2, imaginary = real + t.bins * 2;
      matrix.Set(real, cosine[turn]);
      matrix.Set(real + 1, sine[turn]);
      if (t.parts == 1) continue;
      matrix.Set(imaginary, -sine[turn]);
      matrix.Set(imaginary + 1, cosine[turn]);
    }
  }
  return matrix;
}

// Up to opset 19 the axis is an attribute, after it an operand.
absl::StatusOr<int64_t> AxisOf(Context& c, const OnnxNode& n, int64_t rank) {
  int64_t given = n.opset < 20 ? n.Int("axis", 1) : -2;
  if (n.opset >= 20 && n.Input(2) != kNoValue) {
    TEMPER_ASSIGN_OR_RETURN(given, c.KnownInt(n.Input(2), "the axis"));
  }
  TEMPER_ASSIGN_OR_RETURN(const int64_t axis, Axis(given, rank));
  if (axis == rank - 1) return absl::InvalidArgumentError("the last axis has the parts of a number");
  return axis;
}

absl::Status Dft(Context& c, const OnnxNode& n) {
  const int64_t rank = c.Rank(n.Input(0));
  const DType dtype = c.TypeOf(n.Input(0)).dtype;
  if (!IsFloat(dtype)) return absl::InvalidArgumentError("its operand has to be of a float type");
  TEMPER_ASSIGN_OR_RETURN(const int64_t axis, AxisOf(c, n, rank));
  const int64_t extent = c.ShapeOf(n.Input(0))[static_cast<size_t>(axis)], parts = c.ShapeOf(n.Input(0)).back();
  const bool onesided = n.Int("onesided", 0) != 0, inverse = n.Int("inverse", 0) != 0, half = onesided && inverse;
  int64_t length = half ? 2 * (extent - 1) : extent;
  if (n.Input(1) != kNoValue) {
    TEMPER_ASSIGN_OR_RETURN(length, c.KnownInt(n.Input(1), "dft_length"));
  }
  TEMPER_ASSIGN_OR_RETURN(const Transform t,
                          TransformOf(length, std::min(extent, MostSamples(length, half)), parts, onesided, inverse));
  // Each signal is transformed for itself.
  ValueId v = n.Input(0);
  TEMPER_RETURN_IF_ERROR(MustBeOneLine(c, v, "DFT"));
  TEMPER_RETURN_IF_ERROR(MustBeKnownAlong(c, v, {axis, rank - 1}, "DFT"));
  TEMPER_ASSIGN_OR_RETURN(const Varyings signals_of, MakeWhole(c, v));
  if (t.samples < extent) {
    TEMPER_ASSIGN_OR_RETURN(v, c.Slice(v, axis, 0, t.samples));
  }
  // The axis beside the parts, and back.
  const size_t axes = static_cast<size_t>(rank);
  TEMPER_ASSIGN_OR_RETURN(v, c.Transpose(v, MovedAxis(axes, axis, rank - 2)));
  Shape result = c.ShapeOf(v);
  const int64_t signals = NumElements(std::span(result).first(result.size() - 2));
  TEMPER_ASSIGN_OR_RETURN(v, c.Reshape(v, {signals, t.samples * parts}));
  TEMPER_ASSIGN_OR_RETURN(v, c.Call("matmul", {}, {v, c.Constant(Matrix(t, dtype))}));
  result[result.size() - 2] = t.bins;
  result.back() = t.results();
  TEMPER_ASSIGN_OR_RETURN(v, c.Reshape(v, std::move(result)));
  TEMPER_ASSIGN_OR_RETURN(v, c.Transpose(v, MovedAxis(axes, rank - 2, axis)));
  c.AddVaryings(v, signals_of);
  return c.Set(n, v);
}

// [b, n, parts] as [b, frames, length * parts]: the signal in steps, of which a frame has several beside each other.
absl::StatusOr<ValueId> Framed(Context& c, ValueId signal, int64_t length, int64_t step) {
  const Shape s = c.ShapeOf(signal);
  const int64_t frames = (s[1] - length) / step + 1;
  if (frames == 1) step = length;  // which may have been any number
  const int64_t steps = CeilDiv(length, step);
  if (steps > kLongestFrame)
    return absl::UnimplementedError(absl::StrCat("a frame may be ", kLongestFrame, " steps long, not ", steps));
  const int64_t extent = (frames - 1 + steps) * step;
  ValueId v = signal;
  if (extent > s[1]) {
    TEMPER_ASSIGN_OR_RETURN(v, c.Pad(v, {0, 0, 0, 0, extent - s[1], 0}));
  } else {
    TEMPER_ASSIGN_OR_RETURN(v, c.Slice(v, 1, 0, extent));
  }
  TEMPER_ASSIGN_OR_RETURN(v, c.Reshape(v, {s[0], frames - 1 + steps, step * s[2]}));
  std::vector<ValueId> parts;
  for (int64_t i = 0; i < steps; ++i) {
    TEMPER_ASSIGN_OR_RETURN(const ValueId part, c.Slice(v, 1, i, i + frames));
    parts.push_back(part);
  }
  TEMPER_ASSIGN_OR_RETURN(v, c.Concat(std::move(parts), 2));
  return c.Slice(v, 2, 0, length * s[2]);
}

absl::StatusOr<int64_t> FrameLength(Context& c, const OnnxNode& n, int64_t extent) {
  if (n.Input(3) != kNoValue) return c.KnownInt(n.Input(3), "frame_length");
  return n.Input(2) != kNoValue ? NumElements(c.ShapeOf(n.Input(2))) : extent;
}

absl::Status Stft(Context& c, const OnnxNode& n) {
  const ValueId window = n.Input(2);
  const DType dtype = c.TypeOf(n.Input(0)).dtype;
  if (!IsFloat(dtype)) return absl::InvalidArgumentError("its operand has to be of a float type");
  Shape s = c.ShapeOf(n.Input(0));
  if (s.size() == 2) s.push_back(1);
  if (s.size() != 3) return absl::InvalidArgumentError("a signal is [batch, n, 1] or [batch, n, 2]");
  TEMPER_ASSIGN_OR_RETURN(const int64_t step, c.KnownInt(n.Input(1), "frame_step"));
  TEMPER_ASSIGN_OR_RETURN(const int64_t length, FrameLength(c, n, s[1]));
  if (step < 1 || length < 1 || length > s[1])
    return absl::InvalidArgumentError("frame_step is positive, and a frame lies inside the signal");
  if (window != kNoValue && c.ShapeOf(window) != Shape{length})
    return absl::UnimplementedError("only windows as long as a frame are supported");
  TEMPER_ASSIGN_OR_RETURN(const Transform t, TransformOf(length, length, s[2], n.Int("onesided", 1) != 0, false));
  // Each frame that counts lies before the end.
  TEMPER_RETURN_IF_ERROR(MustBeOneLine(c, n.Input(0), "STFT"));
  TEMPER_RETURN_IF_ERROR(MustBeKnownAlong(c, n.Input(0), {2}, "STFT"));
  Varyings of_frames;
  if (const Varying* own = c.VaryingAlong(n.Input(0), 1)) {
    if (window == kNoValue && n.Input(3) == kNoValue) return MustBeKnown(c, n.Input(0), "STFT");
    TEMPER_ASSIGN_OR_RETURN(const ValueId count, StopsOf(c, own->extent, -length, step));
    of_frames = {{1, count}};
  }
  TEMPER_ASSIGN_OR_RETURN(ValueId v, WholeAlong(c, n.Input(0), 1));
  TEMPER_ASSIGN_OR_RETURN(v, c.Reshape(v, s));
  TEMPER_ASSIGN_OR_RETURN(v, Framed(c, v, length, step));
  const int64_t frames = c.ShapeOf(v)[1];
  // The window is a factor of the samples, so one of the matrix's rows as well.
  ValueId matrix = c.Constant(Matrix(t, dtype));
  if (window != kNoValue) {
    TEMPER_ASSIGN_OR_RETURN(const ValueId factors, c.Reshape(window, {length, 1}));
    TEMPER_ASSIGN_OR_RETURN(matrix, c.Reshape(matrix, {length, t.parts * t.bins * 2}));
    TEMPER_ASSIGN_OR_RETURN(matrix, c.Call("mul", {}, {matrix, factors}));
    TEMPER_ASSIGN_OR_RETURN(matrix, c.Reshape(matrix, {length * t.parts, t.bins * 2}));
  }
  TEMPER_ASSIGN_OR_RETURN(v, c.Reshape(v, {s[0] * frames, length * t.parts}));
  TEMPER_ASSIGN_OR_RETURN(v, c.Call("matmul", {}, {v, matrix}));
  TEMPER_ASSIGN_OR_RETURN(v, c.Reshape(v, {s[0], frames, t.bins, 2}));
  c.AddVaryings(v, of_frames);
  return c.Set(n, v);
}

}  // namespace

std::span<const TableEntry> SignalTable() {
  static constexpr TableEntry kTable[] = {{"HannWindow", CosineWindow<Cosines{0.5, 0.5, 0}>},
                                          {"HammingWindow", CosineWindow<Cosines{25.0 / 46, 21.0 / 46, 0}>},
                                          {"BlackmanWindow", CosineWindow<Cosines{0.42, 0.5, 0.08}>},
                                          {"MelWeightMatrix", MelWeightMatrix, 5},
                                          {"DFT", Dft, 1, Extents::kAlongAnyAxis},
                                          {"STFT", Stft, 2, Extents::kAlongAnyAxis}};
  return kTable;
}

}  // namespace temper::onnx_frontend
