#include "compiler/frontend/onnx/context.h"

namespace temper::onnx_frontend {

namespace {

const TableEntry* FindIn(std::initializer_list<std::span<const TableEntry>> tables, std::string_view op) {
  for (const std::span<const TableEntry> table : tables) {
    for (const TableEntry& entry : table) {
      if (entry.op == op) return &entry;
    }
  }
  return nullptr;
}

}  // namespace

const TableEntry* FindConverter(const onnx::NodeProto& node) {
  const std::string& op = node.op_type();
  if (node.domain() == "com.microsoft") {
    const bool shared = op == "QuantizeLinear" || op == "DequantizeLinear";
    return FindIn({shared ? QuantizeTable() : ContribTable(), GroupAttentionTable(), ContribRecurrentTable()}, op);
  }
  if (!node.domain().empty() && node.domain() != "ai.onnx") return nullptr;
  // One of ONNX Runtime's that it writes as one of ONNX's own.
  if (op == "SimplifiedLayerNormalization") return FindIn({ContribTable()}, op);
  return FindIn({ElementwiseTable(), ConvTable(),  MoveTable(),     IndexTable(),     EinsumTable(),   AttentionTable(),
                 ReduceTable(),      BoxesTable(), ResizeTable(),   RecurrentTable(), SampleTable(),   SortTable(),
                 KnownTable(),       MathTable(),  QuantizeTable(), ControlTable(),   SequenceTable(), SignalTable(),
                 LossTable(),        PoolTable(),  RoiTable(),      ScatterTable(),   SelectTable(),   BitsTable()},
                op);
}

}  // namespace temper::onnx_frontend
