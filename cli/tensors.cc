#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/rng.h"
#include "base/shape_limits.h"
#include "cli/command.h"
#include "compiler/frontend/onnx/tensor_file.h"

namespace temper {
namespace {

// NumPy's codes for the dtypes that have one (little-endian).
constexpr struct {
  DType dtype;
  std::string_view code;
} kNpyCodes[] = {{DType::kF32, "<f4"}, {DType::kF64, "<f8"}, {DType::kI64, "<i8"},  {DType::kI32, "<i4"},
                 {DType::kU8, "|u1"},  {DType::kI8, "|i1"},  {DType::kBool, "|b1"}, {DType::kF16, "<f2"},
                 {DType::kI16, "<i2"}, {DType::kU16, "<u2"}, {DType::kU32, "<u4"},  {DType::kU64, "<u8"}};
constexpr absl::string_view kMagic("\x93NUMPY", 6);

// The text between the first `open` after `key` and the next `close`.
std::string Field(const std::string& header, const std::string& key, char open, char close) {
  size_t at = header.find(key);
  if (at == std::string::npos) return "";
  size_t begin = header.find(open, at + key.size());
  size_t end = begin == std::string::npos ? begin : header.find(close, begin + 1);
  return end == std::string::npos ? "" : header.substr(begin + 1, end - begin - 1);
}

absl::StatusOr<NDArray> ReadNpy(const std::string& path, const std::string& bytes) {
  auto bad = [&](absl::string_view why) { return absl::InvalidArgumentError(absl::StrCat(path, ": ", why)); };
  if (bytes.size() < 12 || !absl::StartsWith(bytes, kMagic)) return bad("not an .npy file");
  const int major = bytes[6];
  const size_t prefix = major == 1 ? 10 : 12;
  uint32_t length = 0;
  std::memcpy(&length, bytes.data() + 8, major == 1 ? 2 : 4);
  if (bytes.size() < prefix + length) return bad("truncated");
  const std::string header = bytes.substr(prefix, length);
  if (absl::StrContains(header, "'fortran_order': True"))
    return bad("Fortran order is not supported: save np.ascontiguousarray(x)");
  const std::string descr = Field(header, "'descr':", '\'', '\'');
  Shape shape;
  for (const std::string& part :
       std::vector<std::string>(absl::StrSplit(Field(header, "'shape':", '(', ')'), ',', absl::SkipWhitespace()))) {
    int64_t d = 0;
    if (!absl::SimpleAtoi(part, &d) || d < 0) return bad("its header has no valid shape");
    shape.push_back(d);
  }
  for (const auto& [dtype, code] : kNpyCodes) {
    if (descr != code) continue;
    // Before anything is allocated: a shape alone costs a file nothing.
    if (const absl::Status sound = CheckTensorShape(shape); !sound.ok()) return bad(sound.message());
    if (bytes.size() - prefix - length < static_cast<size_t>(BytesOf(dtype, NumElements(shape))))
      return bad("truncated");
    TEMPER_ASSIGN_OR_RETURN(NDArray array, NDArray::Make(dtype, shape));
    std::memcpy(array.MutableData(), bytes.data() + prefix + length, static_cast<size_t>(array.bytes()));
    return array;
  }
  return bad("its dtype is not supported (f2, f4, f8, i1 to i8, u1 to u8, b1 are)");
}

}  // namespace

absl::StatusOr<NDArray> ReadTensorFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return absl::NotFoundError(absl::StrCat("cannot read ", path));
  std::stringstream bytes;
  bytes << in.rdbuf();
  if (absl::EndsWith(path, ".pb")) return ParseTensorProto(bytes.str(), path);
  return ReadNpy(path, bytes.str());
}

absl::Status WriteNpy(const std::string& path, const NDArray& array) {
  std::string_view code;
  for (const auto& entry : kNpyCodes) {
    if (entry.dtype == array.dtype()) code = entry.code;
  }
  if (code.empty())
    return absl::UnimplementedError(absl::StrCat(path, ": an .npy file has no ", std::string(Name(array.dtype()))));
  std::string shape;
  for (int64_t d : array.shape()) absl::StrAppend(&shape, d, ",");
  std::string header =
      absl::StrCat("{'descr': '", std::string(code), "', 'fortran_order': False, 'shape': (", shape, "), }");
  header.append(63 - (10 + header.size()) % 64, ' ');  // data begins at a multiple of 64
  header += '\n';
  const uint16_t length = static_cast<uint16_t>(header.size());
  std::ofstream out(path, std::ios::binary);
  out << kMagic << '\1' << '\0';
  out.write(reinterpret_cast<const char*>(&length), 2);
  out << header;
  out.write(static_cast<const char*>(array.data()), array.bytes());
  out.close();
  if (!out) return absl::UnavailableError(absl::StrCat("cannot write ", path));
  return absl::OkStatus();
}

absl::StatusOr<NDArray> RandomInput(const LoadedPackage::Io& io, uint64_t seed) {
  TEMPER_ASSIGN_OR_RETURN(NDArray array, NDArray::Make(io.dtype, io.shape));
  Rng rng(seed);
  for (int64_t i = 0; i < array.size(); ++i) {
    // Box and Muller's transform of two uniforms gives a normal.
    const double normal =
        std::sqrt(-2 * std::log(1 - rng.Uniform())) * std::cos(2 * 3.14159265358979323846 * rng.Uniform());
    array.Set(i, IsFloat(io.dtype) ? normal : static_cast<double>(rng.Below(2)));
  }
  return array;
}

std::string FileNameFor(const std::string& tensor) {
  std::string name = tensor;
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '.' && c != '_' && c != '-') c = '_';
  }
  return name;
}

}  // namespace temper
