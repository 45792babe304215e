#include "base/ndarray.h"

#include <spdlog/spdlog.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/shape_limits.h"

namespace temper {
namespace {

// Zeroed; null: there is no memory. Large ones are mapped: their pages come zeroed, and huge ones are soon there.
std::shared_ptr<char[]> Zeroed(size_t size) {
  constexpr size_t kMapped = 4 << 20, kHugePage = 2 << 20;
  if (size >= kMapped) {
    const size_t mapped = size + kHugePage;
    void* base = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) return nullptr;
    const uintptr_t begin = (reinterpret_cast<uintptr_t>(base) + kHugePage - 1) / kHugePage * kHugePage;
    madvise(reinterpret_cast<void*>(begin), size, MADV_HUGEPAGE);
    return std::shared_ptr<char[]>(reinterpret_cast<char*>(begin), [=](char*) { munmap(base, mapped); });
  }
  char* data = static_cast<char*>(std::aligned_alloc(64, size));
  if (data == nullptr) return nullptr;
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

// The constructor takes what nests and packed weights need, which may be more than a tensor of a model.
bool NDArray::Allocate() {
  int64_t bits = Info(dtype_).bits;
  for (const int64_t extent : shape_) {
    if (extent < 0 || __builtin_mul_overflow(bits, std::max<int64_t>(extent, 1), &bits)) return false;
  }
  // 64 bytes more than needed, so that a whole vector may be read at the last element.
  const size_t size = static_cast<size_t>(bytes()) / 64 * 64 + 128;
  data_ = Zeroed(size);
  return data_ != nullptr;
}

NDArray::NDArray(DType dtype, Shape shape) : dtype_(dtype), shape_(std::move(shape)) {
  if (Allocate()) return;
  spdlog::critical("no memory for an array of {} {}", Name(dtype_), ShapeText(shape_));
  std::abort();
}

absl::StatusOr<NDArray> NDArray::Make(DType dtype, Shape shape) {
  TEMPER_RETURN_IF_ERROR(CheckTensorShape(shape));
  NDArray made;
  made.dtype_ = dtype;
  made.shape_ = std::move(shape);
  if (made.Allocate()) return made;
  return absl::ResourceExhaustedError(
      absl::StrCat("no memory for a tensor of ", std::string(Name(dtype)), " ", ShapeText(made.shape_)));
}

double NDArray::At(int64_t i) const {
  if (dtype_ == DType::kF32) return static_cast<double>(static_cast<const float*>(data())[i]);
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

namespace {

// Large models are converted as a whole, and each kernel's answer is: these do in a nanosecond what EncodeFloat and
// DecodeFloat take a hundred for.
bool IsFloatOf16Bits(DType dtype) { return dtype == DType::kF16 || dtype == DType::kBF16; }

void Widen(DType dtype, const uint16_t* from, int64_t n, float* to) {
  static const auto* const all_of_f16 = [] {
    auto* table = new std::vector<float>;
    for (uint64_t bits = 0; bits <= 0xffff; ++bits)
      table->push_back(static_cast<float>(DecodeFloat(DType::kF16, bits)));
    return table;
  }();
  for (int64_t i = 0; i < n; ++i) {
    to[i] = dtype == DType::kF16 ? (*all_of_f16)[from[i]] : std::bit_cast<float>(uint32_t{from[i]} << 16);
  }
}

// Rounds the number's last `dropped` bits away, to the nearest, of a tie to the even one. A carry goes where it
// belongs.
uint32_t RoundedOff(uint32_t bits, int dropped) {
  return (bits + ((uint32_t{1} << (dropped - 1)) - 1) + (bits >> dropped & 1)) >> dropped;
}

uint16_t NarrowedToF16(float magnitude) {
  constexpr float kLeastInfinite = 65520, kLeastNormal = 0x1p-14f, kUnitsOf2To24 = 0.5f;
  constexpr uint32_t kBiases = (127 - 15) << 10;
  if (magnitude >= kLeastInfinite) return 0x7c00;
  // The sum's last place is that of subnormal numbers.
  if (magnitude < kLeastNormal)
    return static_cast<uint16_t>(std::bit_cast<uint32_t>(magnitude + kUnitsOf2To24) -
                                 std::bit_cast<uint32_t>(kUnitsOf2To24));
  return static_cast<uint16_t>(RoundedOff(std::bit_cast<uint32_t>(magnitude), 13) - kBiases);
}

void Narrow(DType dtype, const float* from, int64_t n, uint16_t* to) {
  for (int64_t i = 0; i < n; ++i) {
    const float magnitude = std::abs(from[i]);
    const auto sign = static_cast<uint16_t>(std::signbit(from[i]) ? 0x8000 : 0);
    if (std::isnan(from[i])) {
      to[i] = static_cast<uint16_t>(EncodeFloat(dtype, static_cast<double>(from[i])));
    } else if (dtype == DType::kF16) {
      to[i] = sign | NarrowedToF16(magnitude);
    } else {
      to[i] = sign | static_cast<uint16_t>(RoundedOff(std::bit_cast<uint32_t>(magnitude), 16));
    }
  }
}

}  // namespace

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
  if (dtype == DType::kF32 && IsFloatOf16Bits(dtype_)) {
    Widen(dtype_, static_cast<const uint16_t*>(data()), size(), static_cast<float*>(result.MutableData()));
    return result;
  }
  if (dtype_ == DType::kF32 && IsFloatOf16Bits(dtype)) {
    Narrow(dtype, static_cast<const float*>(data()), size(), static_cast<uint16_t*>(result.MutableData()));
    return result;
  }
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
