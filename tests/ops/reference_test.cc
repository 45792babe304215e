// The blocked references of convolutions and matrix multiplication against loops that are too simple to be wrong.
#include "compiler/ops/reference/gemm.h"

#include "ops_testing.h"

namespace temper {
namespace {

using Ints = std::vector<int64_t>;

int64_t Flat(const Shape& shape, std::initializer_list<int64_t> index) {
  int64_t flat = 0;
  size_t axis = 0;
  for (int64_t i : index) flat = flat * shape[axis++] + i;
  return flat;
}

NDArray NaiveConv(const Attrs& attrs, const NDArray& x, const NDArray& w, const Shape& out) {
  NDArray result(x.dtype(), out);
  Ints strides = attrs.Ints("strides"), pads = attrs.Ints("pads"), dilations = attrs.Ints("dilations");
  int64_t filters = w.shape()[0] / attrs.Int("group", 1);
  for (int64_t n = 0; n < out[0]; ++n)
    for (int64_t f = 0; f < out[1]; ++f)
      for (int64_t y = 0; y < out[2]; ++y)
        for (int64_t z = 0; z < out[3]; ++z) {
          double sum = 0;
          for (int64_t c = 0; c < w.shape()[1]; ++c)
            for (int64_t i = 0; i < w.shape()[2]; ++i)
              for (int64_t j = 0; j < w.shape()[3]; ++j) {
                int64_t iy = y * strides[0] - pads[0] + i * dilations[0],
                        ix = z * strides[1] - pads[1] + j * dilations[1];
                if (iy < 0 || ix < 0 || iy >= x.shape()[2] || ix >= x.shape()[3]) continue;
                sum += x.At(Flat(x.shape(), {n, f / filters * w.shape()[1] + c, iy, ix})) *
                       w.At(Flat(w.shape(), {f, c, i, j}));
              }
          result.Set(Flat(out, {n, f, y, z}), sum);
        }
  return result;
}

NDArray NaiveConvTranspose(const Attrs& attrs, const NDArray& x, const NDArray& w, const Shape& out) {
  NDArray result(DType::kF64, out);
  Ints strides = attrs.Ints("strides"), pads = attrs.Ints("pads"), dilations = attrs.Ints("dilations");
  int64_t inputs = w.shape()[0] / attrs.Int("group", 1);
  for (int64_t n = 0; n < x.shape()[0]; ++n)
    for (int64_t c = 0; c < x.shape()[1]; ++c)
      for (int64_t y = 0; y < x.shape()[2]; ++y)
        for (int64_t z = 0; z < x.shape()[3]; ++z)
          for (int64_t f = 0; f < w.shape()[1]; ++f)
            for (int64_t i = 0; i < w.shape()[2]; ++i)
              for (int64_t j = 0; j < w.shape()[3]; ++j) {
                int64_t oy = y * strides[0] - pads[0] + i * dilations[0],
                        ox = z * strides[1] - pads[1] + j * dilations[1];
                if (oy < 0 || ox < 0 || oy >= out[2] || ox >= out[3]) continue;
                int64_t at = Flat(out, {n, c / inputs * w.shape()[1] + f, oy, ox});
                result.Set(at,
                           result.At(at) + x.At(Flat(x.shape(), {n, c, y, z})) * w.At(Flat(w.shape(), {c, f, i, j})));
              }
  return result;
}

Attrs RandomGroupedWindow(Rng& rng, int64_t kernel_h, int64_t kernel_w, int64_t group) {
  Ints pads, strides = {1 + rng.Below(3), 1 + rng.Below(3)}, dilations = {1 + rng.Below(2), 1 + rng.Below(2)};
  for (int i = 0; i < 4; ++i) pads.push_back(rng.Below((i % 2 == 0 ? kernel_h : kernel_w) + 1));
  return MakeAttrs({{"strides", strides}, {"dilations", dilations}, {"pads", pads}, {"group", group}});
}

TEST(Reference, ConvolutionEqualsTheNaiveOne) {
  Rng rng(1);
  int done = 0;
  for (int i = 0; i < 400; ++i) {
    int64_t group = 1 + rng.Below(3), channels = 1 + rng.Below(9), filters = 1 + rng.Below(9), kh = 1 + rng.Below(4),
            kw = 1 + rng.Below(4);
    DType dtype = i % 5 == 0 ? DType::kI32 : i % 7 == 0 ? DType::kF64 : DType::kF32;
    NDArray x = RandomArray(rng, dtype, {1 + rng.Below(2), group * channels, 1 + rng.Below(12), 1 + rng.Below(40)});
    NDArray w = RandomArray(rng, dtype, {group * filters, channels, kh, kw});
    Attrs attrs = RandomGroupedWindow(rng, kh, kw, group);
    absl::StatusOr<NDArray> fast = RunOp("conv2d", attrs, {x, w});
    if (!fast.ok()) continue;
    ++done;
    EXPECT_LT(RelativeError(*fast, NaiveConv(attrs, x, w, fast->shape())), 1e-6)
        << Text(attrs) << " " << ShapeText(x.shape());
  }
  EXPECT_GT(done, 200);
}

// Larger than every block of the multiplication, in each dimension.
TEST(Reference, ConvolutionAcrossBlocks) {
  Rng rng(2);
  NDArray x = RandomArray(rng, DType::kF32, {1, 40, 34, 36}), w = RandomArray(rng, DType::kF32, {101, 40, 3, 3});
  Attrs attrs = MakeAttrs(
      {{"strides", Ints{1, 1}}, {"dilations", Ints{1, 1}}, {"pads", Ints{1, 1, 1, 1}}, {"group", int64_t{1}}});
  NDArray fast = *RunOp("conv2d", attrs, {x, w});
  EXPECT_LT(RelativeError(fast, NaiveConv(attrs, x, w, fast.shape())), 1e-6);
}

TEST(Reference, TransposedConvolutionEqualsTheNaiveOne) {
  Rng rng(3);
  int done = 0;
  for (int i = 0; i < 300; ++i) {
    int64_t group = 1 + rng.Below(3), channels = 1 + rng.Below(5), filters = 1 + rng.Below(5), kh = 1 + rng.Below(4),
            kw = 1 + rng.Below(4);
    NDArray x = RandomArray(rng, i % 5 == 0 ? DType::kF64 : DType::kF32,
                            {1 + rng.Below(2), group * channels, 1 + rng.Below(8), 1 + rng.Below(8)});
    NDArray w = RandomArray(rng, x.dtype(), {group * channels, filters, kh, kw});
    Attrs attrs = RandomGroupedWindow(rng, kh, kw, group);
    Ints strides = attrs.Ints("strides");
    attrs.Set("output_padding", Ints{rng.Below(strides[0]), rng.Below(strides[1])});
    absl::StatusOr<NDArray> fast = RunOp("conv_transpose2d", attrs, {x, w});
    if (!fast.ok()) continue;
    ++done;
    EXPECT_LT(RelativeError(*fast, NaiveConvTranspose(attrs, x, w, fast->shape())), 1e-6)
        << Text(attrs) << " " << ShapeText(x.shape());
  }
  EXPECT_GT(done, 150);
}

TEST(Reference, MatmulEqualsTheNaiveOne) {
  Rng rng(4);
  for (int i = 0; i < 200; ++i) {
    bool large = i % 50 == 0;
    int64_t m = 1 + rng.Below(large ? 200 : 20), n = 1 + rng.Below(large ? 1500 : 40),
            k = 1 + rng.Below(large ? 600 : 40);
    bool trans_a = rng.Below(2) == 1, trans_b = rng.Below(2) == 1;
    // Batches [p, q] against [q] or [p, 1] or none.
    int64_t p = 1 + rng.Below(large ? 1 : 3), q = 1 + rng.Below(large ? 1 : 3);
    Shape batches[] = {{p, q}, {p, 1}, {q}, {}};
    int64_t pick_a = rng.Below(4), pick_b = rng.Below(4);
    Shape a_shape = batches[pick_a], b_shape = batches[pick_b];
    for (int64_t d : trans_a ? Ints{k, m} : Ints{m, k}) a_shape.push_back(d);
    for (int64_t d : trans_b ? Ints{n, k} : Ints{k, n}) b_shape.push_back(d);
    DType dtype = large || i % 3 > 0 ? DType::kF32 : DType::kI64;
    NDArray a = RandomArray(rng, dtype, a_shape), b = RandomArray(rng, dtype, b_shape);
    NDArray fast = *RunOp("matmul", MakeAttrs({{"trans_a", int64_t{trans_a}}, {"trans_b", int64_t{trans_b}}}), {a, b});
    NDArray naive(dtype, fast.shape());
    for (int64_t i = 0; i < fast.size(); ++i) {
      int64_t batch = i / (m * n), row = i / n % m, column = i % n;
      // Which of the operand's own matrices belongs to this one of the result.
      int64_t pq = pick_a == 0 || pick_b == 0 || (pick_a == 1 && pick_b == 2) || (pick_a == 2 && pick_b == 1) ? q : 1;
      auto own = [&](int64_t pick) { return pick == 0 ? batch : pick == 1 ? batch / pq : pick == 2 ? batch % q : 0; };
      double sum = 0;
      for (int64_t j = 0; j < k; ++j) {
        double x = a.At(own(pick_a) * m * k + (trans_a ? j * m + row : row * k + j));
        sum += x * b.At(own(pick_b) * k * n + (trans_b ? column * k + j : j * n + column));
      }
      naive.Set(i, sum);
    }
    EXPECT_LT(RelativeError(fast, naive), 1e-6)
        << ShapeText(a_shape) << " " << ShapeText(b_shape) << trans_a << trans_b;
  }
}

// All threads together make what one makes of each column: sums do not depend on how columns are shared out.
TEST(Reference, LargeProductsAreThoseOfTheirColumns) {
  constexpr int64_t kM = 1024, kN = 1041, kK = 1000;
  Rng rng(7);
  std::vector<float> a(kM * kK), b(kK * kN), whole(kM * kN), part(kM * kN);
  for (float& x : a) x = static_cast<float>(rng.Uniform());
  for (float& x : b) x = static_cast<float>(rng.Uniform());
  reference::Gemm(kM, kN, kK, {a.data(), kK, 1}, reference::Rows({b.data(), kN, 1}), whole.data(), kN);
  for (int64_t n = 0; n < kN; n += 100) {
    const int64_t columns = std::min<int64_t>(100, kN - n);
    reference::Gemm(kM, columns, kK, {a.data(), kK, 1}, reference::Rows({b.data() + n, kN, 1}), part.data() + n, kN);
  }
  EXPECT_EQ(whole, part);
}

TEST(Reference, MatmulNBitsEqualsTheNaiveOne) {
  Rng rng(6);
  for (int i = 0; i < 100; ++i) {
    const int64_t m = 1 + rng.Below(5), n = 1 + rng.Below(40), blocks = 1 + rng.Below(4),
                  block = 2 * (1 + rng.Below(9));
    const int64_t k = blocks * block, per_byte = 1 + rng.Below(2), zero = rng.Below(256);
    const bool offsets = rng.Below(2) == 0;
    NDArray numbers(DType::kU8, {k / per_byte, n});
    for (int64_t j = 0; j < numbers.size(); ++j) numbers.Set(j, static_cast<double>(rng.Below(256)));
    std::vector<NDArray> in = {RandomArray(rng, DType::kF32, {m, k}), numbers,
                               RandomArray(rng, DType::kF32, {blocks, n})};
    if (offsets) in.push_back(RandomArray(rng, DType::kF32, {blocks, n}));
    const NDArray fast = *RunOp("matmul_nbits", offsets ? Attrs() : MakeAttrs({{"zero", zero}}), in);
    NDArray naive(DType::kF32, {m, n});
    for (int64_t at = 0; at < naive.size(); ++at) {
      double sum = 0;
      for (int64_t j = 0; j < k; ++j) {
        const int byte = static_cast<int>(numbers.At(j / per_byte * n + at % n));
        const int number = per_byte == 1 ? byte : j % 2 == 0 ? byte % 16 : byte / 16;
        const int64_t of_block = j / block * n + at % n;
        const double w = offsets ? number * in[2].At(of_block) + in[3].At(of_block)
                                 : static_cast<double>(number - zero) * in[2].At(of_block);
        sum += in[0].At(at / n * k + j) * w;
      }
      naive.Set(at, sum);
    }
    EXPECT_LT(RelativeError(fast, naive), 1e-5);
  }
}

}  // namespace
}  // namespace temper
