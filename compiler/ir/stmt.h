// Statements and functions: loop nests. Immutable, shared freely, one node type.
//
// A nest is in one of two stages, both printable, verifiable and runnable by the interpreter:
//  scheduled: leaves are Blocks, which the rewrites of schedule/ move about;
//  lowered:   no Blocks; leaves are Stores (see Lower in schedule/lower.h).
// Nests for devices have group and thread loops beside the others; launch.h says what they mean.
#pragma once

#include <array>

#include "compiler/ir/expr.h"

namespace temper::ir {

// An outlined loop is a serial one that generated code has in a function of its own, so that what it keeps in registers
// takes none from the code around it, nor the other way round.
// A tensor loop is a serial one that Lower makes instructions of warps of (launch.h), or of teams of them, with all
// that is below it. A tile loop is a serial one that code for a CPU with matrix tiles makes an instruction of, with the
// one or two loops below it (codegen/llvm/emit_tiles.cc says what they may be). A lanes loop is a serial one over what
// the lanes of a warp hold, which they reduce together. Group and thread loops are dimensions of a launch on a device:
// CUDA's blockIdx and threadIdx, OpenCL's group and local ids. (A Block is something else here: a computation.)
enum class ForKind : uint8_t {
  kSerial,
  kParallel,
  kVectorized,
  kUnrolled,
  kOutlined,
  kTile,
  kGroupX,
  kGroupY,
  kGroupZ,
  kThreadX,
  kThreadY,
  kThreadZ,
  kTensor,
  kTeamTensor,
  kLanes,
};
std::string_view Word(ForKind kind);  // as it is printed: "for", "parallel", "vectorize", "group.x", "thread.y"
bool IsGroup(ForKind kind);
bool IsThread(ForKind kind);
bool IsConcurrent(ForKind kind);  // parallel, group or thread: no order among the iterations
int AxisOf(ForKind kind);         // of a group or thread loop: 0 for x, 1 for y, 2 for z
// Whether one concurrent loop may be inside another. A group holds threads, a thread neither, and an axis not itself.
bool MayHold(ForKind outer, ForKind inner);

enum class StmtKind : uint8_t { kFor, kSeq, kStore, kIf, kAlloc, kBlock, kPrefetch, kBarrier, kInstruction };

// What threads of a launch do beside loops and stores; launch.h says what each is. Those up to kExchange the lanes of a
// warp run together, those from kBeginProducts to kEndProducts the threads of a team.
enum class Instruction : uint8_t {
  kLoadMatrix,
  kLoadMatrixTransposed,
  kMultiply,
  kExchange,
  kBeginProducts,
  kAddProduct,
  kEndProducts,
  kCommitCopies,
  kWaitCopies
};
std::string_view Word(Instruction instruction);  // as it is printed: "load matrix"
inline bool LoadsMatrix(Instruction instruction) { return instruction <= Instruction::kLoadMatrixTransposed; }
inline bool IsOfTeam(Instruction instruction) {
  return instruction >= Instruction::kBeginProducts && instruction <= Instruction::kEndProducts;
}
inline bool IsOfWarp(Instruction instruction) {  // one of more warps, too
  return instruction <= Instruction::kExchange || IsOfTeam(instruction);
}

// How a matrix lies in shared memory for kAddProduct: in tiles (launch.h).
struct TiledMatrix {
  bool turned = false;     // whether a tile's rows are steps of the reduction
  int64_t next_step = 0;   // elements from a tile to that of the next eight steps,
  int64_t next_outer = 0;  // and to that of the next eight rows of A or columns of B
};

struct StmtNode;
using Stmt = std::shared_ptr<const StmtNode>;

// One computation over an iteration domain: for every point of its iterators,
//   if the point is the first along all reduction iterators and `init` is set: buffer[indices] = init
//   buffer[indices] = value           (a reduction's value loads buffer[indices] itself)
// Index, value and init are written over the iterators; `bindings` say which point the surrounding loops stand at,
// and `predicate` (over the loops; may be empty) whether it is to be computed.
struct IterVar {
  Var var;
  int64_t extent;  // the domain is [0, extent)
  bool reduce;
};
struct BlockInfo {
  std::string name;  // unique within a function
  std::vector<IterVar> iters;
  std::vector<Expr> bindings;  // one per iterator, over the loops around the block
  Expr predicate;              // kBool or empty
  Expr init;                   // empty: not a reduction, or its init was decomposed
};

struct StmtNode {
  StmtKind kind;
  // kFor: for var in [0, extent)
  Var var;
  // Also of kWaitCopies: how many groups may be on their way; of kExchange: by which bits lanes differ; of kAddProduct:
  // columns.
  int64_t extent = 0;
  ForKind for_kind = ForKind::kSerial;
  Stmt body;                  // kFor, kAlloc; the then-branch of kIf
  Stmt else_body;             // kIf, may be null
  Expr cond;                  // kIf
  std::vector<Stmt> stmts;    // kSeq
  Buffer buffer;              // kStore, kAlloc, kBlock (what it writes), kPrefetch; what an instruction writes
  std::vector<Expr> indices;  // kStore, kBlock, kPrefetch; of what an instruction writes, the first element
  Expr value;                 // kStore, kBlock; what an instruction reads
  // kStore, kBlock: not 0 where it is an asynchronous copy, for so many iterations of its loop later.
  int ahead = 0;
  Instruction instruction = Instruction::kLoadMatrix;  // kInstruction
  std::array<TiledMatrix, 2> tiled;                    // kAddProduct: A and B
  BlockInfo block;                                     // kBlock
  bool for_store = false;                              // kPrefetch: it is about to be written, not read
};

Stmt For(Var var, int64_t extent, ForKind kind, Stmt body);
Stmt Seq(std::vector<Stmt> stmts);  // flattens nested ones; of one statement is that statement
Stmt Store(Buffer buffer, std::vector<Expr> indices, Expr value);
Stmt If(Expr cond, Stmt then_body, Stmt else_body = nullptr);
Stmt Alloc(Buffer buffer, Stmt body);  // contents undefined (NaN in the interpreter) at entry
Stmt BlockStmt(BlockInfo info, Buffer buffer, std::vector<Expr> indices, Expr value);
Stmt Prefetch(Buffer buffer, std::vector<Expr> indices, bool for_store = false);
Stmt Barrier();  // of the threads of a group; see launch.h
// `row`: a load of the first element that the lane names.
Stmt LoadMatrix(Buffer fragment, std::vector<Expr> indices, Expr row, bool transposed);
// `a`, `b`: loads of the fragments' first elements.
Stmt Multiply(Buffer sums, std::vector<Expr> indices, const Expr& a, const Expr& b);
// The same by a team, of matrices in shared memory: `a`, `b` are loads of their first elements, which all threads of
// the team name alike. `indices`: of the sums' first element.
Stmt AddProduct(Buffer sums, std::vector<Expr> indices, int64_t columns, const Expr& a, const Expr& b,
                const std::array<TiledMatrix, 2>& tiled);
Stmt BeginProducts(Buffer sums);
Stmt EndProducts(Buffer sums);
// The operand of a multiplication of that number, a load.
const Expr& FactorOf(const Stmt& multiply, size_t number);
// `theirs`: a load of the element of the other lane, which differs in the bits of `lanes`.
Stmt Exchange(Buffer to, std::vector<Expr> indices, Expr theirs, int64_t lanes);
Stmt CommitCopies();
Stmt WaitCopies(int64_t most);

// A kernel. Parameters are caller-owned and do not alias. Outputs are written whole, inputs never.
struct Func {
  std::string name;
  std::vector<Buffer> params;  // inputs, then outputs
  int num_outputs = 1;
  Stmt body;
  int warp_width = 32;  // threads of a warp (in OpenCL: of a sub-group), where the function has launches
};

// Rebuild bottom-up / visit pre-order, statements only.
Stmt RewriteStmt(const Stmt& s, const std::function<Stmt(const Stmt&)>& f);  // null: keep
void VisitStmt(const Stmt& s, const std::function<void(const Stmt&)>& f);
bool AnyOf(const Stmt& s, const std::function<bool(const Stmt&)>& holds);
// Every expression in `s` (bindings, predicates, indices, values) rewritten.
Stmt RewriteExprs(const Stmt& s, const std::function<Expr(const Expr&)>& f);
void VisitExprs(const Stmt& s, const std::function<void(const Expr&)>& f);
Stmt Substitute(const Stmt& s, const std::vector<VarBinding>& bindings);  // free variables only

std::string Text(const Stmt& s, int indent = 0);
std::string Text(const Func& f);
std::string FirstLine(const Stmt& s);  // of its text: what errors show of a statement

// A well-formed nest: variables bound once and in scope, index counts and dtypes agree, blocks bind every iterator,
// register arrays allocated, parallel loops bind no reduction iterator, launches as launch.h says. The error names the
// offending statement.
absl::Status Verify(const Func& f);

struct SharedTraffic;  // see launch.h

// Runs the function on host memory, slowly and exactly in program order; `args` in parameter order. Allocations
// start as NaN; out-of-bounds accesses are errors that name the buffer and the indices. Vectorised, unrolled and
// parallel loops run in order, and so do the group and thread loops of a scheduled nest.
//
// The launches of a lowered function run group by group, and in a group all threads up to the next barrier, one after
// another. Against the rules of launch.h are, as kFailedPrecondition and named with the first who break them: threads
// of a group that race between two barriers, groups that race, barriers to which not all threads of a group come, and
// reads of what nothing wrote in shared memory. `traffic`, if not null, gets what warps ask of shared memory.
absl::Status Interpret(const Func& f, std::span<NDArray> args, SharedTraffic* traffic = nullptr);

}  // namespace temper::ir
