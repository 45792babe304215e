// Typed loops that the references are written with.
#pragma once

#include <cstdint>
#include <type_traits>
#include <vector>

#include "absl/functional/function_ref.h"
#include "base/ndarray.h"
#include "base/strides.h"
#include "compiler/ops/attrs.h"

namespace temper::reference {

[[noreturn]] void NotWidened(DType dtype);  // a mistake of the caller: ends the process with a word

// Calls f(T()) with the array's element type; booleans are uint8_t. Types without arithmetic do not come here: the
// registry widens them (widen.h).
template <typename F>
decltype(auto) WithType(DType dtype, F f) {
  switch (dtype) {
    case DType::kF32:
      return f(float());
    case DType::kF64:
      return f(double());
    case DType::kI64:
      return f(int64_t());
    case DType::kI32:
      return f(int32_t());
    case DType::kI16:
      return f(int16_t());
    case DType::kI8:
      return f(int8_t());
    case DType::kU64:
      return f(uint64_t());
    case DType::kU32:
      return f(uint32_t());
    case DType::kU16:
      return f(uint16_t());
    case DType::kU8:
    case DType::kBool:
      return f(uint8_t());
    case DType::kF16:
    case DType::kBF16:
    case DType::kF8E4M3FN:
    case DType::kF8E4M3FNUZ:
    case DType::kF8E5M2:
    case DType::kF8E5M2FNUZ:
    case DType::kF8E8M0:
    case DType::kI2:
    case DType::kU2:
    case DType::kI4:
    case DType::kU4:
    case DType::kF4E2M1:
      break;
  }
  NotWidened(dtype);
}

// The same by size only, for operators that move elements without looking at them.
template <typename F>
decltype(auto) WithSize(DType dtype, F f) {
  switch (Info(dtype).bits) {
    case 64:
      return f(uint64_t());
    case 32:
      return f(uint32_t());
    case 16:
      return f(uint16_t());
    case 8:
      return f(uint8_t());
    default:
      NotWidened(dtype);
  }
}

// Attribute `axis`, counted from the front.
int64_t AxisOf(const Attrs& attrs, int64_t otherwise, const Shape& shape);
// Strides of `operand` along the axes of `result`; 0 where it is broadcast.
std::vector<int64_t> BroadcastStrides(const Shape& operand, const Shape& result);

// Walks `shape` in row-major order in runs along the last axis: f(first flat index, offsets of each operand, length),
// where operand k advances by strides[k].back() along the run.
void ForEachRun(const Shape& shape, const std::vector<std::vector<int64_t>>& strides,
                absl::FunctionRef<void(int64_t, const std::vector<int64_t>&, int64_t)> f);

// result[i] = f(x[i]).
template <typename Out, typename In, typename F>
void MapInto(const NDArray& x, NDArray& result, F f) {
  const In* in = x.as<In>().data();
  Out* out = result.as<Out>().data();
  int64_t n = x.size();
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<Out>(f(in[i]));
}

// result = f(a, b) with broadcasting.
template <typename Out, typename A, typename B, typename F>
void Map2Into(const NDArray& a, const NDArray& b, NDArray& result, F f) {
  std::vector<std::vector<int64_t>> strides = {BroadcastStrides(a.shape(), result.shape()),
                                               BroadcastStrides(b.shape(), result.shape())};
  int64_t sa = strides[0].empty() ? 0 : strides[0].back(), sb = strides[1].empty() ? 0 : strides[1].back();
  ForEachRun(result.shape(), strides, [&](int64_t at, const std::vector<int64_t>& offsets, int64_t n) {
    const A* pa = a.as<A>().data() + offsets[0];
    const B* pb = b.as<B>().data() + offsets[1];
    Out* out = result.as<Out>().data() + at;
    if (sa == 1 && sb == 1) {
      for (int64_t i = 0; i < n; ++i) out[i] = static_cast<Out>(f(pa[i], pb[i]));
    } else if (sa == 1 && sb == 0) {
      B y = *pb;
      for (int64_t i = 0; i < n; ++i) out[i] = static_cast<Out>(f(pa[i], y));
    } else {
      for (int64_t i = 0; i < n; ++i) out[i] = static_cast<Out>(f(pa[i * sa], pb[i * sb]));
    }
  });
}

}  // namespace temper::reference
