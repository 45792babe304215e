#include "compiler/frontend/onnx/tensor_data.h"

#include <sys/mman.h>

#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>

#include "absl/strings/str_cat.h"

namespace temper::onnx_frontend {
namespace {

using onnx::TensorProto;

static_assert(std::endian::native == std::endian::little, "raw tensor data are little-endian");

absl::StatusOr<int64_t> ElementsOf(const TensorProto& t) {
  int64_t elements = 1;
  for (int64_t d : t.dims()) {
    if (d < 0 || (d > 0 && elements > (int64_t{1} << 36) / d))
      return absl::InvalidArgumentError(absl::StrCat("tensor '", t.name(), "' has impossible dimensions"));
    elements *= d;
  }
  return elements;
}

absl::Status WrongLength(const TensorProto& t) {
  return absl::InvalidArgumentError(
      absl::StrCat("tensor '", t.name(), "' has more or less data than its dimensions ask for"));
}

template <typename T, typename Field>
absl::Status CopyField(const TensorProto& t, const Field& field, NDArray& out) {
  if (field.size() != out.size()) return WrongLength(t);
  std::span<T> to = out.as<T>();
  for (int i = 0; i < field.size(); ++i) to[static_cast<size_t>(i)] = static_cast<T>(field[i]);
  return absl::OkStatus();
}

absl::Status CopyTyped(const TensorProto& t, NDArray& out) {
  switch (out.dtype()) {
    case DType::kF32:
      return CopyField<float>(t, t.float_data(), out);
    case DType::kF64:
      return CopyField<double>(t, t.double_data(), out);
    case DType::kI64:
      return CopyField<int64_t>(t, t.int64_data(), out);
    case DType::kI32:
      return CopyField<int32_t>(t, t.int32_data(), out);
    case DType::kU8:
    case DType::kBool:
      return CopyField<uint8_t>(t, t.int32_data(), out);
    case DType::kI8:
      return CopyField<int8_t>(t, t.int32_data(), out);
  }
  return absl::InternalError("a dtype without a field");
}

absl::Status ReadExternal(const TensorProto& t, const std::string& folder, NDArray& out) {
  std::string location;
  int64_t offset = 0;
  for (const auto& entry : t.external_data()) {
    if (entry.key() == "location") location = entry.value();
    if (entry.key() != "offset") continue;
    const char* end = entry.value().data() + entry.value().size();
    if (std::from_chars(entry.value().data(), end, offset).ptr != end) offset = -1;
  }
  // A model may name files beside it, not files anywhere.
  if (folder.empty() || location.empty() || location.front() == '/' || location.find("..") != std::string::npos ||
      offset < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor '", t.name(), "' keeps its data outside, in '", location, "', which can not be read"));
  }
  std::ifstream file(absl::StrCat(folder, "/", location), std::ios::binary);
  file.seekg(offset);
  file.read(static_cast<char*>(out.MutableData()), out.bytes());
  if (!file)
    return absl::NotFoundError(
        absl::StrCat("tensor '", t.name(), "': cannot read its data from ", folder, "/", location));
  return absl::OkStatus();
}

float HalfToFloat(uint16_t h) {
  const int exponent = (h >> 10) & 31, mantissa = h & 1023;
  const float sign = (h & 0x8000) != 0 ? -1.0f : 1.0f;
  if (exponent == 31)
    return mantissa == 0 ? sign * std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN();
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(mantissa), -24);
  return sign * std::ldexp(static_cast<float>(mantissa + 1024), exponent - 25);
}

// Most of a model's weights are written here and read once or never: huge pages would not be worth waiting for, the
// less where a virtual machine has to ask its host for them.
void TakeSmallPages(NDArray& a) {
  constexpr uintptr_t kLarge = 4 << 20, kPage = 4096;
  const auto begin = reinterpret_cast<uintptr_t>(a.MutableData());
  if (static_cast<uintptr_t>(a.bytes()) < kLarge || begin % kPage != 0) return;
  madvise(a.MutableData(), static_cast<size_t>(a.bytes()), MADV_NOHUGEPAGE);
}

// Weights kept in half precision are widened; activations of that type are refused where they appear.
absl::StatusOr<NDArray> HalfArray(const TensorProto& t, Shape shape, std::string_view raw) {
  NDArray out(DType::kF32, std::move(shape));
  const bool has_raw = t.has_raw_data() || !raw.empty();
  const int64_t count = has_raw ? static_cast<int64_t>(raw.size() / 2) : t.int32_data_size();
  if (count != out.size()) return WrongLength(t);
  for (int64_t i = 0; i < count; ++i) {
    uint16_t bits = has_raw ? 0 : static_cast<uint16_t>(t.int32_data(static_cast<int>(i)));
    if (has_raw) std::memcpy(&bits, raw.data() + 2 * i, 2);
    out.as<float>()[static_cast<size_t>(i)] = HalfToFloat(bits);
  }
  return out;
}

}  // namespace

absl::StatusOr<DType> DTypeOf(int onnx_type) {
  switch (onnx_type) {
    case TensorProto::FLOAT:
      return DType::kF32;
    case TensorProto::DOUBLE:
      return DType::kF64;
    case TensorProto::INT64:
      return DType::kI64;
    case TensorProto::INT32:
      return DType::kI32;
    case TensorProto::UINT8:
      return DType::kU8;
    case TensorProto::INT8:
      return DType::kI8;
    case TensorProto::BOOL:
      return DType::kBool;
    default:
      break;
  }
  const bool named = TensorProto::DataType_IsValid(onnx_type);
  return absl::UnimplementedError(absl::StrCat(
      "element type ", named ? TensorProto::DataType_Name(onnx_type) : absl::StrCat(onnx_type), " is not supported"));
}

absl::StatusOr<NDArray> ArrayOf(const TensorProto& t, const std::string& folder) {
  return ArrayOf(t, folder, t.raw_data());
}

absl::StatusOr<NDArray> ArrayOf(const TensorProto& t, const std::string& folder, std::string_view raw) {
  TEMPER_ASSIGN_OR_RETURN(int64_t elements, ElementsOf(t));
  Shape shape(t.dims().begin(), t.dims().end());
  const bool external = t.data_location() == TensorProto::EXTERNAL;
  if (t.data_type() == TensorProto::FLOAT16 && !external) return HalfArray(t, std::move(shape), raw);
  absl::StatusOr<DType> dtype = DTypeOf(t.data_type());
  if (!dtype.ok()) return absl::UnimplementedError(absl::StrCat("tensor '", t.name(), "': ", dtype.status().message()));
  // Checked before anything is allocated: dimensions alone cost a file nothing.
  const bool has_raw = t.has_raw_data() || !raw.empty();
  const bool raw_fits = static_cast<int64_t>(raw.size()) == elements * SizeOf(*dtype);
  if (!external && has_raw && !raw_fits) return WrongLength(t);
  const int64_t typed = t.float_data_size() + t.double_data_size() + t.int64_data_size() + t.int32_data_size();
  if (!external && !has_raw && typed != elements) return WrongLength(t);
  NDArray out(*dtype, std::move(shape));
  TakeSmallPages(out);
  if (external) {
    TEMPER_RETURN_IF_ERROR(ReadExternal(t, folder, out));
  } else if (has_raw) {
    if (elements > 0) std::memcpy(out.MutableData(), raw.data(), raw.size());
  } else {
    TEMPER_RETURN_IF_ERROR(CopyTyped(t, out));
  }
  return out;
}

}  // namespace temper::onnx_frontend
