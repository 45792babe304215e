// What OpenCL C and CUDA C++ say in different words. All else they share: their types are called as OpenCL calls them,
// where need be by what stands at the head of a program.
#pragma once

#include <string>
#include <string_view>

#include "base/dtype.h"
#include "compiler/ir/launch.h"

namespace temper {

class Prelude;

struct Dialect {
  const char* name;      // for messages
  const char* head;      // of every program
  const char* function;  // what functions that kernels call begin with
  const char* restrict_word;
  const char *global, *shared;  // spaces of pointers: "__global "; empty where a pointer reaches everything

  std::string (*kernel)(const ir::Launch& launch);  // what a kernel begins with
  std::string (*group_id)(int axis);
  std::string (*thread_id)(int axis);
  // `memory`: threads see each other's stores to memory too.
  std::string (*barrier)(bool memory);
  // The declaration of one of a launch's shared arrays, `offset` bytes behind the first; they begin at multiples of
  // kSharedAlignment.
  std::string (*shared_array)(Prelude& prelude, int64_t offset, const ir::Buffer& array, const std::string& type,
                              const std::string& name);
  // "exp", "float": the name of that function
  std::string (*math)(const std::string& function, const std::string& type);
  // "float", 4: a type of so many elements side by side, aligned to its size or more. As (type)(x) all of them are x;
  // the operators + - * / work on each; vload4(0, p) and vstore4(v, 0, p) need no more than an element's alignment.
  std::string (*vector)(Prelude& prelude, const std::string& type, int64_t length);
  // Vectors of a thread's own arrays are read as (type)(p[0], p[1]), which is one of these, and not by vload2.
  bool vectors_by_element;
  // The end of a function, from the conversion of `x` on: of the bits of an f16 to a float; of a float or double, which
  // is no NaN, to those bits. Null: the language has nothing better than arithmetic of integers.
  const char* from_f16;
  std::string (*to_f16)(const std::string& type);
  // The text of a function that warps call together, or that copies while they go on (cuda/functions.h); empty: the
  // language has none of that name.
  std::string (*warp_function)(std::string_view name);
};

}  // namespace temper
