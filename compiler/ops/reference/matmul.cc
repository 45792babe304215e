#include "compiler/ops/reference/gemm.h"
#include "compiler/ops/reference/loops.h"
#include "compiler/ops/reference/reference.h"

namespace temper::reference {
namespace {

// The stored matrix of one batch element and its strides after transposition.
template <typename T>
struct Operand {
  const T* data;
  int64_t row_stride, column_stride;
};

template <typename T>
Operand<T> Stored(const NDArray& x, bool transposed) {
  int64_t columns = x.shape().back();
  return {x.as<T>().data(), transposed ? 1 : columns, transposed ? columns : 1};
}

template <typename T>
void Multiply(int64_t m, int64_t n, int64_t k, const Operand<T>& a, const Operand<T>& b, T* c) {
  if constexpr (std::is_same_v<T, float>) {
    Gemm(m, n, k, {a.data, a.row_stride, a.column_stride}, Rows({b.data, b.row_stride, b.column_stride}), c, n);
    return;
  }
  for (int64_t i = 0; i < m; ++i) {
    std::fill_n(c + i * n, n, T(0));
    for (int64_t p = 0; p < k; ++p) {
      T x = a.data[i * a.row_stride + p * a.column_stride];
      for (int64_t j = 0; j < n; ++j) c[i * n + j] += x * b.data[p * b.row_stride + j * b.column_stride];
    }
  }
}

absl::StatusOr<NDArray> Matmul(const Attrs& attrs, Arrays in, const TensorType& output) {
  const NDArray& a = in[0];
  const NDArray& b = in[1];
  bool trans_a = attrs.Int("trans_a", 0) != 0, trans_b = attrs.Int("trans_b", 0) != 0;
  size_t rank = output.shape.size();
  int64_t m = output.shape[rank - 2], n = output.shape[rank - 1];
  int64_t k = a.shape()[a.shape().size() - (trans_a ? 2 : 1)];
  NDArray result(output.dtype, output.shape);
  // Offsets of each batch element: broadcasting over all axes but the last two.
  Shape batch(output.shape.begin(), output.shape.end() - 2);
  Shape batch_a(a.shape().begin(), a.shape().end() - 2), batch_b(b.shape().begin(), b.shape().end() - 2);
  std::vector<std::vector<int64_t>> strides = {BroadcastStrides(batch_a, batch), BroadcastStrides(batch_b, batch)};
  WithType(output.dtype, [&](auto t) {
    using T = decltype(t);
    Operand<T> first = Stored<T>(a, trans_a), second = Stored<T>(b, trans_b);
    ForEachRun(batch, strides, [&](int64_t at, const std::vector<int64_t>& offsets, int64_t length) {
      for (int64_t i = 0; i < length; ++i) {
        int64_t ia = offsets[0] + (batch.empty() ? 0 : i * strides[0].back());
        int64_t ib = offsets[1] + (batch.empty() ? 0 : i * strides[1].back());
        Multiply<T>(m, n, k, {first.data + ia * m * k, first.row_stride, first.column_stride},
                    {second.data + ib * k * n, second.row_stride, second.column_stride},
                    result.as<T>().data() + (at + i) * m * n);
      }
    });
  });
  return result;
}

// Bytes as floats, each block of them times its scale.
NDArray Scaled(const NDArray& bytes, const NDArray& scales, int64_t block) {
  NDArray x = bytes.ConvertedTo(DType::kF32);
  const std::span<const float> each = scales.as<float>();
  const std::span<float> numbers = x.as<float>();
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] *= each[i / static_cast<size_t>(block)];
  return x;
}

absl::StatusOr<NDArray> MatmulNBits(const Attrs& attrs, Arrays in, const TensorType& output) {
  const NDArray& numbers = in[1];
  const int64_t depth = in[0].shape().back(), columns = numbers.shape()[1], block = depth / in[2].shape()[0];
  const bool halves = numbers.shape()[0] != depth;
  const uint8_t* bytes = numbers.as<uint8_t>().data();
  const float* scales = in[2].as<float>().data();
  const bool of_bytes = in[0].dtype() == DType::kI8;
  const size_t at = of_bytes ? 4 : 3;
  const float* offsets = in.size() > at && !in[at].shape().empty() ? in[at].as<float>().data() : nullptr;
  const float zero = static_cast<float>(attrs.Int("zero", 0));
  const RowReader row = [&](int64_t k, int64_t n0, int64_t count, float* to) {
    for (int64_t n = n0; n < n0 + count; ++n) {
      const int64_t of_block = k / block * columns + n;
      const uint8_t byte = bytes[(halves ? k / 2 : k) * columns + n];
      const int number = !halves ? byte : k % 2 == 0 ? byte & 15 : byte >> 4;
      *to++ = static_cast<float>(number) * scales[of_block] +
              (offsets != nullptr ? offsets[of_block] : -zero * scales[of_block]);
    }
  };
  NDArray result(output.dtype, output.shape);
  const int64_t rows = NumElements(std::span(output.shape).first(output.shape.size() - 1));
  const NDArray x = of_bytes ? Scaled(in[0], in[3], block) : in[0];
  Gemm(rows, columns, depth, {x.as<float>().data(), depth, 1}, row, result.as<float>().data(), columns);
  return result;
}

}  // namespace

std::span<const Reference> MatmulReferences() {
  static constexpr Reference kTable[] = {
      {"matmul", Matmul},
      {"matmul_nbits", MatmulNBits},
      {"matmul_nbits_i8", MatmulNBits},
  };
  return kTable;
}

}  // namespace temper::reference
