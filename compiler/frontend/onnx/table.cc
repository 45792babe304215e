#include <algorithm>

#include "compiler/frontend/onnx/context.h"

namespace temper::onnx_frontend {
namespace {

using Tables = std::vector<std::span<const TableEntry>>;

Tables Own() {
  return {ElementwiseTable(), ConvTable(),   MoveTable(),  PadTable(),      IndexTable(),     EinsumTable(),
          AttentionTable(),   ReduceTable(), BoxesTable(), ResizeTable(),   RecurrentTable(), SampleTable(),
          SortTable(),        KnownTable(),  MathTable(),  QuantizeTable(), ControlTable(),   SequenceTable(),
          SignalTable(),      LossTable(),   PoolTable(),  RoiTable(),      ScatterTable(),   SelectTable(),
          BitsTable(),        RandomTable()};
}

Tables Contrib() { return {ContribTable(), GroupAttentionTable(), ContribRecurrentTable(), ContribLayoutTable()}; }

const TableEntry* FindIn(const Tables& tables, std::string_view op) {
  for (const std::span<const TableEntry> table : tables) {
    for (const TableEntry& entry : table) {
      if (entry.op == op) return &entry;
    }
  }
  return nullptr;
}

// ONNX Runtime writes these of ONNX's own in its domain too.
bool IsInBoth(std::string_view op) { return op == "QuantizeLinear" || op == "DequantizeLinear"; }

}  // namespace

const TableEntry* FindConverter(const onnx::NodeProto& node) {
  const std::string& op = node.op_type();
  if (node.domain() == kContribDomain) return FindIn(IsInBoth(op) ? Own() : Contrib(), op);
  if (!node.domain().empty() && node.domain() != "ai.onnx") return nullptr;
  // One of ONNX Runtime's that it writes as one of ONNX's own.
  return FindIn(op == "SimplifiedLayerNormalization" ? Contrib() : Own(), op);
}

std::vector<std::string> OperatorsOf(std::string_view domain) {
  std::vector<std::string> names;
  for (const std::span<const TableEntry> table : domain == kContribDomain ? Contrib() : Own()) {
    for (const TableEntry& entry : table) names.emplace_back(entry.op);
  }
  if (domain == kContribDomain) names.insert(names.end(), {"QuantizeLinear", "DequantizeLinear"});
  std::ranges::sort(names);
  return names;
}

}  // namespace temper::onnx_frontend
