#include "base/ndarray.h"

#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace temper {
namespace {

// Zeroed. Large ones are mapped: their pages come zeroed, and huge ones are soon there.
std::shared_ptr<char[]> Allocate(size_t size) {
  constexpr size_t kMapped = 4 << 20, kHugePage = 2 << 20;
  if (size >= kMapped) {
    const size_t mapped = size + kHugePage;
    void* base = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base != MAP_FAILED) {
      const uintptr_t begin = (reinterpret_cast<uintptr_t>(base) + kHugePage - 1) / kHugePage * kHugePage;
      madvise(reinterpret_cast<void*>(begin), size, MADV_HUGEPAGE);
      return std::shared_ptr<char[]>(reinterpret_cast<char*>(begin), [=](char*) { munmap(base, mapped); });
    }
  }
  char* data = static_cast<char*>(std::aligned_alloc(64, size));
  std::memset(data, 0, size);
  return std::shared_ptr<char[]>(data, [](char* p) { std::free(p); });
}

}  // namespace

int64_t NumElements(std::span<const int64_t> shape) {
  int64_t n = 1;
  for (int64_t d : shape) n *= d;
  return n;
}

std::string ShapeText(std::span<const int64_t> shape) {
  return shape.empty() ? "scalar" : absl::StrJoin(shape.begin(), shape.end(), "x");
}

NDArray::NDArray(DType dtype, Shape shape) : dtype_(dtype), shape_(std::move(shape)) {
  // 64 bytes more than needed, so that a whole vector may be read at the last element.
  size_t size = static_cast<size_t>(bytes()) / 64 * 64 + 128;
  data_ = Allocate(size);
}

double NDArray::At(int64_t i) const {
  if (dtype_ == DType::kF32) return static_cast<double>(as<float>()[static_cast<size_t>(i)]);
  const uint64_t bits = LoadBits(dtype_, data_.get(), i);
  if (IsFloat(dtype_)) return DecodeFloat(dtype_, bits);
  return dtype_ == DType::kU64 ? static_cast<double>(bits)
                               : static_cast<double>(WrapInteger(dtype_, static_cast<int64_t>(bits)));
}

void NDArray::Set(int64_t i, double value) {
  if (dtype_ == DType::kBool) value = value != 0;
  StoreBits(dtype_, data_.get(), i,
            IsFloat(dtype_) ? EncodeFloat(dtype_, value) : static_cast<uint64_t>(TruncateTo(dtype_, value)));
}

NDArray NDArray::Reshaped(Shape shape) const {
  NDArray result = *this;
  result.shape_ = std::move(shape);
  return result;
}

NDArray NDArray::Clone() const {
  NDArray result(dtype_, shape_);
  if (bytes() > 0) std::memcpy(result.MutableData(), data(), static_cast<size_t>(bytes()));
  return result;
}

NDArray NDArray::ConvertedTo(DType dtype) const {
  if (dtype == dtype_) return *this;
  NDArray result(dtype, shape_);
  const bool integers = !IsFloat(dtype) && !IsFloat(dtype_);
  for (int64_t i = 0, n = size(); i < n; ++i) {
    if (!integers) {
      result.Set(i, At(i));
      continue;
    }
    const int64_t value = WrapInteger(dtype_, static_cast<int64_t>(LoadBits(dtype_, data(), i)));
    StoreBits(dtype, result.MutableData(), i, static_cast<uint64_t>(WrapInteger(dtype, value)));
  }
  return result;
}

double RelativeError(const NDArray& a, const NDArray& b) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (a.shape() != b.shape()) return kInfinity;
  double worst = 0, largest = 0;
  for (int64_t i = 0; i < b.size(); ++i) {
    double x = a.At(i), y = b.At(i);
    if (std::isfinite(y)) {
      if (!std::isfinite(x)) return kInfinity;
      worst = std::max(worst, std::abs(x - y));
      largest = std::max(largest, std::abs(y));
    } else if (!(x == y || (std::isnan(x) && std::isnan(y)))) {
      return kInfinity;
    }
  }
  return worst == 0 ? 0 : worst / std::max(largest, 1e-12);
}

}  // namespace temper
