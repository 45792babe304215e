#include "compiler/schedule/lower/epilogue.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "absl/strings/str_cat.h"
#include "compiler/schedule/nest.h"

namespace temper::nest {
namespace {

using ir::ExprKind;
using ir::ForKind;

constexpr int kLeastWork = 12;         // instructions a vector: fewer are no more than the copy to the tile and back
constexpr int64_t kLeastUnrolled = 4;  // vectors: so few are soon compiled
constexpr int64_t kLeastSteps = 48;    // of the loop before: beside fewer the way through memory costs something

// About how many instructions a node takes.
int Instructions(const ir::ExprNode& e) {
  switch (e.kind) {
    case ExprKind::kInt:
    case ExprKind::kFloat:
    case ExprKind::kVar:
      return 0;
    case ExprKind::kExp:
      return 12;
    case ExprKind::kLog:
    case ExprKind::kTanh:
    case ExprKind::kErf:
      return 25;
    case ExprKind::kPow:
      if (e.args[1]->kind == ExprKind::kFloat) return 2;
      [[fallthrough]];
    case ExprKind::kSin:
    case ExprKind::kCos:
      return 50;  // calls, a lane at a time
    default:
      return 1;
  }
}

// The float operations of `e`, those that are used several times counted once.
int Work(const Expr& e) {
  std::unordered_set<const ir::ExprNode*> seen;
  int work = 0;
  ir::Visit(e, [&](const Expr& node) {
    if (IsFloat(node->dtype) && seen.insert(node.get()).second) work += Instructions(*node);
  });
  return work;
}

bool IsRegister(const Expr& e) { return e->kind == ExprKind::kLoad && e->buffer->scope == ir::Scope::kRegister; }

using Arrays = std::unordered_set<const ir::BufferNode*>;

// Register arrays that are what long loops leave: each element is written so many times.
class ResultsOfLoops {
 public:
  static Arrays Of(const Stmt& root) {
    ResultsOfLoops finder;
    finder.Visit(root);
    return std::move(finder.found_);
  }

 private:
  void Visit(const Stmt& s) {
    if (s->kind == StmtKind::kAlloc) loops_around_[s->buffer.get()] = loops_.size();
    if (s->kind == StmtKind::kFor) loops_.push_back(s);
    const bool is_register = s->kind == StmtKind::kStore && s->buffer->scope == ir::Scope::kRegister;
    if (is_register && InLongLoop(*s)) found_.insert(s->buffer.get());
    if (s->body != nullptr) Visit(s->body);
    if (s->else_body != nullptr) Visit(s->else_body);
    for (const Stmt& child : s->stmts) Visit(child);
    if (s->kind == StmtKind::kFor) loops_.pop_back();
  }

  bool InLongLoop(const StmtNode& store) const {
    const auto allocated = loops_around_.find(store.buffer.get());
    if (allocated == loops_around_.end()) return false;
    int64_t steps = 1;
    bool loop = false;
    for (size_t i = allocated->second; i < loops_.size(); ++i) {
      const bool spatial = std::any_of(store.indices.begin(), store.indices.end(),
                                       [&](const Expr& e) { return ir::UsesVar(e, loops_[i]->var); });
      if (spatial) continue;
      steps *= loops_[i]->extent;
      loop = loop || loops_[i]->for_kind == ForKind::kSerial;
    }
    return loop && steps >= kLeastSteps;
  }

  std::vector<Stmt> loops_;                                         // around the statement
  std::unordered_map<const ir::BufferNode*, size_t> loops_around_;  // where they are allocated
  Arrays found_;
};

// What is known of a nest of unrolled and vectorised loops.
struct Epilogue {
  bool elementwise = true;  // stores to memory and nothing else
  Arrays registers;         // that it reads
  int64_t work = 0;         // of all its stores, unrolled
  int64_t vectors = 0;      // stores, unrolled
};

void Study(const Stmt& s, int64_t times, Epilogue& epilogue) {
  switch (s->kind) {
    case StmtKind::kFor: {
      const bool unrolled = s->for_kind == ForKind::kUnrolled;
      if (!unrolled && s->for_kind != ForKind::kVectorized) break;
      return Study(s->body, unrolled ? times * s->extent : times, epilogue);
    }
    case StmtKind::kSeq:
      for (const Stmt& child : s->stmts) Study(child, times, epilogue);
      return;
    case StmtKind::kIf:
      if (s->else_body != nullptr || HasLoad(s->cond)) break;
      return Study(s->body, times, epilogue);
    case StmtKind::kStore:
      if (s->buffer->scope == ir::Scope::kRegister) break;
      ir::Visit(s->value, [&](const Expr& e) {
        if (IsRegister(e)) epilogue.registers.insert(e->buffer.get());
      });
      epilogue.work += times * Work(s->value);
      epilogue.vectors += times;
      return;
    case StmtKind::kAlloc:
    case StmtKind::kBlock:
    case StmtKind::kPrefetch:
    case StmtKind::kBarrier:
    case StmtKind::kInstruction:
      break;
  }
  epilogue.elementwise = false;
}

// Behind straight code, or few steps of a loop, the epilogue overlaps with it, and goes on doing so only as straight
// code.
bool ShouldRoll(const Stmt& nest, const Arrays& results_of_loops) {
  Epilogue e;
  Study(nest, 1, e);
  const bool behind_loop = std::any_of(e.registers.begin(), e.registers.end(),
                                       [&](const ir::BufferNode* b) { return results_of_loops.contains(b); });
  return e.elementwise && behind_loop && e.vectors >= kLeastUnrolled && e.work >= kLeastWork * e.vectors;
}

class Roller {
 public:
  // The copy to tiles, then the loops that read them.
  Stmt Roll(const Stmt& nest) {
    const Stmt copy = Copies(nest);
    Stmt loops = ir::RewriteExprs(nest, [&](const Expr& root) {
      return ir::Rewrite(root,
                         [&](const Expr& e) { return IsRegister(e) ? ir::Load(TileOf(e->buffer), e->args) : Expr(); });
    });
    loops = ir::RewriteStmt(loops, [&](const Stmt& s) -> Stmt {
      if (s->kind != StmtKind::kFor || s->for_kind != ForKind::kUnrolled) return nullptr;
      return ir::For(s->var, s->extent, s->var == nest->var ? ForKind::kOutlined : ForKind::kSerial, s->body);
    });
    std::unordered_set<std::string> no_blocks;
    Stmt both = ir::Seq({CopyNest(copy, "", no_blocks).nest, loops});
    for (const Buffer& tile : made_) both = ir::Alloc(tile, both);
    return both;
  }

 private:
  // The nest with each store replaced by copies of the registers that it reads. Registers hold whole vectors, so a
  // condition that leaves out lanes is not needed here; those that leave out elements never written do no harm.
  Stmt Copies(const Stmt& nest) {
    return ir::RewriteStmt(nest, [&](const Stmt& s) -> Stmt {
      if (s->kind == StmtKind::kIf) return s->body;
      if (s->kind != StmtKind::kStore) return nullptr;
      std::vector<Expr> loads;
      ir::Visit(s->value, [&](const Expr& e) {
        auto same = [&e](const Expr& other) { return ir::StructurallyEqual(e, other); };
        if (IsRegister(e) && std::none_of(loads.begin(), loads.end(), same)) loads.push_back(e);
      });
      std::vector<Stmt> copies;
      for (const Expr& e : loads) copies.push_back(ir::Store(TileOf(e->buffer), e->args, e));
      return ir::Seq(std::move(copies));
    });
  }

  Buffer TileOf(const Buffer& registers) {
    Buffer& tile = tiles_[registers.get()];
    if (tile == nullptr) {
      tile = ir::MakeBuffer(absl::StrCat(registers->name, "_tile"), registers->dtype, registers->shape);
      made_.push_back(tile);
    }
    return tile;
  }

  std::unordered_map<const ir::BufferNode*, Buffer> tiles_;
  std::vector<Buffer> made_;
};

// Outermost first: a nest is rolled as a whole or searched for smaller ones.
Stmt RollBelow(const Stmt& root, const Arrays& results_of_loops) {
  if (root->kind == StmtKind::kFor && ir::IsGroup(root->for_kind)) return root;  // a thread has no memory for tiles
  if (root->kind == StmtKind::kFor && root->for_kind == ForKind::kUnrolled && ShouldRoll(root, results_of_loops))
    return Roller().Roll(root);
  if (root->kind == StmtKind::kFor && root->for_kind == ForKind::kVectorized) return root;
  auto copy = std::make_shared<StmtNode>(*root);
  if (root->body != nullptr) copy->body = RollBelow(root->body, results_of_loops);
  if (root->else_body != nullptr) copy->else_body = RollBelow(root->else_body, results_of_loops);
  for (Stmt& child : copy->stmts) child = RollBelow(child, results_of_loops);
  return copy;
}

}  // namespace

Stmt RollEpilogues(const Stmt& root) { return RollBelow(root, ResultsOfLoops::Of(root)); }

}  // namespace temper::nest
