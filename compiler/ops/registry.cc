// The table of operators: one line a family.
#include "compiler/ops/families/families.h"
#include "compiler/ops/reference/reference.h"
#include "compiler/ops/template.h"
#include "compiler/ops/widen.h"

#include <unordered_map>

#include "absl/strings/str_cat.h"

namespace temper {
namespace {

// The operators of a file in ops/, and their references, of the file of that name in ops/reference/.
struct Family {
  std::vector<OpDef> (*ops)();
  std::span<const reference::Reference> (*references)();
};
constexpr Family kFamilies[] = {
    {ops::UnaryOps, reference::UnaryReferences},   {ops::BinaryOps, reference::BinaryReferences},
    {ops::ConvOps, reference::ConvReferences},     {ops::MatmulOps, reference::MatmulReferences},
    {ops::PoolOps, reference::PoolReferences},     {ops::ReduceOps, reference::ReduceReferences},
    {ops::NormOps, reference::NormReferences},     {ops::MovementOps, reference::MovementReferences},
    {ops::ResizeOps, reference::ResizeReferences}, {ops::SequentialOps, reference::SequentialReferences},
    {ops::BoxesOps, reference::BoxesReferences},
};

struct Registry {
  std::vector<OpDef> ops;
  std::unordered_map<std::string_view, size_t> by_name;

  // The number of operands is checked here once, and errors begin with the operator's name.
  void Add(OpDef op) {
    op = ops::Widened(std::move(op));
    op.infer = [name = op.name, low = op.min_inputs, high = op.max_inputs, rule = std::move(op.infer)](
                   const Attrs& attrs, std::span<const TensorType> inputs) -> absl::StatusOr<TensorType> {
      int count = static_cast<int>(inputs.size());
      if (count < low || count > high) {
        return absl::InvalidArgumentError(
            absl::StrCat(std::string(name), ": takes ", low, " to ", high, " operands, got ", count));
      }
      absl::StatusOr<TensorType> type = rule(attrs, inputs);
      if (type.ok()) return type;
      return absl::Status(type.status().code(), absl::StrCat(std::string(name), ": ", type.status().message()));
    };
    by_name[op.name] = ops.size();
    ops.push_back(std::move(op));
  }
};

Registry& TheRegistry() {
  static Registry registry = [] {
    Registry r;
    for (const Family& family : kFamilies) {
      for (OpDef& op : family.ops()) {
        for (const reference::Reference& reference : family.references()) {
          if (reference.op == op.name) op.reference = reference.run;
        }
        r.Add(std::move(op));
      }
    }
    return r;
  }();
  return registry;
}

}  // namespace

std::span<const OpDef> AllOps() { return TheRegistry().ops; }

const OpDef* FindOp(std::string_view name) {
  const Registry& registry = TheRegistry();
  auto it = registry.by_name.find(name);
  return it == registry.by_name.end() ? nullptr : &registry.ops[it->second];
}

void RegisterOp(OpDef op) { TheRegistry().Add(std::move(op)); }

}  // namespace temper
