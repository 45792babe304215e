// Turns one lowered function (or the body of one of its parallel loops) into LLVM IR.
//
// Unrolled loops are expanded here: their variables are constants while the body is emitted again and again, and
// every index is decomposed into constant + lane part + terms. A term is computed, once, in the preheader of the
// innermost loop that it does not vary in, so addresses come out hoisted and constants as displacements.
// Errors are sticky: the first one stays in status(), later calls go on with poison values.
#pragma once

#include <llvm/IR/IRBuilder.h>

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "compiler/codegen/llvm/plan.h"
#include "compiler/codegen/llvm/register_array.h"
#include "compiler/ir/simplify.h"
#include "compiler/target/target.h"

namespace temper {

// Of one kernel, shared by the emitters of its parts.
struct KernelContext {
  llvm::Module& module;
  const CpuTarget& target;
  const FunctionPlan& plan;
  std::string symbol;
  std::set<const ir::BufferNode*> aliasing;  // parameters that may be the same bytes
  int bodies = 0;                            // parallel bodies made so far
  int64_t statements = 0;                    // stores emitted so far
};

class Emitter {
 public:
  // `function` has an entry block without a terminator. `workspace` and `launcher` are null inside a parallel body.
  Emitter(KernelContext& context, llvm::Function* function, llvm::Value* workspace, llvm::Value* launcher);

  void BindPointer(const ir::Buffer& buffer, llvm::Value* pointer) { pointers_[buffer.get()] = pointer; }
  void Emit(const ir::Stmt& s);
  void Return();  // of a kernel: 0, all went well
  const absl::Status& status() const { return status_; }

 private:
  // What a variable stands for at this moment.
  struct Binding {
    enum Kind { kConstant, kValue, kLane } kind;
    int64_t constant = 0;          // kConstant; kLane: the first lane's value
    llvm::Value* value = nullptr;  // kValue
    int level = 0;                 // kValue
  };
  // Vectorisation in force.
  struct Lanes {
    ir::Var var, local;           // the loop's variable = base + local; local in [0, count)
    int64_t base = 0, count = 0;  // count 0: none
    llvm::Value* mask = nullptr;  // null: all lanes
  };
  // A region with one dominating path: function, loop body or branch. `anchor` is the branch that leads into the next.
  struct Level {
    llvm::Instruction* anchor = nullptr;
    std::map<const ir::ExprNode*, llvm::Value*> values;
    std::map<std::tuple<llvm::Value*, llvm::Value*, int64_t>, llvm::Value*> addresses;
  };
  // Values of expressions that others share, which hold as long as the region or the mask that they were computed in;
  // in a closed scope, those of the scopes around it do not hold.
  struct Known {
    ir::Expr e;  // kept, so that no other one gets its address
    llvm::Value* value;
  };
  struct Scope {
    bool closed;
    std::map<const ir::ExprNode*, Known> values = {};
  };
  class OpenScope {
   public:
    OpenScope(Emitter& emitter, bool closed) : scopes_(emitter.scopes_) { scopes_.push_back({closed}); }
    OpenScope(const OpenScope&) = delete;
    ~OpenScope() { scopes_.pop_back(); }

   private:
    std::vector<Scope>& scopes_;
  };
  // An integer expression as constant + lane * (local lane) + sum of terms.
  struct Term {
    ir::Expr atom;
    int64_t coefficient;
  };
  struct Form {
    std::vector<Term> terms;
    int64_t constant = 0, lane = 0;
    bool irregular = false;  // depends on the lane in another way
  };
  struct Access {
    const ir::BufferNode* buffer;
    ir::Expr flat;  // simplified, in the loops' own variables
    Form form;
  };

  // --- emit_stmt.cc
  void EmitFor(const ir::StmtNode& s);
  void EmitSerial(const ir::Var& var, int64_t extent, llvm::Value* begin, llvm::Value* end, const ir::Stmt& body);
  void EmitUnrolled(const ir::StmtNode& s);
  void EmitVectorized(const ir::StmtNode& s);
  llvm::Value* CountOf(const ir::StmtNode& loop, const ir::Expr& end);
  void EmitParallel(const ir::Stmt& s);
  void EmitOutlined(const ir::Stmt& s);
  // The pointers of the buffers that a loop's body needs.
  std::vector<llvm::Value*> PointersTo(const std::vector<ir::Buffer>& buffers);
  llvm::Function* MakeBody(const ir::Stmt& s, const Captures& captures, const char* name);
  llvm::Function* MakeThunk(llvm::Function* body, const Captures& captures, size_t slots);
  void EmitIf(const ir::StmtNode& s);
  void EmitAlloc(const ir::StmtNode& s);
  int64_t WidestAccess(const ir::StmtNode& alloc) const;
  void EmitStore(const ir::Stmt& s);
  void EmitLaneInvariantStore(const ir::StmtNode& s, const Access& access);
  // buffer[index] = buffer[index] `kind` all of `lanes`.
  void ReduceInto(const ir::StmtNode& s, const Access& access, ir::ExprKind kind, llvm::Value* lanes);
  void EmitPrefetch(const ir::Stmt& s);
  // if (cond) then(); else otherwise(); both regions of their own. `otherwise` may be empty.
  void Branch(llvm::Value* cond, const std::function<void()>& then, const std::function<void()>& otherwise);
  void Bind(const ir::Var& var, const Binding& binding, int64_t extent);
  void Unbind(const ir::Var& var);

  // --- emit_bf16.cc
  // a and b of f32(a0) * f32(b0) + f32(a1) * f32(b1), all of bf16; nullopt: it is something else.
  struct Bf16Factors {
    std::vector<ir::Expr> a, b;
  };
  static std::optional<Bf16Factors> Bf16FactorsOf(const ir::Expr& e);
  // The sum with such products added by the vector instruction for them; null where there is none, or factors do not
  // lie as it takes them.
  llvm::Value* EmitBf16Products(llvm::Value* sum, const ir::Expr& e);

  // --- emit_tiles.cc
  // Elements from a tile's row to the next, and from a column to the next; `first` is of row and column 0.
  struct TileAccess {
    Access first;
    int64_t row = 0, column = 0;
  };
  // A matrix tile that holds an operand, as long as the block that loaded it goes on and nothing is stored.
  struct OperandTile {
    unsigned number;
    bool of_a;
    TileAccess holds;
    llvm::BasicBlock* block;  // null: nothing
  };
  struct Tiles {
    llvm::GlobalVariable* config = nullptr;                              // null: no tile is in use
    int64_t rows = 0;                                                    // of sums and of A
    std::map<std::pair<const ir::BufferNode*, int64_t>, unsigned> sums;  // by their first element
    std::vector<OperandTile> operands;                                   // the one used last at the end
  };
  void EmitTile(const ir::StmtNode& rows);
  void EmitProductOfTiles(const ir::StmtNode& rows, const ir::StmtNode& columns, const ir::StmtNode& steps);
  void EnterTiles(int64_t rows);
  void LeaveTiles();
  void ForgetOperandTiles();
  TileAccess TileAccessOf(Access access, const ir::Var& row, const ir::Var& column);
  unsigned SumsTile(const Access& sums, const ir::StmtNode& rows, const ir::StmtNode& columns);
  unsigned OperandIn(const TileAccess& wanted, bool of_a);
  void CallTile(llvm::Intrinsic::ID instruction, const std::vector<llvm::Value*>& args);

  // --- emit_expr.cc: a scalar where the expression does not depend on the lane, else a vector
  llvm::Value* Emit(const ir::Expr& e);
  llvm::Value* EmitNode(const ir::Expr& e);
  llvm::Value* EmitVector(const ir::Expr& e);  // spread over the lanes, if there are any
  llvm::Value* EmitVar(const ir::ExprNode& e);
  llvm::Value* EmitBinary(const ir::Expr& e);
  llvm::Value* EmitDot(llvm::Value* sum, const ir::Expr& e);  // added to the sum, if it is not null
  llvm::Value* EmitDivMod(const ir::ExprNode& e, llvm::Value* a, llvm::Value* c);
  llvm::Value* EmitCompare(const ir::Expr& e);
  llvm::Value* EmitLogic(const ir::Expr& e);
  llvm::Value* EmitUnder(llvm::Value* mask, const ir::Expr& e, bool guarded);
  llvm::Value* EmitSelect(const ir::Expr& cond, const ir::Expr& a, const ir::Expr& c);
  llvm::Value* EmitCast(const ir::Expr& e);
  llvm::Value* IntToFloat(llvm::Value* v, DType from, DType to);
  llvm::Value* FloatToInt(llvm::Value* v, DType to);
  llvm::Value* EmitUnary(const ir::Expr& e);
  // a - c (or a alone) as i32 lanes, where it is linear in the lane and small; null otherwise.
  llvm::Value* NarrowLanes(const ir::Expr& a, const ir::Expr& c);
  llvm::Value* Spread(llvm::Value* v);  // scalar -> vector of the lanes in force
  void Match(llvm::Value*& a, llvm::Value*& c);
  llvm::Value* Any(llvm::Value* mask);
  bool DependsOnLane(const ir::Expr& e) const;
  // Evaluating it where it is not asked for does no harm and costs little.
  bool CheapAndSafe(const ir::Expr& e);
  // Conditions decided by constants and ranges: with the values of unrolled loops put in.
  ir::Expr Resolve(const ir::Expr& e);

  // --- emit_memory.cc
  Access AccessOf(const void* key, const ir::Buffer& buffer, const std::vector<ir::Expr>& indices);
  // The same, with bindings as they now are.
  Access AccessOf(const ir::BufferNode* buffer, const ir::Expr& flat);
  Form FormOf(const ir::Expr& e);
  void Decompose(const ir::Expr& e, int64_t scale, bool resolved, Form& form);
  void DecomposeAtom(const ir::Expr& e, int64_t scale, Form& form);
  std::optional<int64_t> ConstantOf(const ir::Expr& e) const;
  bool Hoistable(const ir::Expr& atom) const;
  int LevelOf(const ir::Expr& atom) const;
  llvm::Value* TermValue(const Term& t);
  llvm::Value* SumOf(const Form& form);  // constant and terms, as i64
  llvm::Value* AddressOf(const Access& access, int64_t extra);
  llvm::Value* PointersOf(const Access& access);  // one a lane
  llvm::Align AlignmentOf(const Access& access) const;
  bool InBounds(const Access& access) const;
  static bool SameTerms(const Form& a, const Form& b);
  llvm::Value* EmitLoad(const ir::Expr& e);
  llvm::Value* EmitPair(const ir::Expr& e);
  llvm::Value* LoadNeighbours(const ir::Expr& e);
  static std::vector<ir::Expr> PartsOf(const ir::Expr& e);  // what pairs of pairs are made of, in order
  // The first of them, where they are loads of neighbours in memory.
  std::optional<Access> FirstOfNeighbours(const std::vector<ir::Expr>& parts);
  // All of them as one number of the type: one for all lanes, or each lane its own. Null where they are no neighbours.
  llvm::Value* LoadTogether(const std::vector<ir::Expr>& parts, llvm::Type* type);
  llvm::Value* EmitRegisterLoad(const Access& access);
  // Lanes that read here and there within one aligned vector: a load and a shuffle. Null where they do not.
  llvm::Value* EmitShuffledLoad(const Access& access);
  // Lanes that read one column of a square whose lines lie apart in memory, and whose other columns an unrolled loop
  // reads beside them: whole lines, and shuffles that the columns share. Null where they do not.
  llvm::Value* EmitColumn(const Access& access);
  // Which column of the square that is: by an unrolled loop that goes along memory, in whole squares.
  std::optional<int64_t> ColumnOf(const Access& access);
  llvm::Value* EmitGather(const ir::Expr& e, const Access& access);
  llvm::Value* MaskedLoad(llvm::FixedVectorType* type, llvm::Value* p, llvm::Align align, llvm::Value* mask,
                          llvm::Value* otherwise);
  llvm::Value* LoadUnder(llvm::Value* condition, const ir::Expr& e, const ir::Expr& otherwise);
  llvm::Value* GuardedScalarLoad(const Access& access);
  llvm::Value* LoadAccess(const ir::Expr& e, const Access& access);
  void StoreAccess(const ir::StmtNode& s, const Access& access, llvm::Value* value);
  void StoreRegister(const Access& access, llvm::Value* value);
  llvm::Value* ScalarLoad(const Access& access);
  void ScalarStore(const Access& access, llvm::Value* value);
  // The array and first position, or null and an error where the index is not constant or out of range.
  const RegisterArray* RegisterAt(const Access& access, int64_t count);
  // Runs `f` with the lane variable standing for lane `lane`, unvectorised.
  void AsLane(int64_t lane, const std::function<void()>& f);
  // bool is i1 as a value and a byte in memory; floats without arithmetic are integers. Types of less than a byte exist
  // as values alone: in memory they are an error.
  llvm::Type* ValueType(DType dtype);
  llvm::Type* MemoryType(DType dtype);
  llvm::Value* FromMemory(llvm::Value* v, DType dtype);
  llvm::Value* ToMemory(llvm::Value* v, DType dtype);

  llvm::Value* Fail(absl::Status status, llvm::Type* type = nullptr);
  llvm::Constant* I64(int64_t v) { return llvm::ConstantInt::getSigned(b_.getInt64Ty(), v); }
  llvm::Constant* LaneNumbers(llvm::Type* element, int64_t first, int64_t step);
  int current() const { return static_cast<int>(levels_.size()) - 1; }

  KernelContext& context_;
  llvm::Function* function_;
  llvm::Value* workspace_;
  llvm::Value* launcher_;
  llvm::IRBuilder<> b_;
  absl::Status status_;

  std::map<const ir::VarNode*, Binding> bindings_;
  std::vector<std::pair<const ir::VarNode*, int64_t>> unrolled_;  // loops that are being expanded, and their extents
  ir::Simplifier ranges_;
  Lanes lanes_;
  std::vector<Level> levels_;
  std::vector<Scope> scopes_;
  std::map<const ir::BufferNode*, llvm::Value*> pointers_;
  std::map<const ir::BufferNode*, RegisterArray> registers_;
  std::map<const void*, ir::Expr> flat_;  // per access: its flat index
  std::map<const ir::ExprNode*, std::vector<ir::Var>> vars_of_;
  std::map<std::pair<const ir::ExprNode*, std::vector<int64_t>>, ir::Expr> resolved_;
  // The local variable of each piece of each vectorised loop: one for ever, since cached expressions use it.
  std::map<std::pair<const ir::VarNode*, int64_t>, ir::Var> locals_;
  // Arrays allocated inside a vectorised loop: as many copies as lanes, neighbours in memory.
  std::map<const ir::BufferNode*, int64_t> private_;
  Tiles tiles_;
  int64_t as_lane_ = 0;         // inside AsLane: which
  std::vector<ir::Expr> kept_;  // made here, and known to the caches by address
};

}  // namespace temper
