#include "compiler/schedule/lower/tensor.h"

#include <array>

#include "absl/strings/str_cat.h"
#include "compiler/ir/launch.h"
#include "compiler/schedule/lower/team_tensor.h"
#include "compiler/schedule/lower/tensor_loop.h"

namespace temper::nest {
namespace {

using ir::ForKind;
using ir::FragmentLength;
using ir::kFragmentLength;
using ir::kMatrixSide;
using ir::kTensorWarp;
using ir::MatrixColumns;
using ir::QuarterColumns;

// How an operand's fragments are loaded: as rows of a matrix, as its columns, or each element by itself.
enum class Way { kRows, kColumns, kElements };

struct Operand {
  Expr load;                // of the element for the lane, e and k
  std::vector<Stmt> loops;  // of those between, the ones that it depends on
  Way way = Way::kRows;
  Buffer fragments;  // one for each iteration of those loops

  DType type() const { return load->dtype; }
};

class TensorLoop {
 public:
  // `around`: the loops around the tensor loop, thread loops among them.
  TensorLoop(const std::vector<Stmt>& around, const Stmt& loop) : around_(around), loop_(loop) {}

  absl::StatusOr<Stmt> Lower() {
    TEMPER_RETURN_IF_ERROR(Parse());
    TEMPER_RETURN_IF_ERROR(FindLanes());
    TEMPER_RETURN_IF_ERROR(CheckSums());
    TEMPER_RETURN_IF_ERROR(FindLayout(a_, true));
    TEMPER_RETURN_IF_ERROR(FindLayout(b_, false));
    const Stmt load_a = LoadAll(a_, true), load_b = LoadAll(b_, false);
    const Stmt multiply = UnrolledOver(between_, [&](const std::vector<ir::VarBinding>& renamed) {
      std::vector<Expr> sums;
      for (const Expr& e : store_->indices)
        sums.push_back(ir::Substitute(ir::Substitute(e, {{element_, Expr(0)}}), renamed));
      return ir::Multiply(store_->buffer, sums, FragmentOf(a_, renamed), FragmentOf(b_, renamed));
    });
    return ir::Alloc(a_.fragments, ir::Alloc(b_.fragments, ir::Seq({load_a, load_b, multiply})));
  }

 private:
  absl::Status Refuse(const std::string& why) const {
    return absl::FailedPreconditionError(absl::StrCat("tensor loop '", loop_->var->name, "': ", why));
  }

  absl::Status Parse() {
    Stmt s = loop_;
    for (; s->kind == StmtKind::kFor; s = s->body) between_.push_back(s);
    if (between_.size() < 3 || between_[between_.size() - 2]->extent != kFragmentLength || s->kind != StmtKind::kStore)
      return Refuse("it does not end in loops of a fragment and of steps around one statement");
    step_ = between_.back()->var;
    const int64_t steps = between_.back()->extent;
    element_ = between_[between_.size() - 2]->var;
    between_.resize(between_.size() - 2);
    store_ = s;
    const Factors factors = FactorsOf(s);
    a_.load = factors.a;
    b_.load = factors.b;
    if (!a_.load || !b_.load || a_.type() != b_.type())
      return Refuse(absl::StrCat("it does not add products of shared memory: ", ir::FirstLine(s)));
    if (steps != MatrixColumns(a_.type()))
      return Refuse(absl::StrCat(steps, " steps, where an instruction takes ", MatrixColumns(a_.type())));
    for (Operand* operand : {&a_, &b_}) {
      for (const Stmt& loop : between_) {
        if (Uses(*operand, loop->var)) operand->loops.push_back(loop);
      }
      Shape shape;
      for (const Stmt& loop : operand->loops) shape.push_back(loop->extent);
      shape.push_back(FragmentLength(operand->type()));
      operand->fragments =
          ir::MakeBuffer(operand->load->buffer->name + "_fragment", operand->type(), shape, ir::Scope::kRegister);
    }
    return absl::OkStatus();
  }

  static bool Uses(const Operand& operand, const Var& v) {
    return std::ranges::any_of(operand.load->args, [&](const Expr& e) { return ir::UsesVar(e, v); });
  }

  // Lane l is the thread l % X, l / X of the axes x and y.
  absl::Status FindLanes() {
    for (const Stmt& loop : around_) {
      if (loop->for_kind == ForKind::kThreadX) x_ = loop;
      if (loop->for_kind == ForKind::kThreadY) y_ = loop;
    }
    if (x_ == nullptr || y_ == nullptr || x_->extent * y_->extent != kTensorWarp)
      return Refuse("the threads along x and y are not the 32 of a warp");
    return absl::OkStatus();
  }

  // The loops around, and those between, at their first iterations, or at their last.
  Point Corner(bool last) const {
    Point point;
    for (const std::vector<Stmt>* loops : {&around_, &between_}) {
      for (const Stmt& loop : *loops) point[loop->var.get()] = last ? loop->extent - 1 : 0;
    }
    return point;
  }

  std::optional<int64_t> At(const Expr& flat, Point point, int64_t lane, int64_t element, int64_t step) const {
    point[x_->var.get()] = lane % x_->extent;
    point[y_->var.get()] = lane / x_->extent;
    point[element_.get()] = element;
    point[step_.get()] = step;
    return ValueAt(flat, point);
  }

  absl::Status CheckSums() const {
    const Expr flat = ir::FlatIndex(store_->buffer, store_->indices);
    for (const bool last : {false, true}) {
      const Point corner = Corner(last);
      const std::optional<int64_t> first = At(flat, corner, 0, 0, 0);
      bool holds = first.has_value() && *first % kFragmentLength == 0;
      for (int64_t lane = 0; lane < kTensorWarp && holds; ++lane) {
        for (int64_t e = 0; e < kFragmentLength && holds; ++e)
          holds = At(flat, corner, lane, e, MatrixColumns(a_.type()) - 1) == *first + e;
      }
      if (!holds) return Refuse(absl::StrCat("'", store_->buffer->name, "' holds no fragments"));
    }
    return absl::OkStatus();
  }

  // Some lane and element of the sums' row `outer` (of A), or of their column (of B).
  static std::pair<int64_t, int64_t> Someone(bool of_a, int64_t outer) {
    if (of_a) return {4 * (outer % 8), 2 * (outer / 8)};
    return {outer % 8 / 2, outer % 2 + 4 * (outer / 8)};
  }

  bool HasLayout(const Operand& operand, bool of_a, bool last) const {
    const Expr flat = ir::FlatIndex(operand.load->buffer, operand.load->args);
    const Point corner = Corner(last);
    const int64_t run = QuarterColumns(operand.type()), steps = MatrixColumns(operand.type());
    std::array<std::array<int64_t, kMatrixSide>, kMatrixSide> places;  // by outer and step
    for (int64_t outer = 0; outer < kMatrixSide; ++outer) {
      const auto [lane, element] = Someone(of_a, outer);
      for (int64_t step = 0; step < steps; ++step) {
        const std::optional<int64_t> at = At(flat, corner, lane, element, step);
        if (!at.has_value()) return false;
        places[static_cast<size_t>(outer)][static_cast<size_t>(step)] = *at;
      }
    }
    const auto place = [&](int64_t outer, int64_t step) {
      return places[static_cast<size_t>(outer)][static_cast<size_t>(step)];
    };
    for (int64_t outer = 0; outer < kMatrixSide && operand.way != Way::kElements; ++outer) {
      for (int64_t step = 0; step < steps; ++step) {
        const bool in_column = operand.way == Way::kColumns;
        const int64_t along = in_column ? outer : step;
        const int64_t first = in_column ? place(outer - outer % run, step) : place(outer, step - step % run);
        if (first % run != 0 || place(outer, step) != first + along % run) return false;
      }
    }
    for (int64_t lane = 0; lane < kTensorWarp; ++lane) {
      for (int64_t e = 0; e < kFragmentLength; ++e) {
        const ir::MatrixPlace sum = ir::SumPlace(lane, e);
        for (int64_t step = 0; step < steps; ++step) {
          if (At(flat, corner, lane, e, step) != place(of_a ? sum.row : sum.column, step)) return false;
        }
      }
    }
    return true;
  }

  // No instruction loads columns of f32.
  absl::Status FindLayout(Operand& operand, bool of_a) {
    for (const Way way : {Way::kRows, operand.type() == DType::kF32 ? Way::kElements : Way::kColumns}) {
      operand.way = way;
      if (HasLayout(operand, of_a, false) && HasLayout(operand, of_a, true)) return absl::OkStatus();
    }
    return Refuse(absl::StrCat("'", operand.load->buffer->name, "' does not lie as its matrices are loaded"));
  }

  // The operand's load at row `outer` (of eight) of the upper or lower half of A's, or left or right of B's, and at
  // `step`: as Someone has it.
  Expr LoadAt(const Operand& operand, bool of_a, const Expr& outer, const Expr& half, const Expr& step) const {
    const Expr from = of_a ? outer * Expr(4) : outer / Expr(2);  // a lane
    const Expr element = half * Expr(of_a ? 2 : 4) + (of_a ? Expr(0) : outer % Expr(2));
    const std::vector<ir::VarBinding> named = {
        {x_->var, from % Expr(x_->extent)}, {y_->var, from / Expr(x_->extent)}, {element_, element}, {step_, step}};
    return ir::Substitute(operand.load, named);
  }

  Expr Lane() const { return Expr(x_->var) + Expr(y_->var) * Expr(x_->extent); }

  // The operand's load at the first of the elements that the lane names.
  Expr RowOf(const Operand& operand, bool of_a) const {
    const Expr in_eight = Lane() % Expr(8), even = Lane() / Expr(8) % Expr(2), high = Lane() / Expr(16);
    const Expr &half = of_a ? even : high, &along = of_a ? high : even;  // of the lane's quarter
    const Expr first = along * Expr(QuarterColumns(operand.type()));
    if (operand.way == Way::kColumns) return LoadAt(operand, of_a, Expr(0), half, in_eight + first);
    return LoadAt(operand, of_a, in_eight, half, first);
  }

  // Of f32, what was loaded is rounded before it is multiplied.
  Stmt LoadAll(const Operand& operand, bool of_a) const {
    return UnrolledOver(operand.loops, [&](const std::vector<ir::VarBinding>& renamed) {
      const Expr fragment = FragmentOf(operand, renamed);
      if (operand.way == Way::kElements) return LoadElements(operand, of_a, fragment->args, renamed);
      const Stmt load = ir::LoadMatrix(operand.fragments, fragment->args, ir::Substitute(RowOf(operand, of_a), renamed),
                                       operand.way == Way::kColumns);
      return operand.type() == DType::kF32 ? ir::Seq({load, Round(operand, fragment->args)}) : load;
    });
  }

  static Stmt Round(const Operand& operand, std::vector<Expr> fragment) {
    const Var e = ir::MakeVar("e");
    fragment.back() = Expr(e);
    return ir::For(e, FragmentLength(operand.type()), ForKind::kUnrolled,
                   ir::Store(operand.fragments, fragment, ir::Tf32(ir::Load(operand.fragments, fragment))));
  }

  // The lane's elements of f32, of which a quarter has one.
  Stmt LoadElements(const Operand& operand, bool of_a, std::vector<Expr> fragment,
                    const std::vector<ir::VarBinding>& renamed) const {
    const Var half = ir::MakeVar("half"), along = ir::MakeVar("along");
    fragment.back() = of_a ? Expr(along) * Expr(2) + Expr(half) : Expr(half) * Expr(2) + Expr(along);
    const Expr load = LoadAt(operand, of_a, Lane() / Expr(4), half, Lane() % Expr(4) + Expr(along) * Expr(4));
    const Stmt store = ir::Store(operand.fragments, fragment, ir::Tf32(ir::Substitute(load, renamed)));
    return ir::For(half, 2, ForKind::kUnrolled, ir::For(along, 2, ForKind::kUnrolled, store));
  }

  static Expr FragmentOf(const Operand& operand, const std::vector<ir::VarBinding>& renamed) {
    std::vector<Expr> indices;
    for (const Stmt& loop : operand.loops) indices.push_back(ir::Substitute(Expr(loop->var), renamed));
    indices.emplace_back(0);
    return ir::Load(operand.fragments, indices);
  }

  const std::vector<Stmt>& around_;
  const Stmt loop_;
  std::vector<Stmt> between_;  // from the tensor loop to the last but those of elements and steps
  Var element_, step_;
  Stmt store_, x_, y_;
  Operand a_, b_;
};

absl::StatusOr<Stmt> LowerBelow(const Stmt& s, std::vector<Stmt>& around) {
  if (s->kind == StmtKind::kFor && s->for_kind == ForKind::kTensor) return TensorLoop(around, s).Lower();
  if (s->kind == StmtKind::kFor && s->for_kind == ForKind::kTeamTensor) return LowerTeamTensorLoop(s, around);
  auto copy = std::make_shared<StmtNode>(*s);
  if (s->kind == StmtKind::kFor) around.push_back(s);
  for (Stmt* child : {&copy->body, &copy->else_body}) {
    if (*child == nullptr) continue;
    TEMPER_ASSIGN_OR_RETURN(*child, LowerBelow(*child, around));
  }
  for (Stmt& child : copy->stmts) {
    TEMPER_ASSIGN_OR_RETURN(child, LowerBelow(child, around));
  }
  if (s->kind == StmtKind::kFor) around.pop_back();
  return copy;
}

}  // namespace

absl::StatusOr<Stmt> LowerTensorLoops(const Stmt& root) {
  const auto is_tensor = [](const Stmt& s) {
    return s->kind == StmtKind::kFor && (s->for_kind == ForKind::kTensor || s->for_kind == ForKind::kTeamTensor);
  };
  std::vector<Stmt> around;
  return ir::AnyOf(root, is_tensor) ? LowerBelow(root, around) : root;
}

}  // namespace temper::nest
