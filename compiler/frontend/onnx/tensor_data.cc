#include "compiler/frontend/onnx/tensor_data.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/descriptor.h"
#include "base/shape_limits.h"

namespace temper::onnx_frontend {
namespace {

using onnx::TensorProto;

static_assert(std::endian::native == std::endian::little, "raw tensor data are little-endian");

// Of the tensor of that name: the line says whose it is.
absl::Status Named(const TensorProto& t, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat("tensor '", t.name(), "': ", std::string(status.message())));
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

// Values of the type's own bits, one in each entry of a field; packed elements come by whole bytes.
template <typename Field>
absl::Status CopyBits(const TensorProto& t, const Field& field, NDArray& out) {
  const DType unit = IsPacked(out.dtype()) ? DType::kU8 : out.dtype();
  if (static_cast<int64_t>(field.size()) * SizeOf(unit) != out.bytes()) return WrongLength(t);
  for (int i = 0; i < field.size(); ++i) StoreBits(unit, out.MutableData(), i, static_cast<uint64_t>(field[i]));
  return absl::OkStatus();
}

absl::Status CopyTyped(const TensorProto& t, NDArray& out) {
  const DTypeInfo& type = Info(out.dtype());
  if (type.dtype == DType::kF32) return CopyField<float>(t, t.float_data(), out);
  if (type.dtype == DType::kF64) return CopyField<double>(t, t.double_data(), out);
  if (type.dtype == DType::kI64) return CopyBits(t, t.int64_data(), out);
  if (type.kind == TypeKind::kUnsigned && type.bits >= 32) return CopyBits(t, t.uint64_data(), out);
  return CopyBits(t, t.int32_data(), out);
}

// A number of bytes as the file has it; -1: it is none.
int64_t BytesFrom(const std::string& text) {
  int64_t bytes = 0;
  const char* const end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, bytes);
  return error == std::errc() && stopped == end ? bytes : -1;
}

// As many bytes as `out` has, from `offset` on. False: they are not there.
bool ReadAt(const std::string& path, int64_t offset, NDArray& out) {
  // A pipe would wait for somebody who writes.
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status;
  if (!file.valid() || fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) return false;
  auto* to = static_cast<char*>(out.MutableData());
  for (int64_t done = 0; done < out.bytes();) {
    const ssize_t got = pread(file.get(), to + done, static_cast<size_t>(out.bytes() - done), offset + done);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    done += got;
  }
  return true;
}

absl::Status ReadExternal(const TensorProto& t, const std::string& folder, NDArray& out) {
  std::string location;
  int64_t offset = 0, length = out.bytes();
  for (const auto& entry : t.external_data()) {
    if (entry.key() == "location") location = entry.value();
    if (entry.key() == "offset") offset = BytesFrom(entry.value());
    if (entry.key() == "length") length = BytesFrom(entry.value());
  }
  // A model may name files beside it, not files anywhere. A link there may lead anywhere: caches of models are made of
  // links, and who can make one there can read the file anyway.
  if (folder.empty() || location.empty() || location.front() == '/' || location.find("..") != std::string::npos ||
      offset < 0 || offset > std::numeric_limits<int64_t>::max() - out.bytes()) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor '", t.name(), "' keeps its data outside, in '", location, "', which can not be read"));
  }
  if (length != out.bytes()) return WrongLength(t);
  if (ReadAt(absl::StrCat(folder, "/", location), offset, out)) return absl::OkStatus();
  return absl::NotFoundError(
      absl::StrCat("tensor '", t.name(), "': cannot read its data from ", folder, "/", location));
}

// Most of a model's weights are written here and read once or never: huge pages would not be worth waiting for, the
// less where a virtual machine has to ask its host for them.
void TakeSmallPages(NDArray& a) {
  constexpr uintptr_t kLarge = 4 << 20, kPage = 4096;
  const auto begin = reinterpret_cast<uintptr_t>(a.MutableData());
  if (static_cast<uintptr_t>(a.bytes()) < kLarge || begin % kPage != 0) return;
  madvise(a.MutableData(), static_cast<size_t>(a.bytes()), MADV_NOHUGEPAGE);
}

}  // namespace

absl::StatusOr<DType> DTypeOf(int onnx_type) {
  absl::StatusOr<DType> dtype = DTypeFromOnnx(onnx_type);
  if (dtype.ok() || !TensorProto::DataType_IsValid(onnx_type)) return dtype;
  return absl::UnimplementedError(
      absl::StrCat("element type ", TensorProto::DataType_Name(onnx_type), " is not supported"));
}

absl::StatusOr<NDArray> ArrayOf(const TensorProto& t, const std::string& folder) {
  return ArrayOf(t, folder, t.raw_data());
}

absl::StatusOr<NDArray> ArrayOf(const TensorProto& t, const std::string& folder, std::string_view raw) {
  Shape shape(t.dims().begin(), t.dims().end());
  if (const absl::Status sound = CheckTensorShape(shape); !sound.ok()) return Named(t, sound);
  const int64_t elements = NumElements(shape);
  const bool external = t.data_location() == TensorProto::EXTERNAL;
  absl::StatusOr<DType> dtype = DTypeOf(t.data_type());
  if (!dtype.ok()) return absl::UnimplementedError(absl::StrCat("tensor '", t.name(), "': ", dtype.status().message()));
  // Checked before anything is allocated: dimensions alone cost a file nothing.
  const bool has_raw = t.has_raw_data() || !raw.empty();
  const bool raw_fits = static_cast<int64_t>(raw.size()) == BytesOf(*dtype, elements);
  if (!external && has_raw && !raw_fits) return WrongLength(t);
  const int64_t typed =
      t.float_data_size() + t.double_data_size() + t.int64_data_size() + t.int32_data_size() + t.uint64_data_size();
  if (!external && !has_raw && typed != (IsPacked(*dtype) ? BytesOf(*dtype, elements) : elements))
    return WrongLength(t);
  absl::StatusOr<NDArray> made = NDArray::Make(*dtype, std::move(shape));
  if (!made.ok()) return Named(t, made.status());
  NDArray& out = *made;
  TakeSmallPages(out);
  if (external) {
    TEMPER_RETURN_IF_ERROR(ReadExternal(t, folder, out));
  } else if (has_raw) {
    if (elements > 0) std::memcpy(out.MutableData(), raw.data(), raw.size());
  } else {
    TEMPER_RETURN_IF_ERROR(CopyTyped(t, out));
  }
  return made;
}

}  // namespace temper::onnx_frontend
