// One launch as a kernel function in a dialect of C. Thread code stays as it is: loops are loops, with a hint where
// they are to be unrolled, register arrays are private arrays, and a value that an expression holds twice is a
// variable. Vectorised loops over neighbouring elements are vectors.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "compiler/codegen/c_like/dialect.h"
#include "compiler/codegen/c_like/types.h"
#include "compiler/ir/launch.h"
#include "compiler/ir/simplify.h"

namespace temper {

// An array that lives around the launches: at so many bytes of the workspace.
struct WorkspaceArray {
  ir::Buffer buffer;
  int64_t offset;
};

class KernelEmitter {
 public:
  // What the kernels of a function call is added to `prelude`, whose dialect they have. `in_place`: as CodegenInput has
  // it.
  KernelEmitter(const ir::Func& func, const std::vector<WorkspaceArray>& workspace, int in_place, Prelude& prelude)
      : func_(func), workspace_(workspace), in_place_(in_place), prelude_(prelude), dialect_(prelude.dialect()) {}
  // The function `name`, whose arguments are the parameters in order and, if there is any, the workspace.
  // kUnimplemented names what there is no code for.
  absl::StatusOr<std::string> Emit(const ir::Launch& launch, const std::string& name);

 private:
  // --- statements
  void EmitArguments();
  void EmitSharedArrays(const ir::Launch& launch);
  void EmitRegisterArray(const ir::Buffer& buffer);
  void EmitIds(const std::vector<ir::Stmt>& loops, std::string (*id)(int axis));
  void EmitStmt(const ir::Stmt& s);
  void EmitFor(const ir::Stmt& s);
  void EmitIf(const ir::Stmt& s);
  void EmitStore(const ir::Stmt& s);
  void EmitInstruction(const ir::Stmt& s);
  void Line(const std::string& text);
  void Block(const std::string& head, const ir::Stmt& body);

  // --- vectors
  struct Lanes {
    ir::Buffer buffer;
    ir::Expr first;  // where the first of them lies, flat
    bool aligned;    // to the vector's size
  };
  // None unless they lie side by side. `loop` null: one element.
  std::optional<Lanes> LanesOf(const ir::Buffer& buffer, const std::vector<ir::Expr>& indices, const ir::Stmt& loop);
  const char* Space(ir::Scope scope) const;  // of pointers to it
  std::string Pointer(const Lanes& lanes);
  // What unrolled loops add comes last, so that their iterations share an address and have constants beside it.
  std::string Stepped(const ir::Expr& flat);
  std::pair<ir::Expr, ir::Expr> StepOf(const ir::Expr& flat) const;            // without what they add, and that
  std::string SteppedPointer(const ir::Buffer& buffer, const ir::Expr& flat);  // to that element
  std::string VectorPointer(const Lanes& lanes, int64_t length, bool writes);
  std::string ElementsFrom(const Lanes& lanes, int64_t length);  // "p[3], p[4]"
  std::optional<std::string> VectorValue(const ir::Expr& e, const ir::Stmt& loop);
  bool EmitVectorized(const ir::Stmt& loop);  // false: nothing was emitted, it has to be a loop
  // Of an asynchronous store, or of a vectorised loop of them. False: nothing was emitted.
  bool EmitCopy(const ir::Stmt& store, const ir::Stmt& loop);

  // --- functions of warps (cuda/functions.h)
  std::string WarpFunction(const std::string& name);
  void EmitAddProduct(const ir::Stmt& s);
  std::string Descriptor(const ir::Stmt& product, size_t number);  // of that operand
  std::string FragmentPointer(const ir::Buffer& buffer, const std::vector<ir::Expr>& indices);

  // The row that a lane names for a load of a matrix in loops, or the element that it loads: before them stands an
  // array of what they do not change of its address, for each iteration of unrolled loops that are no mere steps.
  struct Row {
    std::string array;
    ir::Expr index = ir::Expr(0), rest = ir::Expr(0);  // in elements
  };
  void EmitRowsOf(const ir::Stmt& s, std::vector<ir::Stmt>& loops);
  void EmitRow(const ir::Stmt& s, const std::vector<ir::Stmt>& loops);
  bool EmitElement(const ir::Stmt& s);  // false: it loads none
  std::string RowOf(const ir::Stmt& s);

  // --- values that expressions hold more than once
  struct Use {
    int count = 0;
    bool always = false;  // it is evaluated whatever the conditions around it say
  };
  void BeginStatement(const ir::Expr& e);
  void CountUses(const ir::Expr& e, bool always);
  bool IsKept(const ir::Expr& e) const;

  // --- expressions
  // An i64 whose bounds are known to fit is an int: devices compute with 32 bits.
  std::string Value(const ir::Expr& e);
  std::string Node(const ir::Expr& e);
  std::string As(const ir::Expr& e, bool wide);  // an i64 as a long, or as an int
  bool IsWide(const ir::Expr& e);
  std::string TypeOf(const ir::Expr& e);
  std::string Element(const ir::Buffer& buffer, const std::vector<ir::Expr>& indices);
  std::string Load(const ir::Expr& e);
  std::string Arithmetic(const ir::Expr& e);
  std::string IntArithmetic(const ir::Expr& e, const char* op);
  std::string DivMod(const ir::Expr& e);
  std::string MinMax(const ir::Expr& e);
  std::string Pow(const ir::Expr& e);
  std::string Compare(const ir::Expr& e);
  std::string Select(const ir::Expr& e);
  std::string Cast(const ir::Expr& e);
  std::string Function(const ir::Expr& e);

  const std::string& NameOf(const void* key, const std::string& wished);
  std::string Fail(const std::string& what);

  const ir::Func& func_;
  const std::vector<WorkspaceArray>& workspace_;
  const int in_place_;
  Prelude& prelude_;
  const Dialect& dialect_;

  absl::Status status_;
  std::string text_;
  int indent_ = 0;
  std::string barrier_;
  ir::Simplifier ranges_;
  std::unordered_map<const void*, std::string> names_;  // of variables and arrays
  std::set<std::string> taken_;
  std::vector<ir::Var> unrolled_;  // of the loops around
  std::unordered_map<const ir::StmtNode*, Row> rows_;
  std::set<const void*> halves_;  // arrays whose elements lie in words, two in each
  int kept_ = 0;
  // Keys are held beside the answers: an address must not come back as another node's.
  std::unordered_map<const ir::ExprNode*, std::pair<ir::Expr, bool>> wide_;
  // Of the statement at hand:
  std::unordered_map<const ir::ExprNode*, Use> uses_;
  std::unordered_map<const ir::ExprNode*, std::string> variables_;
};

}  // namespace temper
