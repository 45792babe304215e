#include "base/dtype.h"

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

struct DTypeInfo {
  DType dtype;
  std::string_view name;
  int64_t bytes;
};
constexpr DTypeInfo kDTypes[] = {
    {DType::kF32, "f32", 4}, {DType::kF64, "f64", 8}, {DType::kI64, "i64", 8},   {DType::kI32, "i32", 4},
    {DType::kU8, "u8", 1},   {DType::kI8, "i8", 1},   {DType::kBool, "bool", 1},
};
const DTypeInfo& Info(DType dtype) { return kDTypes[static_cast<int>(dtype)]; }

// Calls f with a typed pointer to the array's first element.
template <typename F>
auto Dispatch(DType dtype, void* data, F f) {
  switch (dtype) {
    case DType::kF32:
      return f(static_cast<float*>(data));
    case DType::kF64:
      return f(static_cast<double*>(data));
    case DType::kI64:
      return f(static_cast<int64_t*>(data));
    case DType::kI32:
      return f(static_cast<int32_t*>(data));
    case DType::kI8:
      return f(static_cast<int8_t*>(data));
    case DType::kU8:
    case DType::kBool:
      break;
  }
  return f(static_cast<uint8_t*>(data));
}

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

int64_t SizeOf(DType dtype) { return Info(dtype).bytes; }
std::string_view Name(DType dtype) { return Info(dtype).name; }
bool IsFloat(DType dtype) { return dtype == DType::kF32 || dtype == DType::kF64; }

absl::StatusOr<DType> DTypeFromName(std::string_view name) {
  for (const DTypeInfo& info : kDTypes) {
    if (info.name == name) return info.dtype;
  }
  return absl::InvalidArgumentError(absl::StrCat("unknown dtype '", std::string(name), "'"));
}

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
  return Dispatch(dtype_, data_.get(), [i](auto* p) { return static_cast<double>(p[i]); });
}

void NDArray::Set(int64_t i, double value) {
  if (dtype_ == DType::kBool) value = value != 0;
  Dispatch(dtype_, data_.get(),
           [i, value](auto* p) { p[i] = static_cast<std::remove_reference_t<decltype(*p)>>(value); });
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
