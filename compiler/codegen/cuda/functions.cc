#include "compiler/codegen/cuda/functions.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/substitute.h"
#include "compiler/ir/launch.h"

namespace temper {
namespace {

// The compiler does not see behind the empty instruction: it would rather compute an address anew in each turn of a
// loop than keep it.
constexpr char kRowAt[] =
    "typedef uint temper_row;\n"
    "static __device__ __forceinline__ temper_row temper_row_at(const void* shared) {\n"
    "  uint row = (uint)__cvta_generic_to_shared(shared);\n"
    "  asm(\"\" : \"+r\"(row));\n"
    "  return row;\n"
    "}\n";

// From here on all are volatile: none moves across a barrier, nor over another.
// Of f32 the four words of a row of a quarter are eight halves to the instruction.
constexpr char kLoadMatrix[] =
    "void $0($1* to, const uint row) {\n"
    "  asm volatile(\"ldmatrix.sync.aligned.m8n8.x4$3.shared.b16 {%0, %1, %2, %3}, [%4];\"\n"
    "               : \"=$2\"(to[0]), \"=$2\"(to[1]), \"=$2\"(to[2]), \"=$2\"(to[3]) : \"r\"(row));\n"
    "}\n";

constexpr char kLoadF32[] =
    "float $0(const uint row) {\n"
    "  float x;\n"
    "  asm volatile(\"ld.shared.f32 %0, [%1];\" : \"=f\"(x) : \"r\"(row));\n"
    "  return x;\n"
    "}\n";

constexpr char kMultiply[] =
    "void $0(float* c, const uint* a, const uint* b) {\n"
    "#pragma unroll\n"
    "  for (int i = 0; i < 2; ++i)\n"
    "    asm volatile(\"mma.sync.aligned.m16n8k16.row.col.f32.$1.$1.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, \"\n"
    "                 \"{%8, %9}, {%0, %1, %2, %3};\"\n"
    "                 : \"+f\"(c[4 * i]), \"+f\"(c[4 * i + 1]), \"+f\"(c[4 * i + 2]), \"+f\"(c[4 * i + 3])\n"
    "                 : \"r\"(a[0]), \"r\"(a[1]), \"r\"(a[2]), \"r\"(a[3]), \"r\"(b[2 * i]), \"r\"(b[2 * i + 1]));\n"
    "}\n";

constexpr char kMultiplyTf32[] =
    "void $0(float* c, const float* a, const float* b) {\n"
    "#pragma unroll\n"
    "  for (int i = 0; i < 2; ++i)\n"
    "    asm volatile(\"mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, \"\n"
    "                 \"{%8, %9}, {%0, %1, %2, %3};\"\n"
    "                 : \"+f\"(c[4 * i]), \"+f\"(c[4 * i + 1]), \"+f\"(c[4 * i + 2]), \"+f\"(c[4 * i + 3])\n"
    "                 : \"r\"(as_uint(a[0])), \"r\"(as_uint(a[1])), \"r\"(as_uint(a[2])), \"r\"(as_uint(a[3])),\n"
    "                   \"r\"(as_uint(b[2 * i])), \"r\"(as_uint(b[2 * i + 1])));\n"
    "}\n";

// As cvt.rna.tf32 does it, but that of numbers below the normal ones what is too much is dropped: half a unit of the
// last place is added, and the rest cut off. ptxas makes comparisons and predicates of cvt, and runs out of registers
// for them in loops that have room for this.
constexpr char kRoundToTf32[] =
    "float $0(const float x) {\n"
    "  const float power = as_float(as_uint(x) & 0xff800000u);\n"
    "  return as_float(as_uint(__fmaf_rn(power, 0x1p-11f, x)) & 0xffffe000u);\n"
    "}\n";

// Words of 32 bits; of a smaller type, what is above it goes along.
constexpr char kExchange[] =
    "template <typename T>\n"
    "static __device__ __forceinline__ T temper_exchange(const T mine, const int lanes) {\n"
    "  union {\n"
    "    T value;\n"
    "    uint words[(sizeof(T) + 3) / 4];\n"
    "  } v;\n"
    "  v.words[0] = 0;\n"
    "  v.value = mine;\n"
    "#pragma unroll\n"
    "  for (int i = 0; i < (int)((sizeof(T) + 3) / 4); ++i)\n"
    "    asm volatile(\"shfl.sync.bfly.b32 %0, %0, %1, 0x1f, 0xffffffff;\" : \"+r\"(v.words[i]) : \"r\"(lanes));\n"
    "  return v.value;\n"
    "}\n";

// What passes the first cache by is in groups of 16 bytes alone. Nothing below 4 bytes is copied asynchronously: that
// is there at once, which whoever waits for copies and comes to a barrier does not tell apart.
constexpr char kCopy[] =
    "template <int kBytes>\n"
    "static __device__ __forceinline__ void temper_copy(void* shared, const void* global, const bool inside) {\n"
    "  if (kBytes == 2) {\n"
    "    *(ushort*)shared = inside ? *(const ushort*)global : 0;\n"
    "    return;\n"
    "  }\n"
    "  const uint to = (uint)__cvta_generic_to_shared(shared);\n"
    "  const int bytes = inside ? kBytes : 0;\n"
    "  if (kBytes == 16)\n"
    "    asm volatile(\"cp.async.cg.shared.global [%0], [%1], 16, %2;\" : : \"r\"(to), \"l\"(global), \"r\"(bytes));\n"
    "  else\n"
    "    asm volatile(\"cp.async.ca.shared.global [%0], [%1], %2, %3;\"\n"
    "                 : : \"r\"(to), \"l\"(global), \"n\"(kBytes), \"r\"(bytes));\n"
    "}\n";

constexpr char kCommit[] =
    "static __device__ __forceinline__ void temper_commit_copies() {\n"
    "  asm volatile(\"cp.async.commit_group;\");\n"
    "}\n";

constexpr char kWait[] =
    "template <int kMost>\n"
    "static __device__ __forceinline__ void temper_wait_copies() {\n"
    "  asm volatile(\"cp.async.wait_group %0;\" : : \"n\"(kMost) : \"memory\");\n"
    "}\n";

// PTX ISA, "Matrix Descriptor Format", without swizzling: of both kinds of matrices the "leading dimension byte offset"
// goes along the reduction, and the "stride dimension byte offset" along rows or columns.
constexpr char kDescriptor[] =
    "template <int kNextStep, int kNextOuter>\n"
    "static __device__ __forceinline__ ulong temper_descriptor(const uint tile) {\n"
    "  return (ulong)(kNextOuter >> 4) << 32 | (tile | (uint)(kNextStep >> 4) << 16);\n"
    "}\n";

constexpr char kTileAt[] =
    "static __device__ __forceinline__ uint temper_tile_at(const void* shared) {\n"
    "  return ((uint)__cvta_generic_to_shared(shared) & 0x3ffffu) >> 4;\n"
    "}\n";

// Nothing that the compiler does with sums moves over their beginning and their end.
constexpr char kTouchSums[] =
    "#pragma unroll\n"
    "  for (int i = 0; i < kSums; ++i) asm volatile(\"\" : \"+f\"(c[i]) : : \"memory\");\n";

constexpr char kBeginProducts[] =
    "template <int kSums>\n"
    "static __device__ __forceinline__ void temper_begin_products(float* c) {\n"
    "$0"
    "  asm volatile(\"wgmma.fence.sync.aligned;\" : : : \"memory\");\n"
    "}\n";

constexpr char kEndProducts[] =
    "template <int kSums>\n"
    "static __device__ __forceinline__ void temper_end_products(float* c) {\n"
    "  asm volatile(\"wgmma.commit_group.sync.aligned;\" : : : \"memory\");\n"
    "  asm volatile(\"wgmma.wait_group.sync.aligned 0;\" : : : \"memory\");\n"
    "$0"
    "}\n";

// Products read shared memory by another way than threads do ("async proxy").
constexpr char kTeamBarrier[] =
    "static __device__ __forceinline__ void temper_team_barrier() {\n"
    "  asm volatile(\"fence.proxy.async.shared::cta;\" : : : \"memory\");\n"
    "  __syncthreads();\n"
    "}\n";

constexpr char kAddProduct[] =
    "template <int kTurnedA, int kTurnedB>\n"
    "static __device__ __forceinline__ void $0(float* c, const ulong a, const ulong b) {\n"
    "  asm volatile(\"wgmma.mma_async.sync.aligned.m64n$1k16.f32.$2.$2 {$3}, $4, 1, 1, 1, $5;\"\n"
    "               : $6\n"
    "               : \"l\"(a), \"l\"(b), \"n\"(kTurnedA), \"n\"(kTurnedB));\n"
    "}\n";

// "temper_add_product_f16_64"; empty for a name that is none.
std::string AddProductBody(std::string_view name) {
  for (const char* type : {"f16", "bf16"}) {
    const std::string begin = absl::StrCat("temper_add_product_", type, "_");
    int columns = 0;
    if (!name.starts_with(begin) || !absl::SimpleAtoi(std::string(name.substr(begin.size())), &columns)) continue;
    if (columns <= 0 || columns > ir::kTeamColumns || columns % ir::kMatrixSide != 0) break;
    const int sums = columns / 2;
    std::string registers, operands;
    for (int i = 0; i < sums; ++i) {
      absl::StrAppend(&registers, i == 0 ? "" : ", ", "%", i);
      absl::StrAppend(&operands, i == 0 ? "" : ", ", "\"+f\"(c[", i, "])");
    }
    const auto pair = [&](int first) { return absl::StrCat("%", first, ", %", first + 1); };
    return absl::Substitute(kAddProduct, std::string(name), columns, type, registers, pair(sums), pair(sums + 2),
                            operands);
  }
  return "";
}

std::string BodyOf(std::string_view name) {
  constexpr char kFunction[] = "static __device__ __forceinline__ ";
  const auto made = [&](const char* text, auto... kinds) {
    return absl::StrCat(kFunction, absl::Substitute(text, std::string(name), kinds...));
  };
  if (name == "temper_row_at") return kRowAt;
  if (name == "temper_load_matrix") return made(kLoadMatrix, "uint", "r", "");
  if (name == "temper_load_matrix_transposed") return made(kLoadMatrix, "uint", "r", ".trans");
  if (name == "temper_load_matrix_f32") return made(kLoadMatrix, "float", "f", "");
  if (name == "temper_load_f32") return made(kLoadF32);
  if (name == "temper_multiply_tf32") return made(kMultiplyTf32);
  if (name == "temper_round_to_tf32") return made(kRoundToTf32);
  if (name == "temper_multiply_f16") return made(kMultiply, "f16");
  if (name == "temper_multiply_bf16") return made(kMultiply, "bf16");
  if (name == "temper_tile_at") return kTileAt;
  if (name == "temper_begin_products") return absl::Substitute(kBeginProducts, kTouchSums);
  if (name == "temper_end_products") return absl::Substitute(kEndProducts, kTouchSums);
  if (name == "temper_team_barrier") return kTeamBarrier;
  if (name == "temper_exchange") return kExchange;
  if (name == "temper_copy") return kCopy;
  if (name == "temper_commit_copies") return kCommit;
  if (name == "temper_wait_copies") return kWait;
  return AddProductBody(name);
}

}  // namespace

std::string CudaFunction(std::string_view name) {
  if (name == "temper_descriptor") return kDescriptor;
  const std::string body = BodyOf(name);
  return body.empty() ? "" : absl::StrCat("#ifdef __CUDACC_RTC__\n", body, "#endif\n");
}

}  // namespace temper
