#include "compiler/ops/templates/gemm_program.h"

#include "compiler/ops/templates/matmul_nbits.h"
#include "compiler/ops/templates/stages.h"

namespace temper {

using ir::Expr;

namespace {

// Of a factor, that panels of B have one by one, rather than the whole factor.
int64_t ElementsOfPacked(const GemmView& v) { return v.widens_b || v.rounds ? v.ways : 1; }

Shape PackedShape(const GemmView& v, const GemmTile& tile) {
  Shape shape = {v.b_batched ? v.batch : 1, tile.panels};
  shape.insert(shape.end(), v.reduction.begin(), v.reduction.end());
  shape.push_back(ElementsOfPacked(v) * tile.nr);
  return shape;
}

DType PackedType(const GemmView& v) { return v.widens_b ? DType::kI8 : v.rounds ? DType::kBF16 : FactorType(v); }

DType CopiedType(const GemmView& v) {
  if (v.rounds) return DType::kBF16;
  if (v.ways < 4) return v.ways == 1 ? kElement : DType::kI16;
  return v.numbers ? DType::kI8 : DType::kU8;
}

// The operand's element at a place along the reduction's last axis: zero past its end.
using Operand = std::function<Expr(const std::vector<Expr>& r)>;
Operand OrZero(const GemmView& v, Operand element) {
  if (v.ways == 1 || v.depth == v.ways * v.reduction.back()) return element;
  return [depth = v.depth, element = std::move(element)](const std::vector<Expr>& r) {
    const Expr e = element(r);
    return ir::Select(r.back() < Expr(depth), e, ir::Const(0, e->dtype));
  };
}

// The operand's factor at a step of the reduction: an element, or several.
Expr Factor(const GemmView& v, const std::vector<Expr>& r, const Operand& element) {
  if (v.ways == 1) return element(r);
  const auto at = [&](int64_t i) {
    std::vector<Expr> place = r;
    place.back() = r.back() * Expr(v.ways) + Expr(i);
    return element(place);
  };
  if (v.ways == 2) return ir::Pair(at(0), at(1));
  return ir::Pair(ir::Pair(at(0), at(1)), ir::Pair(at(2), at(3)));
}

Expr Product(const GemmView& v, const Expr& a, const Expr& b) {
  return v.ways == 1 ? a * b : v.ways == 2 ? ir::Dot16(a, b) : ir::Dot8(a, b);
}

// Where packed B has a factor of the column, or element `i` of it.
std::vector<Expr> PackedIndex(const GemmView& v, const GemmTile& tile, const Expr& batch, const Expr& column,
                              const std::vector<Expr>& r, int64_t i = 0) {
  std::vector<Expr> index = {v.b_batched ? batch : Expr(0), column / Expr(tile.nr)};
  index.insert(index.end(), r.begin(), r.end());
  index.push_back(column % Expr(tile.nr) * Expr(ElementsOfPacked(v)) + Expr(i));
  return index;
}

// The same of bf16, whose pairs are multiplied one number after another; `a` has A's.
Expr RoundedProduct(const GemmView& v, const GemmTile& tile, const ir::Buffer& packed_b, const Expr& batch,
                    const Expr& column, const std::vector<Expr>& r, const Operand& a) {
  Expr sum;
  for (int64_t i = 0; i < v.ways; ++i) {
    std::vector<Expr> of_a = r;
    of_a.back() = r.back() * Expr(v.ways) + Expr(i);
    const Expr b = ir::Load(packed_b, PackedIndex(v, tile, batch, column, r, i));
    const Expr each = ir::Cast(a(of_a), kElement) * ir::Cast(b, kElement);
    sum = i == 0 ? each : sum + each;
  }
  return sum;
}

// What packed B has at `index` of PackedShape, a factor or a part of one: zero in the columns past the last.
Expr PackedElement(const GemmView& v, const GemmTile& tile, const ir::Tensor& b, const std::vector<Expr>& index) {
  std::vector<Expr> r(index.begin() + 2, index.end() - 1);
  const Expr width(ElementsOfPacked(v)), column = index[1] * Expr(tile.nr) + index.back() / width;
  const Operand element = OrZero(v, [&](const auto& at) { return v.b_element(b, index[0], column, at); });
  Expr packed;
  if (ElementsOfPacked(v) > 1) {
    r.back() = r.back() * width + index.back() % width;
    packed = element(r);
  } else {
    packed =
        Factor(v, r, [&](const auto& at) { return v.ways == 2 ? ir::Cast(element(at), DType::kI16) : element(at); });
  }
  if (tile.panels * tile.nr != v.columns)
    packed = ir::Select(column < Expr(v.columns), packed, ir::Const(0, packed->dtype));
  return v.rounds ? RoundedToBf16(packed) : packed;
}

// A from the stage "a", which is made of `element`.
GemmView::AElement CopiedA(const GemmView& v, const GemmTile& tile, ir::ProgramBuilder& b,
                           const GemmView::AElement& element) {
  const int64_t rows = tile.RowsMade(v);
  Shape along = v.copied;
  if (along.empty()) {
    along = v.reduction;
    along.back() *= v.ways;
  }
  Shape made = {v.batch, rows};
  made.insert(made.end(), along.begin(), along.end());
  const ir::Buffer a = b.Compute("a", CopiedType(v), made, [&](const std::vector<Expr>& i) {
    Expr e = OrZero(v, [&](const auto& r) { return element(i[0], i[1], r); })({i.begin() + 2, i.end()});
    if (rows != v.rows) e = ir::Select(i[1] < Expr(v.rows), e, ir::Const(0, e->dtype));
    return v.rounds && e->dtype != DType::kBF16 ? RoundedToBf16(e) : e;
  });
  return [a, copied = v.copied](const Expr& batch, const Expr& row, const std::vector<Expr>& r) {
    std::vector<Expr> index = {batch, row};
    const std::vector<Expr> place = copied.empty() ? r : Unflatten(r[0], copied);
    index.insert(index.end(), place.begin(), place.end());
    return ir::Load(a, index);
  };
}

}  // namespace

absl::StatusOr<GemmProgram> BuildGemmProgram(const Workload& w, const GemmView& v, const GemmView& sums,
                                             const GemmTile& tile) {
  const int64_t parts = sums.batch / v.batch;
  ir::ProgramBuilder b("gemm");
  GemmProgram result;
  const bool constant_b = w.inputs[v.b_input].constant;
  nbits::Packing packing{std::vector<Shape>(w.inputs.size()), std::vector<DType>(w.inputs.size(), PackedType(v))};
  if (constant_b) packing.shapes[v.b_input] = PackedShape(v, tile);
  if (v.numbers) packing = nbits::PackingOf(w, v, tile);
  WorkloadProgram program(w, b, packing.shapes, packing.types);
  TEMPER_RETURN_IF_ERROR(program.Compute(0, w.anchor));
  GemmView::AElement a_element = v.prepare(program, b, &result.copies);
  if (tile.copy_a) a_element = CopiedA(v, tile, b, a_element);
  ir::Buffer packed_b;
  if (constant_b) {
    packed_b = program.buffer(v.b_input);
  } else if (tile.pack) {
    packed_b = b.Compute("pack_b", PackedType(v), PackedShape(v, tile), [&](const std::vector<Expr>& index) {
      return PackedElement(v, tile, program.value(v.b_input), index);
    });
    result.copies.push_back("pack_b");
  }
  if (v.b_scale) {
    packed_b = b.Compute("scaled_b", kElement, PackedShape(v, tile), [&, unscaled = packed_b](const auto& index) {
      return ir::Load(unscaled, index) * v.b_scale(program, {index.begin() + 2, index.end() - 1});
    });
    result.copies.push_back("scaled_b");
  }
  if (v.CachesB()) {
    packed_b = b.Compute("floats_b", kElement, PackedShape(v, tile),
                         [&](const auto& index) { return nbits::Element(program, v, index[1], index[2], index[3]); });
  }
  auto b_factor = [&](const Expr& batch, const Expr& column, const std::vector<Expr>& r) {
    if (!tile.pack) return v.b_element(program.value(v.b_input), batch, column, r);
    const auto packed = [&](int64_t i) { return ir::Load(packed_b, PackedIndex(v, tile, batch, column, r, i)); };
    if (!v.widens_b) return packed(0);
    return ir::Pair(ir::Cast(packed(0), DType::kI16), ir::Cast(packed(1), DType::kI16));
  };
  // Of a step of the reduction, whose factors of A are of elements that follow one another.
  const auto product = [&](const Expr& batch, const std::vector<Expr>& i, const std::vector<Expr>& r) {
    const auto a = [&](const std::vector<Expr>& at) { return a_element(batch, i[1], at); };
    return v.rounds ? RoundedProduct(v, tile, packed_b, batch, i[2], r, a)
                    : Product(v, Factor(v, r, a), b_factor(batch, i[2], r));
  };
  const Shape acc_shape = {sums.batch, tile.RowsMade(v), tile.panels * tile.nr};
  ir::Buffer acc;
  if (v.MakesB()) {
    acc = nbits::SumOfBlocks(b, program, v, tile, [&](const Expr& batch, const Expr& row, const std::vector<Expr>& r) {
      return Factor(v, r, [&](const std::vector<Expr>& at) { return a_element(batch, row, at); });
    });
  } else {
    acc = b.Reduce("acc", FactorType(v), acc_shape, sums.reduction, ir::Combiner::kSum,
                   [&](const std::vector<Expr>& i, std::vector<Expr> r) {
                     const Expr batch = parts == 1 ? i[0] : i[0] % Expr(v.batch);
                     if (parts > 1) r.back() = i[0] / Expr(v.batch) * Expr(sums.reduction.back()) + r.back();
                     return product(batch, i, r);
                   });
  }
  ir::Buffer stored = acc;
  if (parts > 1 || tile.matrix_rows > 0) {
    if (parts > 1) result.tiled = "sums";
    stored = b.Compute("sums", FactorType(v), acc_shape, [&](const std::vector<Expr>& i) { return ir::Load(acc, i); });
  }

  TEMPER_RETURN_IF_ERROR(MarkOut(w, v, program, b, [&](const Expr& batch, const Expr& row, const Expr& column) {
    Expr sum = ir::Load(stored, {batch, row, column});
    for (int64_t p = 1; p < parts; ++p) sum = sum + ir::Load(stored, {Expr(p * v.batch) + batch, row, column});
    return sum;
  }));
  TEMPER_ASSIGN_OR_RETURN(result.func, b.Finish());
  return result;
}

OutputLoops TileOutput(Schedule& s, const std::string& stage, const GemmView& v, const GemmTile& tile) {
  auto [outer, row, column] = LoopsByAxis(s.Loops(stage), OutAxes(v));
  auto [tiles, row_in] = s.Split(row, tile.mr);
  auto [chunk, row_tile] = s.Split(tiles, tile.chunk);
  auto [panel, column_in] = s.Split(column, tile.nr);
  auto [vector, lane] = s.Split(column_in, tile.lanes);
  auto [block, panel_in] = s.Split(panel, tile.panels / tile.blocks);
  outer.push_back(tile.blocks_outside ? block : chunk);
  outer.push_back(tile.blocks_outside ? chunk : block);
  std::vector<Loop> order = outer;
  order.insert(order.end(), {panel_in, row_tile, row_in, vector, lane});
  s.Reorder(order);
  return {outer, chunk, panel_in, row_tile, row_in, vector, lane};
}

void ScheduleRows(Schedule& s, const GemmView& v, const Loop& under, const CpuTarget& t) {
  s.ComputeAt("a", under);
  if (RowsCollide(v, t)) {
    const int64_t row = v.reduction.back() * v.ways + kLineBytes / SizeOf(CopiedType(v));
    s.TransformLayout("a", {v.batch, v.rows * row}, [row](const std::vector<Expr>& i) {
      return std::vector<Expr>{i[0], i[1] * Expr(row) + i[2]};
    });
  }
  const std::vector<Loop> loops = s.Loops("a");
  if (!s.status().ok()) return;
  if (s.Extent(loops.back()) < t.lanes()) {
    const int64_t few = v.copied.empty() ? 8 : 32;
    if (v.ways == 1) return;
    s.Vectorize(loops.back());
    if (const Loop& runs = loops[loops.size() - 2]; s.Extent(runs) <= few) s.Unroll(runs);
    return;
  }
  auto [rest, lane] = s.Split(loops.back(), VectorLength(s.Extent(loops.back()), t.lanes(), 4));
  s.Vectorize(lane);
  s.Partition(rest);
}

void ScheduleCopies(Schedule& s, const GemmProgram& program, const GemmView& v, const GemmTile& tile,
                    const CpuTarget& t) {
  for (const std::string& stage : program.copies) {
    if (stage == "pack_b") {
      SchedulePack(s, stage, v, tile.nr, tile.lanes, t);
    } else {
      ScheduleElementwise(s, stage, t);
    }
  }
}

absl::StatusOr<std::vector<ir::Func>> GemmPacks(const Workload& w, const GemmView& v, const GemmTile& tile,
                                                const CpuTarget& t) {
  if (v.numbers) return nbits::Packs(w, v, tile, t);
  std::vector<ir::Func> packs(w.inputs.size());
  if (!w.inputs[v.b_input].constant) return packs;
  TEMPER_ASSIGN_OR_RETURN(
      packs[v.b_input],
      BuildPack(
          "pack", w.inputs[v.b_input], PackedShape(v, tile),
          [&](const ir::Tensor& b, const std::vector<Expr>& index) { return PackedElement(v, tile, b, index); }, t));
  return packs;
}

}  // namespace temper
