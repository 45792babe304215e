#include <algorithm>

#include "compiler/ops/reference/gemm.h"
#include "compiler/ops/reference/loops.h"
#include "compiler/ops/reference/reference.h"

namespace temper::reference {
namespace {

// Both convolutions slide a window over an image of the larger side: conv2d's input, conv_transpose2d's output.
struct Geometry {
  int64_t channels, height, width;  // of the image, one group
  int64_t kernel_h, kernel_w, stride_h, stride_w, dilation_h, dilation_w, top, left;
  int64_t grid_h, grid_w;  // window positions: conv2d's output, conv_transpose2d's input

  int64_t Taps() const { return channels * kernel_h * kernel_w; }
  // The positions [first, last) of the grid along one axis whose tap at `offset` lies inside an image of `extent`.
  static std::pair<int64_t, int64_t> Inside(int64_t offset, int64_t stride, int64_t extent, int64_t grid) {
    int64_t first = offset >= 0 ? 0 : (-offset + stride - 1) / stride;
    int64_t last = extent <= offset ? 0 : (extent - 1 - offset) / stride + 1;
    return {std::min(first, grid), std::clamp(last, std::min(first, grid), grid)};
  }
};

struct Tap {
  int64_t channel, dy, dx;
};  // dy, dx: of the image's pixel against stride * position
Tap TapAt(const Geometry& g, int64_t k) {
  int64_t kw = k % g.kernel_w, kh = k / g.kernel_w % g.kernel_h;
  return {k / (g.kernel_w * g.kernel_h), kh * g.dilation_h - g.top, kw * g.dilation_w - g.left};
}

Geometry GeometryOf(const Attrs& attrs, const Shape& image, const Shape& weight, const Shape& grid, int64_t channels) {
  std::vector<int64_t> strides = attrs.Ints("strides", {1, 1}), dilations = attrs.Ints("dilations", {1, 1});
  std::vector<int64_t> pads = attrs.Ints("pads", {0, 0, 0, 0});
  return {channels,     image[2],     image[3], weight[2], weight[3], strides[0], strides[1],
          dilations[0], dilations[1], pads[0],  pads[1],   grid[2],   grid[3]};
}

// One row of the image matrix [taps][positions]: what each window position sees at tap k.
template <typename T>
void ReadTap(const Geometry& g, const T* image, int64_t k, int64_t n0, int64_t count, T* row) {
  Tap tap = TapAt(g, k);
  auto [first, last] = Geometry::Inside(tap.dx, g.stride_w, g.width, g.grid_w);
  for (int64_t at = n0; at < n0 + count;) {
    int64_t y = at / g.grid_w, x0 = at % g.grid_w, x1 = std::min(g.grid_w, x0 + n0 + count - at);
    int64_t line = y * g.stride_h + tap.dy;
    bool inside = line >= 0 && line < g.height;
    const T* pixels = image + (tap.channel * g.height + (inside ? line : 0)) * g.width;
    int64_t begin = inside ? std::clamp(first, x0, x1) : x1, end = inside ? std::clamp(last, begin, x1) : x1;
    T* out = row + (at - n0) - x0;
    std::fill(out + x0, out + begin, T(0));
    for (int64_t x = begin; x < end; ++x) out[x] = pixels[x * g.stride_w + tap.dx];
    std::fill(out + end, out + x1, T(0));
    at += x1 - x0;
  }
}

// plane[grid] += weight of each tap * what it sees: for groups too thin to be a matrix multiplication, and any dtype.
template <typename T>
void AccumulatePlane(const Geometry& g, const T* image, const T* weight, T* plane) {
  for (int64_t k = 0; k < g.Taps(); ++k) {
    Tap tap = TapAt(g, k);
    auto [y0, y1] = Geometry::Inside(tap.dy, g.stride_h, g.height, g.grid_h);
    auto [x0, x1] = Geometry::Inside(tap.dx, g.stride_w, g.width, g.grid_w);
    T w = weight[k];
    for (int64_t y = y0; y < y1; ++y) {
      const T* pixels = image + (tap.channel * g.height + y * g.stride_h + tap.dy) * g.width + tap.dx;
      T* out = plane + y * g.grid_w;
      if (g.stride_w == 1) {
        for (int64_t x = x0; x < x1; ++x) out[x] += w * pixels[x];
      } else {
        for (int64_t x = x0; x < x1; ++x) out[x] += w * pixels[x * g.stride_w];
      }
    }
  }
}

// image += the taps' columns, each pixel summed over the windows that see it.
template <typename T>
void ScatterTap(const Geometry& g, int64_t k, const T* row, T* image) {
  Tap tap = TapAt(g, k);
  auto [y0, y1] = Geometry::Inside(tap.dy, g.stride_h, g.height, g.grid_h);
  auto [x0, x1] = Geometry::Inside(tap.dx, g.stride_w, g.width, g.grid_w);
  for (int64_t y = y0; y < y1; ++y) {
    T* pixels = image + (tap.channel * g.height + y * g.stride_h + tap.dy) * g.width + tap.dx;
    for (int64_t x = x0; x < x1; ++x) pixels[x * g.stride_w] += row[y * g.grid_w + x];
  }
}

template <typename T>
void ConvolveGroup(const Geometry& g, int64_t filters, const T* image, const T* weight, T* result) {
  int64_t positions = g.grid_h * g.grid_w;
  if constexpr (std::is_same_v<T, float>) {
    if (filters >= 4) {
      RowReader rows = [&](int64_t k, int64_t n0, int64_t count, float* row) {
        ReadTap<float>(g, image, k, n0, count, row);
      };
      Gemm(filters, positions, g.Taps(), {weight, g.Taps(), 1}, rows, result, positions);
      return;
    }
  }
  for (int64_t f = 0; f < filters; ++f) AccumulatePlane<T>(g, image, weight + f * g.Taps(), result + f * positions);
}

// weight [inputs][taps]; image [channels][h][w] zeroed by the caller.
template <typename T>
void SpreadGroup(const Geometry& g, int64_t inputs, const T* x, const T* weight, T* image) {
  int64_t positions = g.grid_h * g.grid_w;
  std::vector<T> columns(static_cast<size_t>(g.Taps() * positions), T(0));
  if constexpr (std::is_same_v<T, float>) {
    Gemm(g.Taps(), positions, inputs, {weight, 1, g.Taps()}, Rows({x, positions, 1}), columns.data(), positions);
  } else {
    for (int64_t k = 0; k < g.Taps(); ++k) {
      for (int64_t i = 0; i < inputs; ++i) {
        for (int64_t p = 0; p < positions; ++p)
          columns[k * positions + p] += weight[i * g.Taps() + k] * x[i * positions + p];
      }
    }
  }
  for (int64_t k = 0; k < g.Taps(); ++k) ScatterTap<T>(g, k, columns.data() + k * positions, image);
}

absl::StatusOr<NDArray> Conv2d(const Attrs& attrs, Arrays in, const TensorType& output) {
  const Shape& x = in[0].shape();
  const Shape& w = in[1].shape();
  int64_t groups = attrs.Int("group", 1), filters = w[0] / groups;
  Geometry g = GeometryOf(attrs, x, w, output.shape, w[1]);
  NDArray result(output.dtype, output.shape);
  WithType(output.dtype, [&](auto t) {
    using T = decltype(t);
    for (int64_t i = 0; i < x[0] * groups; ++i) {
      ConvolveGroup<T>(g, filters, in[0].as<T>().data() + i * w[1] * x[2] * x[3],
                       in[1].as<T>().data() + i % groups * filters * g.Taps(),
                       result.as<T>().data() + i * filters * g.grid_h * g.grid_w);
    }
  });
  return result;
}

absl::StatusOr<NDArray> ConvTranspose2d(const Attrs& attrs, Arrays in, const TensorType& output) {
  const Shape& x = in[0].shape();
  const Shape& w = in[1].shape();
  int64_t groups = attrs.Int("group", 1), inputs = w[0] / groups;
  Geometry g = GeometryOf(attrs, output.shape, w, x, w[1]);
  NDArray result(output.dtype, output.shape);
  WithType(output.dtype, [&](auto t) {
    using T = decltype(t);
    for (int64_t i = 0; i < x[0] * groups; ++i) {
      SpreadGroup<T>(g, inputs, in[0].as<T>().data() + i * inputs * x[2] * x[3],
                     in[1].as<T>().data() + i % groups * inputs * g.Taps(),
                     result.as<T>().data() + i * w[1] * g.height * g.width);
    }
  });
  return result;
}

}  // namespace

std::span<const Reference> ConvReferences() {
  static constexpr Reference kTable[] = {
      {"conv2d", Conv2d},
      {"conv_transpose2d", ConvTranspose2d},
  };
  return kTable;
}

}  // namespace temper::reference
