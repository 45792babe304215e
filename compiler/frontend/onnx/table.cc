#include "compiler/frontend/onnx/context.h"

namespace temper::onnx_frontend {

const TableEntry* FindConverter(const onnx::NodeProto& node) {
  if (!node.domain().empty() && node.domain() != "ai.onnx") return nullptr;
  for (std::span<const TableEntry> table :
       {ElementwiseTable(), ConvTable(), MoveTable(), IndexTable(), EinsumTable(), AttentionTable(), ReduceTable(),
        ResizeTable(), RecurrentTable(), SampleTable(), SortTable(), KnownTable(), MathTable(), QuantizeTable()}) {
    for (const TableEntry& entry : table) {
      if (entry.op == node.op_type()) return &entry;
    }
  }
  return nullptr;
}

}  // namespace temper::onnx_frontend
