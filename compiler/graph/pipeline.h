// The graph passes, in the order they run. pipeline.cc is the list.
#pragma once

#include <functional>
#include <iosfwd>
#include <set>
#include <string>

#include "compiler/graph/graph.h"
#include "compiler/target/target.h"

namespace temper {

struct PassDef {
  std::string_view name;  // "widen", "integers", "fold-constants", "cse", ...
  absl::Status (*run)(Graph& g, const Target& t);
};
std::span<const PassDef> AllPasses();

struct PipelineOptions {
  std::set<std::string> disabled;  // pass names; "fuse" off puts each node in a group of its own
  std::ostream* print = nullptr;   // the graph before the first and after each pass that changed it
  bool winograd = true;            // false: convolutions are computed directly (attribute winograd=0)
  bool tf32 = false;               // true: products of f32 may be of TF32 (attribute tf32=1)
  bool bf16 = false;               // true: ... of bf16 (bf16=1)
};
// kInvalidArgument: an option is not for this target. Fusion and alternatives go by the target and its templates, so
// another kind of device wants a graph of its own. Verifies after each pass. The result has groups.
absl::Status Optimize(Graph& g, const Target& t, const PipelineOptions& options = {});

}  // namespace temper
