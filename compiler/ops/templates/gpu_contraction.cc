#include "compiler/ops/templates/gpu_contraction.h"

#include <algorithm>

#include "compiler/ir/walk.h"
#include "compiler/ops/templates/conv2d_shape.h"
#include "compiler/ops/templates/stages.h"

namespace temper {
namespace {

using ir::Expr;
using ir::ForKind;

// Of an operand whose element at (outer, k) has the flat index `at`, which runs over `outers` and `reduction`.
Run RunOf(const std::function<Expr(const Expr& outer, const Expr& k)>& at, int64_t outers,
          const std::vector<int64_t>& reduction) {
  const int64_t length = NumElements(reduction);
  const ir::Var outer = ir::MakeVar("o"), k = ir::MakeVar("k");
  ir::Simplifier simplifier;
  simplifier.Bind(outer, outers);
  simplifier.Bind(k, reduction.back());
  if (Stride(at(outer, k), k, simplifier) == 1) {
    // The whole reduction, where its parts lie behind one another.
    ir::Simplifier all;
    all.Bind(outer, outers);
    all.Bind(k, length);
    return {true, Stride(at(outer, k), k, all) == 1 ? length : reduction.back()};
  }
  if (Stride(at(outer, Expr(0)), outer, simplifier) == 1) return {false, outers};
  return {};
}

// Position of the first load's element.
Expr FlatOf(const Expr& value) {
  Expr flat(0);
  ir::AnyNode(value, [&](const Expr& e) {
    if (e->kind != ir::ExprKind::kLoad) return false;
    flat = ir::FlatIndex(e->buffer, e->args);
    return true;
  });
  return flat;
}

// `at` < `end` for all lanes of a run alike, where runs neither begin nor end between them.
Expr Below(const Expr& at, int64_t end, int64_t lanes) {
  return lanes > 1 && end % lanes == 0 ? at / Expr(lanes) < Expr(end / lanes) : at < Expr(end);
}

// Where the padded operand's element is one of its own, which has so many rows or columns and steps.
std::vector<Expr> Inside(const PaddedOperand& p, const Expr& outer, int64_t outers, const Expr& k, int64_t length) {
  std::vector<Expr> inside;
  const bool along = p.run.along_reduction;
  if (p.outers != outers) inside.push_back(Below(outer, outers, along ? 1 : p.lanes));
  if (p.length != length) inside.push_back(Below(k, length, along ? p.lanes : 1));
  return inside;
}

}  // namespace

DType ElementOf(const Workload& w) { return w.calls[w.anchor].type.dtype; }

Run RunOfA(const Workload& w, const GemmView& v) {
  ir::ProgramBuilder b("a");
  WorkloadProgram program(w, b);
  const GemmView::AElement element = v.prepare(program, b, nullptr);
  return RunOf([&](const Expr& row, const Expr& k) { return FlatOf(element(Expr(0), row, Unflatten(k, v.reduction))); },
               v.rows, v.reduction);
}

Run RunOfB(const Workload& w, const GemmView& v) {
  if (HasConstantB(w, v)) return {false, 0};  // packed: of any length
  ir::ProgramBuilder b("b");
  WorkloadProgram program(w, b);
  return RunOf(
      [&](const Expr& column, const Expr& k) {
        return FlatOf(v.b_element(program.value(v.b_input), Expr(0), column, Unflatten(k, v.reduction)));
      },
      v.columns, v.reduction);
}

bool HasConstantB(const Workload& w, const GemmView& v) { return w.inputs[v.b_input].constant; }

std::vector<Shape> PackedShapes(const Workload& w, const GemmView& v, int64_t padded_length, int64_t padded_columns) {
  std::vector<Shape> shapes(w.inputs.size());
  if (HasConstantB(w, v)) shapes[v.b_input] = {v.b_batched ? v.batch : 1, padded_length, padded_columns};
  return shapes;
}

absl::StatusOr<std::vector<ir::Func>> PackB(const Workload& w, const GemmView& v, const std::vector<Shape>& packed) {
  std::vector<ir::Func> packs(w.inputs.size());
  if (!HasConstantB(w, v)) return packs;
  const auto element = [&](const ir::Tensor& b, const std::vector<Expr>& i) {
    return ValueWhere({i[1] < Expr(ReductionLength(v)), i[2] < Expr(v.columns)},
                      v.b_element(b, i[0], i[2], Unflatten(i[1], v.reduction)));
  };
  TEMPER_ASSIGN_OR_RETURN(packs[v.b_input],
                          BuildPack("pack", w.inputs[v.b_input], packed[v.b_input], element, *HostTarget().cpu()));
  return packs;
}

OperandElement PaddedA(WorkloadProgram& program, ir::ProgramBuilder& b, const GemmView& v, const PaddedOperand& p) {
  return [v, p, element = v.prepare(program, b, nullptr)](const Expr& batch, const Expr& row, const Expr& k) {
    return ValueWhere(Inside(p, row, v.rows, k, ReductionLength(v)), element(batch, row, Unflatten(k, v.reduction)));
  };
}

OperandElement PaddedB(const Workload& w, const WorkloadProgram& program, const GemmView& v, const PaddedOperand& p) {
  if (HasConstantB(w, v)) {
    return [buffer = program.buffer(v.b_input)](const Expr& batch, const Expr& column, const Expr& k) {
      return ir::Load(buffer, {batch, k, column});
    };
  }
  return [v, p, b = program.value(v.b_input)](const Expr& batch, const Expr& column, const Expr& k) {
    return ValueWhere(Inside(p, column, v.columns, k, ReductionLength(v)),
                      v.b_element(b, batch, column, Unflatten(k, v.reduction)));
  };
}

void AddOperandTraffic(GpuFootprint& f, const GemmView& v, const GroupTiles& g, double a_bytes, const GpuTarget& t) {
  const auto bytes = static_cast<double>(g.element_bytes), bm = static_cast<double>(g.bm),
             bn = static_cast<double>(g.bn);
  // Rows that are windows share most of what they see.
  const double row_bytes = std::min(bytes * f.reduction, a_bytes / static_cast<double>(v.batch * v.rows));
  const TiledProduct product = {static_cast<double>(g.products), static_cast<double>(g.row_tiles),
                                static_cast<double>(g.column_tiles), row_bytes * bm, bytes * f.reduction * bn};
  f.memory_traffic = OperandTraffic(product, f, t);
  f.cache_traffic = bytes * f.groups * (bm + bn) * f.reduction;
}

bool StoresRuns(const Schedule& s, const std::string& block, const std::vector<GemmAxis>& axes, int64_t columns,
                int64_t lanes) {
  return s.status().ok() && axes.back() == GemmAxis::kColumn && columns % lanes == 0 &&
         RunsAlongMemory(BlockNamed(s.func(), block));
}

std::vector<Loop> Cut(Schedule& s, Loop loop, const std::vector<int64_t>& factors) {
  std::vector<Loop> parts;
  for (const int64_t factor : factors) {
    auto [rest, part] = s.Split(loop, factor);
    parts.insert(parts.begin(), part);
    loop = rest;
  }
  parts.insert(parts.begin(), loop);
  return parts;
}

void BindGroups(Schedule& s, const std::vector<Loop>& batches, const Loop& row, const Loop& column) {
  if (!batches.empty()) s.Bind(FuseAll(s, batches), ForKind::kGroupZ);
  s.Bind(column, ForKind::kGroupY);
  s.Bind(row, ForKind::kGroupX);
}

}  // namespace temper
