// Tile loops as instructions of matrix tiles (AMX). Eight tiles have up to 16 rows of 64 bytes each. With rows i,
// columns j and steps k, of which the latter are 16, a tile loop over i is one of
//   for i for j        sums[.. i, j] = 0
//   for i for j for k  sums[.. i, j] = sums[.. i, j] + dot8(a[.. i, k], b[.. k, j])
//   for i for j for k  sums[.. i, j] = sums[.. i, j] + (f32(a[.. i, 2k]) * f32(b[.. k, 2j]) +
//                                      f32(a[.. i, 2k + 1]) * f32(b[.. k, 2j + 1]))
//   for i for j        memory[.. i, j] = sums[.. i, j]
// where a and b are bytes, as dot8 has them, and sums i32; or bf16, and sums f32. Sums are in an array of scope `tile`,
// which is of matrices of 16 columns beside one another. A factor is four bytes: of A's row the factors are neighbours,
// of B's step those of the columns. All sums of a function have as many rows.
#include <llvm/IR/IntrinsicsX86.h>
#include <llvm/IR/Module.h>

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "compiler/codegen/llvm/emitter.h"

namespace temper {

using ir::Expr;
using ir::ExprKind;
using ir::Stmt;
using ir::StmtKind;
using llvm::Value;

namespace {

constexpr unsigned kTiles = 8;
constexpr int64_t kMostRows = 16, kSteps = 16, kColumns = 16, kFactorBytes = 4, kRowBytes = 64;

// A loop directly below, of so many iterations; null if there is none.
const ir::StmtNode* LoopBelow(const ir::StmtNode& s, int64_t extent) {
  const Stmt& body = s.body;
  return body->kind == StmtKind::kFor && body->extent == extent ? body.get() : nullptr;
}

bool IsZero(const Expr& e) {
  return ir::AsInt(e) == 0 || (e->kind == ExprKind::kFloat && e->float_value == 0 && !std::signbit(e->float_value));
}

// The operands' place in the tile configuration that LDTILECFG loads.
std::vector<uint8_t> ConfigOf(const std::vector<int64_t>& rows) {
  constexpr size_t kBytes = 64, kBytesOfRows = 16, kRows = 48;
  std::vector<uint8_t> config(kBytes, 0);
  config[0] = 1;  // the palette of eight tiles
  for (size_t i = 0; i < rows.size(); ++i) {
    config[kBytesOfRows + 2 * i] = static_cast<uint8_t>(kRowBytes);
    config[kRows + i] = static_cast<uint8_t>(rows[i]);
  }
  return config;
}

}  // namespace

void Emitter::CallTile(llvm::Intrinsic::ID instruction, const std::vector<Value*>& args) {
  b_.CreateIntrinsic(b_.getVoidTy(), instruction, args);
}

// A function that uses tiles configures them where it begins; Return fills in what they are.
void Emitter::EnterTiles(int64_t rows) {
  if (rows > kMostRows || (tiles_.config != nullptr && rows != tiles_.rows)) {
    Fail(absl::UnimplementedError(absl::StrCat("matrix tiles of ", rows, " rows")));
    return;
  }
  if (tiles_.config != nullptr) return;
  if (!context_.target.Has("amx-tile")) {
    Fail(absl::UnimplementedError("the target has no matrix tiles"));
    return;
  }
  auto* type = llvm::ArrayType::get(b_.getInt8Ty(), kRowBytes);
  tiles_.rows = rows;
  tiles_.config = new llvm::GlobalVariable(context_.module, type, /*isConstant=*/true,
                                           llvm::GlobalValue::PrivateLinkage, nullptr, "tiles");
  tiles_.config->setAlignment(llvm::Align(64));
  llvm::IRBuilder<>::InsertPointGuard guard(b_);
  b_.SetInsertPoint(&function_->getEntryBlock(), function_->getEntryBlock().begin());
  CallTile(llvm::Intrinsic::x86_ldtilecfg, {tiles_.config});
}

void Emitter::LeaveTiles() {
  if (tiles_.config == nullptr) return;
  std::vector<int64_t> rows(kTiles, tiles_.rows);
  for (const OperandTile& tile : tiles_.operands) {
    if (!tile.of_a) rows[tile.number] = kSteps;
  }
  const std::vector<uint8_t> config = ConfigOf(rows);
  tiles_.config->setInitializer(llvm::ConstantDataArray::get(b_.getContext(), llvm::ArrayRef(config)));
  CallTile(llvm::Intrinsic::x86_tilerelease, {});
}

void Emitter::ForgetOperandTiles() {
  for (OperandTile& tile : tiles_.operands) tile.block = nullptr;
}

// The variables are bound to values, so they are terms of their own.
Emitter::TileAccess Emitter::TileAccessOf(Access access, const ir::Var& row, const ir::Var& column) {
  TileAccess tile;
  const auto take = [&](const ir::Var& var) {
    int64_t coefficient = 0;
    std::erase_if(access.form.terms, [&](const Term& t) {
      const bool is_var = t.atom->kind == ExprKind::kVar && t.atom->var == var;
      if (is_var) coefficient = t.coefficient;
      return is_var;
    });
    return coefficient;
  };
  tile.row = take(row);
  tile.column = take(column);
  for (const Term& t : access.form.terms) {
    if (ir::UsesVar(t.atom, row) || ir::UsesVar(t.atom, column) || access.form.irregular)
      Fail(absl::UnimplementedError(absl::StrCat("rows of a tile of ", access.buffer->name, " do not lie in order")));
  }
  tile.first = std::move(access);
  return tile;
}

unsigned Emitter::SumsTile(const Access& sums, const ir::StmtNode& rows, const ir::StmtNode& columns) {
  const ir::BufferNode& buffer = *sums.buffer;
  const TileAccess tile = TileAccessOf(sums, rows.var, columns.var);
  const bool fits = buffer.scope == ir::Scope::kTile && SizeOf(buffer.dtype) == kFactorBytes && tile.column == 1 &&
                    tile.row == buffer.shape.back() && tile.first.form.terms.empty();
  if (!fits) Fail(absl::UnimplementedError(absl::StrCat(buffer.name, " holds no matrix tiles")));
  unsigned number = 0;  // the first that none has
  while (std::ranges::any_of(tiles_.sums, [&](const auto& other) { return other.second == number; })) ++number;
  const auto [it, is_new] = tiles_.sums.try_emplace({&buffer, tile.first.form.constant}, number);
  if (is_new && number + tiles_.operands.size() >= kTiles)
    Fail(absl::ResourceExhaustedError(absl::StrCat(buffer.name, " has more matrix tiles than there are")));
  return it->second;
}

// The tile that holds the operand, which is loaded if none does.
unsigned Emitter::OperandIn(const TileAccess& wanted, bool of_a) {
  std::vector<OperandTile>& all = tiles_.operands;
  llvm::BasicBlock* block = b_.GetInsertBlock();
  const auto holds = [&](const OperandTile& t) {
    return t.block == block && t.of_a == of_a && t.holds.first.buffer == wanted.first.buffer &&
           t.holds.row == wanted.row && t.holds.first.form.constant == wanted.first.form.constant &&
           SameTerms(t.holds.first.form, wanted.first.form);
  };
  auto it = std::ranges::find_if(all, holds);
  const bool loaded = it != all.end();
  if (!loaded && tiles_.sums.size() + all.size() < kTiles) {
    all.push_back({kTiles - 1 - static_cast<unsigned>(all.size()), of_a, {}, nullptr});
    it = all.end() - 1;
  } else if (!loaded) {
    it = std::ranges::find(all, of_a, &OperandTile::of_a);
  }
  if (it == all.end()) {
    Fail(absl::ResourceExhaustedError("the sums leave no matrix tile for an operand"));
    return 0;
  }
  std::rotate(it, it + 1, all.end());
  OperandTile& tile = all.back();
  if (loaded) return tile.number;
  tile.holds = wanted;
  tile.block = block;
  const int64_t stride = wanted.row * SizeOf(wanted.first.buffer->dtype);
  CallTile(llvm::Intrinsic::x86_tileloadd64,
           {b_.getInt8(static_cast<uint8_t>(tile.number)), AddressOf(wanted.first, 0), I64(stride)});
  return tile.number;
}

namespace {

// What a product's store adds to the sums that it stores; empty: it is no such store.
Expr AddedBy(const Stmt& store) {
  const Expr& sum = store->value;
  const bool adds =
      sum->kind == ExprKind::kAdd && sum->args[0]->kind == ExprKind::kLoad && sum->args[0]->buffer == store->buffer;
  return adds ? sum->args[1] : Expr();
}

}  // namespace

void Emitter::EmitProductOfTiles(const ir::StmtNode& rows, const ir::StmtNode& columns, const ir::StmtNode& steps) {
  const Stmt& store = steps.body;
  const Expr added = AddedBy(store);
  const bool of_bytes = added && added->kind == ExprKind::kDot8;
  const std::optional<Bf16Factors> of_bf16 = added ? Bf16FactorsOf(added) : std::nullopt;
  if ((!of_bytes && !of_bf16.has_value()) || !context_.target.Has(of_bytes ? "amx-int8" : "amx-bf16")) {
    Fail(absl::UnimplementedError(absl::StrCat("no instruction of matrix tiles is ", ir::FirstLine(store))));
    return;
  }
  const std::optional<Access> a = FirstOfNeighbours(of_bytes ? PartsOf(added->args[0]) : of_bf16->a),
                              b = FirstOfNeighbours(of_bytes ? PartsOf(added->args[1]) : of_bf16->b);
  if (!a.has_value() || !b.has_value()) {
    Fail(absl::UnimplementedError(absl::StrCat("factors of ", ir::FirstLine(store), " do not lie in one piece")));
    return;
  }
  const TileAccess tile_a = TileAccessOf(*a, rows.var, steps.var), tile_b = TileAccessOf(*b, steps.var, columns.var);
  for (const TileAccess* tile : {&tile_a, &tile_b}) {
    if (tile->column * SizeOf(tile->first.buffer->dtype) != kFactorBytes)
      Fail(absl::UnimplementedError(absl::StrCat("factors of ", tile->first.buffer->name, " are no neighbours")));
  }
  const unsigned into = SumsTile(AccessOf(store.get(), store->buffer, store->indices), rows, columns);
  const unsigned from_a = OperandIn(tile_a, true), from_b = OperandIn(tile_b, false);
  const auto number = [&](unsigned n) { return b_.getInt8(static_cast<uint8_t>(n)); };
  CallTile(of_bytes ? llvm::Intrinsic::x86_tdpbusd : llvm::Intrinsic::x86_tdpbf16ps,
           {number(into), number(from_a), number(from_b)});
}

void Emitter::EmitTile(const ir::StmtNode& rows) {
  EnterTiles(rows.extent);
  const ir::StmtNode* columns = LoopBelow(rows, kColumns);
  const ir::StmtNode* steps = columns == nullptr ? nullptr : LoopBelow(*columns, kSteps);
  const Stmt* store = columns == nullptr ? nullptr : steps != nullptr ? &steps->body : &columns->body;
  if (store == nullptr || (*store)->kind != StmtKind::kStore) {
    Fail(absl::UnimplementedError(absl::StrCat("no instruction of matrix tiles is the loop over ", rows.var->name)));
    return;
  }
  const std::vector<const ir::StmtNode*> loops =
      steps == nullptr ? std::vector{&rows, columns} : std::vector{&rows, columns, steps};
  for (const ir::StmtNode* loop : loops) Bind(loop->var, {Binding::kValue, 0, I64(0), current()}, loop->extent);
  const ir::StmtNode& s = **store;
  const Expr& value = s.value;
  if (steps != nullptr) {
    EmitProductOfTiles(rows, *columns, *steps);
  } else if (IsZero(value)) {
    const unsigned sums = SumsTile(AccessOf(&s, s.buffer, s.indices), rows, *columns);
    CallTile(llvm::Intrinsic::x86_tilezero, {b_.getInt8(static_cast<uint8_t>(sums))});
  } else if (value->kind == ExprKind::kLoad && s.buffer->scope == ir::Scope::kMemory) {
    const TileAccess to = TileAccessOf(AccessOf(&s, s.buffer, s.indices), rows.var, columns->var);
    const unsigned sums = SumsTile(AccessOf(value.get(), value->buffer, value->args), rows, *columns);
    const int64_t bytes = SizeOf(s.buffer->dtype);
    if (to.column * bytes != kFactorBytes)
      Fail(absl::UnimplementedError(absl::StrCat("columns of ", s.buffer->name, " are no neighbours")));
    ForgetOperandTiles();
    CallTile(llvm::Intrinsic::x86_tilestored64,
             {b_.getInt8(static_cast<uint8_t>(sums)), AddressOf(to.first, 0), I64(to.row * bytes)});
  } else {
    Fail(absl::UnimplementedError(absl::StrCat("no instruction of matrix tiles is ", ir::FirstLine(*store))));
  }
  for (const ir::StmtNode* loop : loops) Unbind(loop->var);
}

}  // namespace temper
