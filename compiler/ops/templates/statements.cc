#include "compiler/ops/templates/statements.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/division.h"
#include "compiler/ops/templates/element.h"

namespace temper {

using ir::Expr;

ir::Stmt IfAny(int64_t count, int64_t lanes, const std::function<Expr(const Expr& i)>& condition, ir::Stmt body) {
  const ir::Buffer holds = ir::MakeBuffer("holds", DType::kI32, {lanes}, ir::Scope::kRegister);
  const Cell all("all", DType::kI32);
  const Expr zero = ir::Int(0, DType::kI32);
  const auto each = [&](const LoopBody& lane) { return LoopOver("lane", lanes, ir::ForKind::kVectorized, lane); };
  const ir::Stmt ask = LoopOver("vector", count / lanes, ir::ForKind::kUnrolled, [&](const Expr& vector) {
    return each([&](const Expr& lane) {
      const Expr here = ir::Cast(condition(vector * Expr(lanes) + lane), DType::kI32);
      return ir::Store(holds, {lane}, ir::Load(holds, {lane}) + here);
    });
  });
  return all.Within(ir::Alloc(
      holds, ir::Seq({each([&](const Expr& lane) { return ir::Store(holds, {lane}, zero); }), ask, all.Set(zero),
                      each([&](const Expr& lane) { return all.Set(all.Get() + ir::Load(holds, {lane})); }),
                      ir::If(zero < all.Get(), std::move(body))})));
}

ir::Stmt LoopOver(const std::string& name, int64_t extent, ir::ForKind kind, const LoopBody& body) {
  if (extent == 1) return body(0);
  const ir::Var var = ir::MakeVar(name);
  return ir::For(var, extent, kind, body(var));
}

ir::Stmt VectorLoop(const std::string& name, int64_t extent, int64_t lanes, const LoopBody& body) {
  constexpr int64_t kVectors = 4;  // of a turn of the loop
  std::vector<ir::Stmt> stmts;
  int64_t begin = 0;
  for (const int64_t run : {kVectors * lanes, lanes, int64_t{1}}) {
    const int64_t turns = (extent - begin) / run;
    if (turns == 0) continue;
    stmts.push_back(LoopOver(name, turns, ir::ForKind::kSerial, [&](const Expr& turn) {
      return LoopOver(name + "_lane", run, ir::ForKind::kVectorized,
                      [&](const Expr& lane) { return body(Expr(begin) + turn * Expr(run) + lane); });
    }));
    begin += turns * run;
  }
  return ir::Seq(std::move(stmts));
}

ir::Stmt CopyElements(const ir::Buffer& to, const Expr& to_begin, const ir::Buffer& from, const Expr& from_begin,
                      int64_t count, int64_t lanes) {
  return VectorLoop("copied", count, lanes,
                    [&](const Expr& i) { return ir::Store(to, {to_begin + i}, ir::Load(from, {from_begin + i})); });
}

ir::Stmt FilterChunk(const Expr& begin, int64_t lanes, const std::function<Expr(const Expr& i)>& condition,
                     const std::function<ir::Stmt(const Expr& begin, int64_t count)>& collect) {
  const auto from = [&](const Expr& first) {
    return [&condition, first](const Expr& i) { return condition(first + i); };
  };
  const ir::Stmt pieces = LoopOver("piece", kChunk / kPiece, ir::ForKind::kSerial, [&](const Expr& piece) {
    const Expr first = begin + piece * Expr(kPiece);
    return IfAny(kPiece, lanes, from(first), collect(first, kPiece));
  });
  return IfAny(kChunk, lanes, from(begin), pieces);
}

bool IsRowMajorCall(const Workload& w, std::string_view op) {
  return w.calls.size() == 1 && w.calls[0].op == op && w.output().perm.empty() &&
         std::all_of(w.inputs.begin(), w.inputs.end(),
                     [](const Workload::Operand& operand) { return operand.type.perm.empty(); });
}

absl::StatusOr<Kernel> KernelOf(const Workload& w, const std::vector<Shape>& shapes, const std::vector<DType>& types,
                                const KernelBody& body) {
  // The call takes its operands in any order, and one of them twice if it likes.
  std::vector<ir::Buffer> params(w.inputs.size()), operands;
  const std::vector<int>& args = w.calls[0].args;
  for (size_t i = 0; i < args.size(); ++i) {
    ir::Buffer& param = params[static_cast<size_t>(args[i])];
    if (!param) param = ir::MakeBuffer(absl::StrCat("in", args[i]), types[i], shapes[i]);
    operands.push_back(param);
  }
  operands.push_back(ir::MakeBuffer("out", types.back(), shapes.back()));
  params.push_back(operands.back());
  Kernel kernel;
  kernel.main = ir::Func{w.calls[0].op, std::move(params), 1, body(operands)};
  kernel.packs.resize(w.inputs.size());
  TEMPER_RETURN_IF_ERROR(ir::Verify(kernel.main));
  return kernel;
}

absl::StatusOr<Kernel> KernelOf(const Workload& w, const std::vector<Shape>& shapes, const KernelBody& body) {
  std::vector<DType> types;
  for (const int arg : w.calls[0].args) types.push_back(w.TypeOf(arg).dtype);
  types.push_back(w.output().dtype);
  return KernelOf(w, shapes, types, body);
}

AroundAxis::AroundAxis(const Shape& shape, int64_t axis) {
  const size_t at = static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(shape.size()) : axis);
  for (size_t d = 0; d < shape.size(); ++d) (d < at ? lines : d == at ? extent : slice) *= shape[d];
}

int64_t ColumnsOfThread(const AroundAxis& x, const CpuTarget& t) {
  const int64_t shares = x.lines >= t.threads ? 1 : CeilDiv(int64_t{t.threads}, x.lines);
  return std::min(x.slice, CeilDiv(CeilDiv(x.slice, shares), kLineElements) * kLineElements);
}

ir::Stmt ParallelColumns(const AroundAxis& x, int64_t width,
                         const std::function<ir::Stmt(const Expr& line, const Expr& first, int64_t width)>& body) {
  const int64_t whole = x.slice / width, left = x.slice % width;
  std::vector<ir::Stmt> stmts = {LoopOver("block", x.lines * whole, ir::ForKind::kParallel, [&](const Expr& i) {
    return body(i / Expr(whole), i % Expr(whole) * Expr(width), width);
  })};
  if (left > 0) {
    stmts.push_back(LoopOver("last_block", x.lines, ir::ForKind::kParallel,
                             [&](const Expr& line) { return body(line, whole * width, left); }));
  }
  return ir::Seq(std::move(stmts));
}

CpuFootprint FootprintOfPasses(const Workload& w, double passes, double shares, const CpuTarget& t) {
  CpuFootprint f;
  f.flops = f.padded_flops = std::max(1.0, Flops(w));
  f.loads_per_fma = 1;
  f.compulsory_bytes = f.memory_traffic = CompulsoryBytes(w);
  f.l2_traffic = passes * f.compulsory_bytes;
  f.parallel_chunks = std::max(1.0, shares);
  f.chunk_imbalance = std::ceil(f.parallel_chunks / t.threads) * t.threads / f.parallel_chunks;
  return f;
}

}  // namespace temper
