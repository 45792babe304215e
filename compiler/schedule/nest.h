// What the rewrites share: finding statements, taking a nest apart and putting it together again.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/division.h"
#include "compiler/ir/simplify.h"
#include "compiler/ir/stmt.h"
#include "compiler/ir/walk.h"

namespace temper::nest {

using ir::Buffer;
using ir::Expr;
using ir::Func;
using ir::HasLoad;
using ir::Stmt;
using ir::StmtKind;
using ir::StmtNode;
using ir::Var;

// The statements from the root down to and including the one looked for; empty if it is not there.
using Path = std::vector<Stmt>;
Path PathTo(const Stmt& root, const std::function<bool(const Stmt&)>& wanted);
Path PathToLoop(const Stmt& root, const Var& loop);
Path PathToBlock(const Stmt& root, const std::string& block);
// As above, but an error naming what is not there.
absl::StatusOr<Path> FindLoop(const Func& f, const Var& loop);
absl::StatusOr<Path> FindBlock(const Func& f, const std::string& block);

// The root of `path` with its last statement replaced. Null takes it out, with whatever that leaves empty; null if
// nothing remains.
Stmt Replace(const Path& path, Stmt replacement);
// Statements one after another, where nulls stand for nothing; null if all are.
Stmt Sequence(std::vector<Stmt> stmts);

std::vector<Stmt> LoopsOf(const Path& path);  // the For statements, outermost first
bool Contains(const Stmt& tree, const StmtNode* s);
std::vector<Stmt> BlocksIn(const Stmt& tree);  // program order
void BindLoops(const std::vector<Stmt>& loops, ir::Simplifier& simplifier);
void BindLoopsIn(const Stmt& tree, ir::Simplifier& simplifier);

using VarSet = std::unordered_set<const ir::VarNode*>;
VarSet LoopVarsIn(const Stmt& tree);
bool UsesAny(const Expr& e, const VarSet& vars);
bool UsesOnly(const Expr& e, const VarSet& vars);  // and loads nothing
void CollectVars(const Expr& e, VarSet& vars);

// A copy of `s` whose block satisfies what `edit` did to it.
Stmt EditBlock(const Stmt& s, const std::function<void(StmtNode&)>& edit);
Stmt EditBlocks(const Stmt& tree, const std::function<void(StmtNode&)>& edit);

std::vector<Expr> Conjuncts(const Expr& predicate);  // none of an empty predicate
Expr Conjoin(const std::vector<Expr>& conjuncts);    // empty if there are none
void AddConjunct(StmtNode& block, Expr conjunct);

// The bindings of a block's iterators as substitutions.
std::vector<ir::VarBinding> BindingsOf(const StmtNode& block);

// The loads of `buffer` in index, init and value, over the iterators. A reduction's load of the very element that it
// writes is no read: `Reads` leaves it out.
std::vector<Expr> LoadsOf(const StmtNode& block, const Buffer& buffer);
std::vector<Expr> ReadsOf(const StmtNode& block, const Buffer& buffer);
bool Reads(const StmtNode& block, const Buffer& buffer);
bool LoadsOwn(const StmtNode& block, const Expr& load);  // the very element that the block writes
std::vector<Buffer> BuffersRead(const StmtNode& block);  // each once, in order of appearance, accumulator left out
std::vector<Stmt> WritersOf(const Stmt& root, const Buffer& buffer);
std::vector<Stmt> ReadersOf(const Stmt& root, const Buffer& buffer);
bool IsParam(const Func& f, const Buffer& buffer);
bool IsReduction(const StmtNode& block);  // binds a reduction iterator, or initialises
// Loops that bind reduction iterators of the block, and those that bind others. A fused loop may do both.
VarSet ReduceLoops(const StmtNode& block);
VarSet SpatialLoops(const StmtNode& block);

// Every use of `from` becomes one of `to` with the indices that `map` makes of the old ones.
Stmt ReplaceBuffer(const Stmt& root, const Buffer& from, const Buffer& to,
                   const std::function<std::vector<Expr>(const std::vector<Expr>&)>& map);

std::string UniqueBlockName(const Func& f, const std::string& wish);
std::string UniqueBufferName(const Func& f, const std::string& wish);

// Loops vectorised, parallel and unrolled as they may be; the error names the loop.
absl::Status CheckAnnotations(const Stmt& root);

// A loop of a function and another that was copied from it.
using LoopCopies = std::vector<std::pair<Var, Var>>;
// A copy with loops of its own, and blocks named with `suffix` and not as any in `names`, which they join.
struct NestCopy {
  Stmt nest;
  LoopCopies loops;
};
NestCopy CopyNest(const Stmt& s, const std::string& suffix, std::unordered_set<std::string>& names);

// A block that updates its element only where a condition without loads holds: that condition and the update. Its value
// is select(condition, update, element), or the element combined with select(condition, x, what changes nothing).
struct GuardedUpdate {
  Expr condition, value;
};
std::optional<GuardedUpdate> GuardOf(const StmtNode& block);

}  // namespace temper::nest
