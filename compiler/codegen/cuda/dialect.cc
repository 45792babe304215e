#include "compiler/codegen/cuda/dialect.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/substitute.h"
#include "compiler/codegen/c_like/types.h"
#include "compiler/codegen/cuda/functions.h"

namespace temper {
namespace {

constexpr int64_t kMostVectorBytes = 16;  // that one access moves

#define TEMPER_DEVICE "static __device__ __forceinline__ "

constexpr char kHead[] =
    "typedef unsigned char uchar;\n"
    "typedef unsigned short ushort;\n"
    "typedef unsigned int uint;\n"
    "typedef unsigned long ulong;\n"
    "#define char signed char  // on every host\n"
    "#ifndef NAN\n"
    "#define NAN __uint_as_float(0x7fc00000u)\n"
    "#define INFINITY __uint_as_float(0x7f800000u)\n"
    "#endif\n"
    "#ifndef LONG_MAX\n"
    "#define LONG_MAX 0x7fffffffffffffffL\n"
    "#define LONG_MIN (-LONG_MAX - 1L)\n"
    "#define ULONG_MAX 0xfffffffffffffffful\n"
    "#endif\n" TEMPER_DEVICE "uint as_uint(const float x) { return __float_as_uint(x); }\n" TEMPER_DEVICE
    "float as_float(const uint x) { return __uint_as_float(x); }\n" TEMPER_DEVICE
    "ulong as_ulong(const double x) { return (ulong)__double_as_longlong(x); }\n" TEMPER_DEVICE
    "double as_double(const ulong x) { return __longlong_as_double((long long)x); }\n";

std::string Kernel(const ir::Launch& launch) {
  return absl::StrCat("extern \"C\" __global__ __launch_bounds__(", launch.num_threads(), ")");
}

std::string GroupId(int axis) { return absl::StrCat("blockIdx.", std::string(1, "xyz"[axis])); }
std::string ThreadId(int axis) { return absl::StrCat("threadIdx.", std::string(1, "xyz"[axis])); }

// Of all that threads of the block stored before.
std::string Barrier(bool) { return "__syncthreads()"; }

// All arrays are parts of what a launch asks for: so they may be more than the 48 KiB that functions can have of their
// own, and none is made smaller than Launch::shared_bytes says.
std::string SharedArray(Prelude& prelude, int64_t offset, const ir::Buffer&, const std::string& type,
                        const std::string& name) {
  prelude.AddText("temper_shared",
                  absl::Substitute(TEMPER_DEVICE "uchar* temper_shared() {\n"
                                                 "  extern __shared__ __align__($0) uchar temper_bytes[];\n"
                                                 "  return temper_bytes;\n"
                                                 "}\n",
                                   ir::kSharedAlignment));
  return absl::StrCat(type, "* const ", name, " = (", type, "*)(temper_shared() + ", offset, ");");
}

std::string Math(const std::string& function, const std::string& type) {
  return type == "float" ? absl::StrCat(function, "f") : function;
}

std::string Vector(Prelude& prelude, const std::string& type, int64_t length) {
  const std::string name = absl::StrCat("temper_", type, length);
  const int64_t element = type == "double" || type.ends_with("long") ? 8
                          : type == "float" || type.ends_with("int") ? 4
                          : type.ends_with("short")                  ? 2
                                                                     : 1;
  const auto each = [&](const std::string& statement) {
    return absl::StrCat("#pragma unroll\n  for (int i = 0; i < ", length, "; ++i) ", statement, "\n");
  };
  std::string text = absl::Substitute(
      "struct __align__($2) $0 {\n"
      "  $1 x[$3];\n"
      "  __device__ __forceinline__ $0() {}\n"
      "  __device__ __forceinline__ explicit $0(const $1 v) {\n$4  }\n"
      "};\n" TEMPER_DEVICE "$0 vload$3(const int, const $1* p) {\n  $0 v;\n$5  return v;\n}\n" TEMPER_DEVICE
      "void vstore$3(const $0 v, const int, $1* p) {\n$6}\n",
      name, type, std::min(kMostVectorBytes, element * length), length, each("x[i] = v;"), each("v.x[i] = p[i];"),
      each("p[i] = v.x[i];"));
  for (const char* op : {"+", "-", "*", "/"}) {
    if (type != "float" && type != "double") break;
    absl::StrAppend(&text, TEMPER_DEVICE, name, " operator", op, "(const ", name, " a, const ", name, " b) {\n  ", name,
                    " v;\n", each(absl::StrCat("v.x[i] = a.x[i] ", op, " b.x[i];")), "  return v;\n}\n");
  }
  prelude.AddText(name, text);
  return name;
}

constexpr char kFromF16[] =
    "\n"
    "#ifdef __CUDACC_RTC__\n"
    "  float v;\n"
    "  asm(\"cvt.f32.f16 %0, %1;\" : \"=f\"(v) : \"h\"(x));\n"
    "  return v;\n"
    "#else\n"
    "  _Float16 v;\n"
    "  __builtin_memcpy(&v, &x, 2);\n"
    "  return (float)v;\n"
    "#endif\n"
    "}\n";

std::string ToF16(const std::string& type) {
  return absl::Substitute(
      "  ushort h;\n"
      "#ifdef __CUDACC_RTC__\n"
      "  asm(\"cvt.rn.f16.$0 %0, %1;\" : \"=h\"(h) : \"$1\"(x));\n"
      "#else\n"
      "  const _Float16 v = (_Float16)x;\n"
      "  __builtin_memcpy(&h, &v, 2);\n"
      "#endif\n"
      "  return h;\n"
      "}\n",
      type == "double" ? "f64" : "f32", type == "double" ? "d" : "f");
}

constexpr Dialect kDialect = {
    .name = "CUDA",
    .head = kHead,
    .function = TEMPER_DEVICE,
    .restrict_word = "__restrict__",
    .global = "",
    .shared = "",
    .kernel = Kernel,
    .group_id = GroupId,
    .thread_id = ThreadId,
    .barrier = Barrier,
    .shared_array = SharedArray,
    .math = Math,
    .vector = Vector,
    .vectors_by_element = false,
    .from_f16 = kFromF16,
    .to_f16 = ToF16,
    .warp_function = CudaFunction,
};

}  // namespace

const Dialect& CudaDialect() { return kDialect; }

}  // namespace temper
