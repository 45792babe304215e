// Windows, the mel scale and Fourier transforms against their definitions.
#include <gmock/gmock.h>

#include <cmath>
#include <complex>
#include <numbers>
#include <optional>

#include "base/rng.h"
#include "tests/frontend/model_builder.h"

namespace temper {
namespace {

using testing::Array;
using testing::ExpectArray;
using ::testing::HasSubstr;
using testing::ModelBuilder;
using Complex = std::complex<double>;

NDArray DrawnSignal(const Shape& shape) {
  Rng rng(3);
  NDArray x(DType::kF32, shape);
  for (int64_t i = 0; i < x.size(); ++i) x.Set(i, 2 * rng.Uniform() - 1);
  return x;
}

// Frequency `k` of a period, whose samples beyond those given are zero.
Complex Frequency(const std::vector<Complex>& samples, int64_t k, int64_t period, bool inverse) {
  Complex sum = 0;
  for (int64_t i = 0; i < std::min<int64_t>(std::ssize(samples), period); ++i) {
    const double turn = 2 * std::numbers::pi * static_cast<double>(i * k) / static_cast<double>(period);
    sum += samples[static_cast<size_t>(i)] * std::polar(1.0, inverse ? turn : -turn);
  }
  return inverse ? sum / static_cast<double>(period) : sum;
}

Complex NumberAt(const NDArray& x, int64_t i) {
  const int64_t parts = x.shape().back();
  return {x.At(i * parts), parts == 2 ? x.At(i * parts + 1) : 0};
}

// --- windows ---

NDArray Window(const std::string& op, int64_t size, bool periodic) {
  ModelBuilder m(17);
  m.Ints("size", {size});
  ModelBuilder::SetInt(m.Node(op, {"size"}, {"w"}), "periodic", periodic ? 1 : 0);
  m.Output("w");
  return m.Run({})[0];
}

TEST(OnnxSignal, WindowsAreSumsOfCosines) {
  for (const bool periodic : {true, false}) {
    std::vector<double> hann, hamming, blackman;
    for (int i = 0; i < 10; ++i) {
      const double angle = 2 * std::numbers::pi * i / (periodic ? 10 : 9);
      hann.push_back(std::pow(std::sin(angle / 2), 2));
      hamming.push_back(25.0 / 46 - 21.0 / 46 * std::cos(angle));
      blackman.push_back(0.42 - 0.5 * std::cos(angle) + 0.08 * std::cos(2 * angle));
    }
    ExpectArray(Window("HannWindow", 10, periodic), {10}, hann, 1e-6);
    ExpectArray(Window("HammingWindow", 10, periodic), {10}, hamming, 1e-6);
    ExpectArray(Window("BlackmanWindow", 10, periodic), {10}, blackman, 1e-6);
  }
  ExpectArray(Window("HannWindow", 1, false), {1}, {1});
}

TEST(OnnxSignal, AWindowHasTheTypeAskedFor) {
  ModelBuilder m(17);
  m.Ints("size", {4});
  ModelBuilder::SetInt(m.Node("HannWindow", {"size"}, {"w"}), "output_datatype", onnx::TensorProto::DOUBLE);
  m.Output("w");
  const NDArray w = m.Run({})[0];
  EXPECT_EQ(w.dtype(), DType::kF64);
  ExpectArray(w, {4}, {0, 0.5, 1, 0.5}, 1e-15);
}

// --- the mel scale ---

ModelBuilder Mel(int64_t bands, int64_t length, int64_t rate, float low, float high) {
  ModelBuilder m(17);
  m.Ints("bands", {bands});
  m.Ints("length", {length});
  m.Ints("rate", {rate});
  m.Floats("low", {}, {low});
  m.Floats("high", {}, {high});
  m.Node("MelWeightMatrix", {"bands", "length", "rate", "low", "high"}, {"w"});
  m.Output("w");
  return m;
}

// With few bins, some triangles have their top and an edge in one.
TEST(OnnxSignal, MelBandsAreTriangles) {
  const int64_t bands = 8, rate = 8192;
  const auto edge = [&](int64_t i, int64_t length) {
    const double low = 2595 * std::log10(1 + 200.0 / 700), high = 2595 * std::log10(1 + 3900.0 / 700);
    const double mel = low + static_cast<double>(i) * (high - low) / static_cast<double>(bands + 2);
    return std::floor(static_cast<double>(length + 1) * 700 * (std::pow(10, mel / 2595) - 1) / rate);
  };
  for (const int64_t length : {64, 20}) {
    const int64_t bins = length / 2 + 1;
    const NDArray w = Mel(bands, length, rate, 200, 3900).Run({})[0];
    ASSERT_EQ(w.shape(), (Shape{bins, bands}));
    for (int64_t i = 0; i < bins * bands; ++i) {
      const double begin = edge(i % bands, length), top = edge(i % bands + 1, length),
                   end = edge(i % bands + 2, length);
      const double bin = static_cast<double>(i / bands);
      const double rise = bin < top ? (bin - begin) / (top - begin) : 1;
      const double fall = bin > top ? (end - bin) / (end - top) : 1;
      EXPECT_NEAR(w.At(i), std::max(0.0, std::min(rise, fall)), 1e-6) << "band " << i % bands << " bin " << bin;
    }
  }
}

// --- the discrete Fourier transform ---

struct DftCase {
  Shape shape;
  int64_t axis;
  std::optional<int64_t> length;
  bool onesided = false, inverse = false;
};

ModelBuilder Dft(const DftCase& c, int opset) {
  ModelBuilder m(opset);
  m.Input("x", c.shape);
  if (c.length.has_value()) m.Ints("length", {*c.length});
  m.Ints("axis", {c.axis});
  std::vector<std::string> inputs = {"x", c.length.has_value() ? "length" : ""};
  if (opset >= 20) inputs.push_back("axis");
  auto& node = m.Node("DFT", inputs, {"y"});
  if (opset < 20) ModelBuilder::SetInt(node, "axis", c.axis);
  ModelBuilder::SetInt(node, "onesided", c.onesided ? 1 : 0);
  ModelBuilder::SetInt(node, "inverse", c.inverse ? 1 : 0);
  m.Output("y");
  return m;
}

void ExpectTransform(const DftCase& c, const NDArray& x, const NDArray& y) {
  const std::span<const int64_t> dims(c.shape);
  const size_t axis = static_cast<size_t>(c.axis < 0 ? c.axis + std::ssize(c.shape) : c.axis);
  const int64_t extent = c.shape[axis], inner = NumElements(dims.subspan(axis + 1)) / c.shape.back();
  const int64_t period = c.length.value_or(extent), bins = c.onesided ? period / 2 + 1 : period;
  Shape shape = c.shape;
  shape[axis] = bins;
  shape.back() = 2;
  ASSERT_EQ(y.shape(), shape);
  for (int64_t line = 0; line < NumElements(dims.first(axis)) * inner; ++line) {
    const auto at = [&](int64_t i, int64_t of) { return (line / inner * of + i) * inner + line % inner; };
    std::vector<Complex> samples;
    for (int64_t i = 0; i < extent; ++i) samples.push_back(NumberAt(x, at(i, extent)));
    for (int64_t k = 0; k < bins; ++k) {
      const Complex want = Frequency(samples, k, period, c.inverse), got = NumberAt(y, at(k, bins));
      EXPECT_NEAR(std::abs(want - got), 0, 1e-5) << "line " << line << " frequency " << k;
    }
  }
}

TEST(OnnxSignal, DftOfEveryLine) {
  const DftCase cases[] = {{{2, 7, 1}, 1, {}},
                           {{2, 7, 2}, 1, {}},
                           {{2, 7, 1}, 1, {}, true},
                           {{2, 8, 1}, -2, {}, true},
                           {{3, 4, 5, 2}, 0, {}},
                           {{3, 4, 5, 2}, -3, {}, false, true},
                           {{2, 6, 1}, 1, {}, false, true},
                           {{2, 6, 1}, 1, 9},
                           {{2, 6, 2}, 1, 4},
                           {{2, 6, 2}, 1, 8, false, true},
                           {{2, 6, 1}, 1, 9, true}};
  for (const DftCase& c : cases) {
    for (const int opset : {17, 20}) {
      SCOPED_TRACE(ShapeText(c.shape) + " axis " + std::to_string(c.axis) + " opset " + std::to_string(opset));
      const NDArray x = DrawnSignal(c.shape);
      ExpectTransform(c, x, Dft(c, opset).Run({x})[0]);
    }
  }
}

// One side of the spectrum of a real signal gives the signal back, of an even length and of an odd one.
TEST(OnnxSignal, TheInverseOfOneSideIsTheSignal) {
  for (const int64_t length : {6, 7}) {
    const DftCase c{{2, length / 2 + 1, 3, 2}, 1, length, true, true};
    NDArray side(DType::kF32, c.shape);
    const NDArray signal = DrawnSignal({2, length, 3, 1});
    for (int64_t line = 0; line < 6; ++line) {
      std::vector<Complex> samples;
      for (int64_t i = 0; i < length; ++i) samples.emplace_back(signal.At((line / 3 * length + i) * 3 + line % 3));
      for (int64_t k = 0; k < c.shape[1]; ++k) {
        const Complex frequency = Frequency(samples, k, length, false);
        const int64_t at = ((line / 3 * c.shape[1] + k) * 3 + line % 3) * 2;
        side.Set(at, frequency.real());
        side.Set(at + 1, frequency.imag());
      }
    }
    const NDArray y = Dft(c, 20).Run({side})[0];
    ASSERT_EQ(y.shape(), signal.shape());
    for (int64_t i = 0; i < y.size(); ++i) EXPECT_NEAR(y.At(i), signal.At(i), 1e-5) << i;
  }
  // Without a length it is an even one.
  EXPECT_EQ(Dft({{1, 5, 2}, 1, {}, true, true}, 20).Run({DrawnSignal({1, 5, 2})})[0].shape(), (Shape{1, 8, 1}));
  EXPECT_THAT(Dft({{2, 7, 1}, 1, {}, true, true}, 20).Import().status().ToString(),
              HasSubstr("one side of a spectrum has complex numbers"));
  EXPECT_THAT(Dft({{2, 1, 2}, 1, {}, true, true}, 20).Import().status().ToString(), HasSubstr("nothing to transform"));
}

TEST(OnnxSignal, DftTakesTheLastSignalAxisSinceOpset20AndTheSecondBefore) {
  for (const int opset : {17, 20}) {
    ModelBuilder m(opset);
    m.Input("x", {2, 3, 5, 1});
    m.Node("DFT", {"x"}, {"y"});
    m.Output("y");
    const NDArray x = DrawnSignal({2, 3, 5, 1});
    ExpectTransform({{2, 3, 5, 1}, opset == 17 ? 1 : 2, {}}, x, m.Run({x})[0]);
  }
}

TEST(OnnxSignal, DftThatCanNotBeIsSaidInOneLine) {
  const auto error = [](const DftCase& c) { return Dft(c, 20).Import().status().ToString(); };
  EXPECT_THAT(error({{2, 7, 1}, 2, {}}), HasSubstr("the last axis has the parts of a number"));
  EXPECT_THAT(error({{2, 7, 1}, 3, {}}), HasSubstr("axis 3 is outside rank 3"));
  EXPECT_THAT(error({{2, 7, 3}, 1, {}}), HasSubstr("a real part, or a real and an imaginary one"));
  EXPECT_THAT(error({{2, 7, 2}, 1, {}, true}), HasSubstr("one side of a complex signal"));
  EXPECT_THAT(error({{2, 7, 1}, 1, 0}), HasSubstr("nothing to transform"));
  EXPECT_THAT(error({{1, 99999, 1}, 1, {}}), HasSubstr("length 99999 is not supported"));
}

// --- its frames ---

struct StftCase {
  Shape shape;
  int64_t step, length;
  bool gives_length, onesided, is_window_known;
};

ModelBuilder Stft(const StftCase& c) {
  ModelBuilder m(17);
  m.Input("x", c.shape);
  m.Ints("step", {c.step});
  if (c.gives_length) m.Ints("length", {c.length});
  if (c.is_window_known) {
    m.Ints("size", {c.length});
    m.Node("HannWindow", {"size"}, {"w"});
  } else {
    m.Input("w", {c.length});
  }
  auto& node = m.Node("STFT", {"x", "step", "w", c.gives_length ? "length" : ""}, {"y"});
  ModelBuilder::SetInt(node, "onesided", c.onesided ? 1 : 0);
  m.Output("y");
  return m;
}

TEST(OnnxSignal, StftOfEveryFrame) {
  const StftCase cases[] = {{{2, 20}, 3, 8, true, true, true},      {{2, 20, 1}, 4, 8, false, true, false},
                            {{1, 21, 1}, 8, 5, true, false, false}, {{2, 20, 2}, 3, 7, false, false, true},
                            {{1, 16, 1}, 16, 16, true, true, true}, {{1, 9, 1}, 1, 4, true, true, false}};
  for (const StftCase& c : cases) {
    SCOPED_TRACE(ShapeText(c.shape) + " step " + std::to_string(c.step));
    const NDArray x = DrawnSignal(c.shape);
    std::vector<NDArray> feeds = {x};
    const NDArray w = c.is_window_known ? Window("HannWindow", c.length, true) : DrawnSignal({c.length});
    if (!c.is_window_known) feeds.push_back(w);
    const NDArray y = Stft(c).Run(feeds)[0];
    const NDArray signal = c.shape.size() == 2 ? x.Reshaped({c.shape[0], c.shape[1], 1}) : x;
    const int64_t frames = (c.shape[1] - c.length) / c.step + 1, bins = c.onesided ? c.length / 2 + 1 : c.length;
    ASSERT_EQ(y.shape(), (Shape{c.shape[0], frames, bins, 2}));
    for (int64_t i = 0; i < c.shape[0] * frames; ++i) {
      const int64_t start = i / frames * c.shape[1] + i % frames * c.step;
      std::vector<Complex> samples;
      for (int64_t j = 0; j < c.length; ++j) samples.push_back(NumberAt(signal, start + j) * w.At(j));
      for (int64_t k = 0; k < bins; ++k) {
        const Complex want = Frequency(samples, k, c.length, false);
        EXPECT_NEAR(std::abs(want - NumberAt(y, i * bins + k)), 0, 1e-5) << "frame " << i << " frequency " << k;
      }
    }
  }
}

TEST(OnnxSignal, StftWithoutAWindow) {
  ModelBuilder m(17);
  m.Input("x", {1, 6, 1});
  m.Ints("step", {2});
  m.Ints("length", {2});
  m.Node("STFT", {"x", "step", "", "length"}, {"y"});
  m.Output("y");
  ExpectArray(m.Run({Array({1, 6, 1}, {1, 2, 3, 5, 8, 13})})[0], {1, 3, 2, 2},
              {3, 0, -1, 0, 8, 0, -2, 0, 21, 0, -5, 0});
}

TEST(OnnxSignal, StftThatCanNotBeIsSaidInOneLine) {
  const auto error = [](const StftCase& c) { return Stft(c).Import().status().ToString(); };
  EXPECT_THAT(error({{2, 20, 2}, 3, 8, true, true, true}), HasSubstr("one side of a complex signal"));
  EXPECT_THAT(error({{2, 20, 1}, 0, 8, true, true, true}), HasSubstr("frame_step is positive"));
  EXPECT_THAT(error({{2, 20, 1}, 3, 21, true, true, true}), HasSubstr("a frame lies inside the signal"));
  EXPECT_THAT(error({{2, 200, 1}, 1, 65, true, true, true}), HasSubstr("64 steps long, not 65"));
}

TEST(OnnxSignal, WhatOnlyTheRunKnowsIsNoSize) {
  ModelBuilder m(17);
  m.Input("size", {1}, onnx::TensorProto::INT64);
  m.Node("HannWindow", {"size"}, {"w"});
  m.Output("w");
  EXPECT_THAT(m.Import().status().ToString(), HasSubstr("size depends on the model's inputs"));
  EXPECT_THAT(Mel(8, 64, 8192, 200, 9000).Import().status().ToString(), HasSubstr("inside the spectrum"));
}

TEST(OnnxSignal, OneFrameMayHaveAnyStep) {
  std::vector<std::string> texts;
  for (const int64_t step : {int64_t{8}, int64_t{1} << 62}) {
    ModelBuilder m(17);
    m.Input("x", {1, 12, 1});
    m.Ints("step", {step});
    m.Ints("length", {8});
    m.Node("STFT", {"x", "step", "", "length"}, {"y"});
    m.Output("y");
    const absl::StatusOr<Graph> g = m.Import();
    ASSERT_TRUE(g.ok()) << g.status();
    texts.push_back(Text(*g));
  }
  EXPECT_EQ(texts[0], texts[1]);
}

}  // namespace
}  // namespace temper
