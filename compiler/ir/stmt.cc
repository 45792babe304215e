#include "compiler/ir/stmt.h"

#include <algorithm>

namespace temper::ir {
namespace {

std::shared_ptr<StmtNode> Make(StmtKind kind) {
  auto node = std::make_shared<StmtNode>();
  node->kind = kind;
  return node;
}

// Applies `f` to the direct sub-statements; the same node where nothing changed.
Stmt MapChildren(const Stmt& s, const std::function<Stmt(const Stmt&)>& f) {
  switch (s->kind) {
    case StmtKind::kFor:
    case StmtKind::kAlloc:
    case StmtKind::kIf: {
      Stmt body = f(s->body);
      Stmt else_body = s->else_body ? f(s->else_body) : nullptr;
      if (body == s->body && else_body == s->else_body) return s;
      auto node = std::make_shared<StmtNode>(*s);
      node->body = std::move(body);
      node->else_body = std::move(else_body);
      return node;
    }
    case StmtKind::kSeq: {
      std::vector<Stmt> stmts;
      stmts.reserve(s->stmts.size());
      for (const Stmt& child : s->stmts) stmts.push_back(f(child));
      return stmts == s->stmts ? s : Seq(std::move(stmts));
    }
    case StmtKind::kStore:
    case StmtKind::kBlock:
    case StmtKind::kPrefetch:
    case StmtKind::kBarrier:
    case StmtKind::kInstruction:
      return s;
  }
  return s;
}

// Applies `f` to each expression that `node` holds itself.
void MapOwnExprs(StmtNode& node, const std::function<void(Expr&)>& f) {
  auto map = [&f](Expr& e) {
    if (e) f(e);
  };
  map(node.cond);
  for (Expr& e : node.block.bindings) map(e);
  map(node.block.predicate);
  map(node.block.init);
  for (Expr& e : node.indices) map(e);
  map(node.value);
}

}  // namespace

std::string_view Word(ForKind kind) {
  switch (kind) {
    case ForKind::kSerial:
      return "for";
    case ForKind::kParallel:
      return "parallel";
    case ForKind::kVectorized:
      return "vectorize";
    case ForKind::kUnrolled:
      return "unroll";
    case ForKind::kOutlined:
      return "outline";
    case ForKind::kTile:
      return "tile";
    case ForKind::kGroupX:
      return "group.x";
    case ForKind::kGroupY:
      return "group.y";
    case ForKind::kGroupZ:
      return "group.z";
    case ForKind::kThreadX:
      return "thread.x";
    case ForKind::kThreadY:
      return "thread.y";
    case ForKind::kThreadZ:
      return "thread.z";
    case ForKind::kTensor:
      return "tensor";
    case ForKind::kTeamTensor:
      return "team tensor";
    case ForKind::kLanes:
      return "lanes";
  }
  return "";
}

std::string_view Word(Instruction instruction) {
  switch (instruction) {
    case Instruction::kLoadMatrix:
      return "load matrix";
    case Instruction::kLoadMatrixTransposed:
      return "load transposed";
    case Instruction::kMultiply:
      return "multiply";
    case Instruction::kExchange:
      return "exchange";
    case Instruction::kBeginProducts:
      return "begin products";
    case Instruction::kAddProduct:
      return "add product";
    case Instruction::kEndProducts:
      return "end products";
    case Instruction::kCommitCopies:
      return "commit copies";
    case Instruction::kWaitCopies:
      return "wait for copies";
  }
  return "";
}

bool IsGroup(ForKind kind) { return kind >= ForKind::kGroupX && kind <= ForKind::kGroupZ; }
bool IsThread(ForKind kind) { return kind >= ForKind::kThreadX && kind <= ForKind::kThreadZ; }
bool IsConcurrent(ForKind kind) { return kind == ForKind::kParallel || IsGroup(kind) || IsThread(kind); }
int AxisOf(ForKind kind) {
  return static_cast<int>(kind) - static_cast<int>(IsGroup(kind) ? ForKind::kGroupX : ForKind::kThreadX);
}
bool MayHold(ForKind outer, ForKind inner) {
  if (outer == ForKind::kParallel || inner == ForKind::kParallel) return outer == inner;
  return outer != inner && (IsGroup(outer) || IsThread(inner));
}

Stmt For(Var var, int64_t extent, ForKind kind, Stmt body) {
  auto node = Make(StmtKind::kFor);
  node->var = std::move(var);
  node->extent = extent;
  node->for_kind = kind;
  node->body = std::move(body);
  return node;
}

Stmt Seq(std::vector<Stmt> stmts) {
  std::vector<Stmt> flat;
  for (Stmt& s : stmts) {
    if (s->kind == StmtKind::kSeq) {
      flat.insert(flat.end(), s->stmts.begin(), s->stmts.end());
    } else {
      flat.push_back(std::move(s));
    }
  }
  if (flat.size() == 1) return flat[0];
  auto node = Make(StmtKind::kSeq);
  node->stmts = std::move(flat);
  return node;
}

Stmt Store(Buffer buffer, std::vector<Expr> indices, Expr value) {
  auto node = Make(StmtKind::kStore);
  node->buffer = std::move(buffer);
  node->indices = std::move(indices);
  node->value = std::move(value);
  return node;
}

Stmt If(Expr cond, Stmt then_body, Stmt else_body) {
  auto node = Make(StmtKind::kIf);
  node->cond = std::move(cond);
  node->body = std::move(then_body);
  node->else_body = std::move(else_body);
  return node;
}

Stmt Alloc(Buffer buffer, Stmt body) {
  auto node = Make(StmtKind::kAlloc);
  node->buffer = std::move(buffer);
  node->body = std::move(body);
  return node;
}

Stmt BlockStmt(BlockInfo info, Buffer buffer, std::vector<Expr> indices, Expr value) {
  auto node = Make(StmtKind::kBlock);
  node->block = std::move(info);
  node->buffer = std::move(buffer);
  node->indices = std::move(indices);
  node->value = std::move(value);
  return node;
}

Stmt Prefetch(Buffer buffer, std::vector<Expr> indices, bool for_store) {
  auto node = Make(StmtKind::kPrefetch);
  node->for_store = for_store;
  node->buffer = std::move(buffer);
  node->indices = std::move(indices);
  return node;
}

Stmt Barrier() { return Make(StmtKind::kBarrier); }

namespace {

std::shared_ptr<StmtNode> Make(Instruction instruction) {
  auto node = Make(StmtKind::kInstruction);
  node->instruction = instruction;
  return node;
}

}  // namespace

Stmt LoadMatrix(Buffer fragment, std::vector<Expr> indices, Expr row, bool transposed) {
  auto node = Make(transposed ? Instruction::kLoadMatrixTransposed : Instruction::kLoadMatrix);
  node->buffer = std::move(fragment);
  node->indices = std::move(indices);
  node->value = std::move(row);
  return node;
}

Stmt Multiply(Buffer sums, std::vector<Expr> indices, const Expr& a, const Expr& b) {
  auto node = Make(Instruction::kMultiply);
  node->value = Cast(a, sums->dtype) * Cast(b, sums->dtype);
  node->buffer = std::move(sums);
  node->indices = std::move(indices);
  return node;
}

Stmt AddProduct(Buffer sums, std::vector<Expr> indices, int64_t columns, const Expr& a, const Expr& b,
                const std::array<TiledMatrix, 2>& tiled) {
  auto node = Make(Instruction::kAddProduct);
  node->value = Cast(a, sums->dtype) * Cast(b, sums->dtype);
  node->buffer = std::move(sums);
  node->indices = std::move(indices);
  node->extent = columns;
  node->tiled = tiled;
  return node;
}

namespace {

Stmt OfAll(Instruction instruction, Buffer sums) {
  auto node = Make(instruction);
  node->indices.assign(sums->shape.size(), Expr(0));
  node->buffer = std::move(sums);
  return node;
}

}  // namespace

Stmt BeginProducts(Buffer sums) { return OfAll(Instruction::kBeginProducts, std::move(sums)); }
Stmt EndProducts(Buffer sums) { return OfAll(Instruction::kEndProducts, std::move(sums)); }

const Expr& FactorOf(const Stmt& multiply, size_t number) {
  const Expr& factor = multiply->value->args[number];
  return factor->kind == ExprKind::kCast ? factor->args[0] : factor;
}

Stmt Exchange(Buffer to, std::vector<Expr> indices, Expr theirs, int64_t lanes) {
  auto node = Make(Instruction::kExchange);
  node->buffer = std::move(to);
  node->indices = std::move(indices);
  node->value = std::move(theirs);
  node->extent = lanes;
  return node;
}

Stmt CommitCopies() { return Make(Instruction::kCommitCopies); }

Stmt WaitCopies(int64_t most) {
  auto node = Make(Instruction::kWaitCopies);
  node->extent = most;
  return node;
}

Stmt RewriteStmt(const Stmt& s, const std::function<Stmt(const Stmt&)>& f) {
  Stmt rebuilt = MapChildren(s, [&f](const Stmt& child) { return RewriteStmt(child, f); });
  Stmt replaced = f(rebuilt);
  return replaced ? replaced : rebuilt;
}

void VisitStmt(const Stmt& s, const std::function<void(const Stmt&)>& f) {
  f(s);
  if (s->body) VisitStmt(s->body, f);
  if (s->else_body) VisitStmt(s->else_body, f);
  for (const Stmt& child : s->stmts) VisitStmt(child, f);
}

bool AnyOf(const Stmt& s, const std::function<bool(const Stmt&)>& holds) {
  return holds(s) || (s->body && AnyOf(s->body, holds)) || (s->else_body && AnyOf(s->else_body, holds)) ||
         std::ranges::any_of(s->stmts, [&](const Stmt& child) { return AnyOf(child, holds); });
}

Stmt RewriteExprs(const Stmt& s, const std::function<Expr(const Expr&)>& f) {
  return RewriteStmt(s, [&f](const Stmt& node) -> Stmt {
    if (node->kind == StmtKind::kFor || node->kind == StmtKind::kSeq || node->kind == StmtKind::kAlloc) return nullptr;
    auto copy = std::make_shared<StmtNode>(*node);
    bool changed = false;
    MapOwnExprs(*copy, [&](Expr& e) {
      Expr rewritten = f(e);
      if (!rewritten || rewritten.get() == e.get()) return;
      e = std::move(rewritten);
      changed = true;
    });
    return changed ? copy : nullptr;
  });
}

void VisitExprs(const Stmt& s, const std::function<void(const Expr&)>& f) {
  VisitStmt(s, [&f](const Stmt& node) {
    auto visit = [&f](const Expr& e) {
      if (e) f(e);
    };
    visit(node->cond);
    for (const Expr& e : node->block.bindings) visit(e);
    visit(node->block.predicate);
    visit(node->block.init);
    for (const Expr& e : node->indices) visit(e);
    visit(node->value);
  });
}

Stmt Substitute(const Stmt& s, const std::vector<VarBinding>& bindings) {
  if (bindings.empty()) return s;
  return RewriteExprs(s, [&bindings](const Expr& e) { return Substitute(e, bindings); });
}

}  // namespace temper::ir
