#include "compiler/codegen/opencl/dialect.h"

#include "absl/strings/str_cat.h"
#include "compiler/codegen/c_like/types.h"

namespace temper {
namespace {

std::string Kernel(const ir::Launch& launch) {
  const auto& t = launch.threads;
  return absl::StrCat("__kernel __attribute__((reqd_work_group_size(", t[0], ", ", t[1], ", ", t[2], ")))");
}

std::string GroupId(int axis) { return absl::StrCat("get_group_id(", axis, ")"); }
std::string ThreadId(int axis) { return absl::StrCat("get_local_id(", axis, ")"); }

std::string Barrier(bool memory) {
  return absl::StrCat("barrier(CLK_LOCAL_MEM_FENCE", memory ? " | CLK_GLOBAL_MEM_FENCE" : "", ")");
}

std::string SharedArray(Prelude&, int64_t, const ir::Buffer& array, const std::string& type, const std::string& name) {
  return absl::StrCat("__local ", type, " ", name, "[", ElementsOf(array), "] __attribute__((aligned(",
                      ir::kSharedAlignment, ")));");
}

std::string Math(const std::string& function, const std::string&) { return function; }

std::string Vector(Prelude&, const std::string& type, int64_t length) { return absl::StrCat(type, length); }

std::string NoWarpFunction(std::string_view) { return ""; }

constexpr Dialect kDialect = {
    .name = "OpenCL",
    .head = "",
    .function = "static inline ",
    .restrict_word = "restrict",
    .global = "__global ",
    .shared = "__local ",
    .kernel = Kernel,
    .group_id = GroupId,
    .thread_id = ThreadId,
    .barrier = Barrier,
    .shared_array = SharedArray,
    .math = Math,
    .vector = Vector,
    .vectors_by_element = true,  // PoCL 3.1 mistakes vload2 of what an unrolled loop stored element by element
    .from_f16 = nullptr,         // vload_half and vstore_half branch on PoCL
    .to_f16 = nullptr,
    .warp_function = NoWarpFunction,
};

}  // namespace

const Dialect& OpenclDialect() { return kDialect; }

}  // namespace temper
