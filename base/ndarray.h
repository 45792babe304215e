// Host tensors: they carry weights, inputs and reference results.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"

namespace temper {

using Shape = std::vector<int64_t>;  // a scalar has the empty shape
int64_t NumElements(std::span<const int64_t> shape);
std::string ShapeText(std::span<const int64_t> shape);  // "1x3x224x224"; a scalar is "scalar"

// A dense, row-major host tensor; elements of less than a byte are packed without regard to rows. Copies share the
// bytes (a value handed on is not copied); `MutableData` is for the one that made it. The storage is aligned to 64
// bytes.
class NDArray {
 public:
  NDArray() = default;
  NDArray(DType dtype, Shape shape);  // zero-filled; aborts where there is no memory
  // The same for shapes that come from outside. An error: no tensor is like that, or there is no memory for it.
  static absl::StatusOr<NDArray> Make(DType dtype, Shape shape);

  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  int64_t size() const { return NumElements(shape_); }  // elements
  int64_t bytes() const { return BytesOf(dtype_, size()); }
  const void* data() const { return data_.get(); }
  void* MutableData() { return data_.get(); }
  // Of types that are a T in memory.
  template <typename T>
  std::span<const T> as() const {
    return {static_cast<const T*>(data()), static_cast<size_t>(size())};
  }
  template <typename T>
  std::span<T> as() {
    return {static_cast<T*>(MutableData()), static_cast<size_t>(size())};
  }

  // The element at flat position i, whatever the dtype; exact for integers below 2^53. Set rounds as the type does.
  double At(int64_t i) const;
  void Set(int64_t i, double value);

  NDArray Reshaped(Shape shape) const;  // shares the bytes; the number of elements must agree
  NDArray Clone() const;
  // The same numbers as `dtype`, each converted once: floats rounded to the nearest, integers wrapped.
  NDArray ConvertedTo(DType dtype) const;

 private:
  bool Allocate();  // for dtype_ and shape_

  DType dtype_ = DType::kF32;
  Shape shape_;
  std::shared_ptr<char[]> data_;
};

// Largest |a-b| over largest |b|: the measure every error bound in Temper is stated in. Infinite where shapes differ
// or a value is not finite where b's is.
double RelativeError(const NDArray& a, const NDArray& b);

}  // namespace temper
