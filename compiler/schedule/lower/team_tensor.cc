#include "compiler/schedule/lower/team_tensor.h"

#include <array>

#include "absl/strings/str_cat.h"
#include "compiler/ir/launch.h"
#include "compiler/ir/simplify.h"
#include "compiler/schedule/lower/tensor_loop.h"

namespace temper::nest {
namespace {

using ir::ForKind;
using ir::kFragmentLength;
using ir::kMatrixSide;
using ir::kTeamRows;
using ir::kTeamSteps;
using ir::kTeamWarps;
using ir::kTensorWarp;
using ir::kTileSide;

constexpr int64_t kLanesX = 4, kLanesY = 8;

class TeamTensorLoop {
 public:
  TeamTensorLoop(const Stmt& loop, const std::vector<Stmt>& around) : around_(around), loop_(loop) {}

  absl::StatusOr<Stmt> Lower() {
    TEMPER_RETURN_IF_ERROR(Parse());
    TEMPER_RETURN_IF_ERROR(FindThreads());
    TEMPER_RETURN_IF_ERROR(CheckSums());
    std::array<ir::TiledMatrix, 2> tiled;
    TEMPER_ASSIGN_OR_RETURN(tiled[0], LayoutOf(factors_.a, true));
    TEMPER_ASSIGN_OR_RETURN(tiled[1], LayoutOf(factors_.b, false));
    const Stmt products = UnrolledOver(between_, [&](const std::vector<ir::VarBinding>& renamed) {
      std::vector<Expr> sums;
      for (const Expr& e : store_->indices) sums.push_back(ir::Substitute(ir::Substitute(e, AtFirst()), renamed));
      const auto first = [&](const Expr& load) { return ir::Substitute(ir::Substitute(load, AtFirst()), renamed); };
      return ir::AddProduct(store_->buffer, sums, kMatrixSide * columns_->extent, first(factors_.a), first(factors_.b),
                            tiled);
    });
    return ir::Seq({ir::BeginProducts(store_->buffer), products, ir::EndProducts(store_->buffer)});
  }

 private:
  absl::Status Refuse(const std::string& why) const {
    return absl::FailedPreconditionError(absl::StrCat("team tensor loop '", loop_->var->name, "': ", why));
  }

  std::array<const std::vector<Stmt>*, 2> Loops() const { return {&around_, &between_}; }

  absl::Status Parse() {
    Stmt s = loop_;
    for (; s->kind == StmtKind::kFor; s = s->body) between_.push_back(s);
    if (between_.size() < 4 || s->kind != StmtKind::kStore)
      return Refuse("it does not end in loops of columns, a fragment and steps around one statement");
    for (Stmt* last : {&step_, &element_, &columns_}) {
      *last = between_.back();
      between_.pop_back();
    }
    if (element_->extent != kFragmentLength || step_->extent != kTeamSteps)
      return Refuse(absl::StrCat("a fragment of ", element_->extent, " sums and ", step_->extent, " steps, not of ",
                                 kFragmentLength, " and ", kTeamSteps));
    store_ = s;
    factors_ = FactorsOf(s);
    const auto of_halves = [](const Expr& load) { return load && SizeOf(load->dtype) == 2; };
    if (!of_halves(factors_.a) || !of_halves(factors_.b) || factors_.a->dtype != factors_.b->dtype)
      return Refuse(absl::StrCat("it does not add products of 2-byte types in shared memory: ", ir::FirstLine(s)));
    return absl::OkStatus();
  }

  // The thread along z is warp_ of team_.
  absl::Status FindThreads() {
    for (const Stmt& loop : around_) {
      if (loop->for_kind == ForKind::kThreadX) x_ = loop;
      if (loop->for_kind == ForKind::kThreadY) y_ = loop;
      if (loop->for_kind == ForKind::kThreadZ) z_ = loop;
    }
    if (x_ == nullptr || y_ == nullptr || x_->extent != kLanesX || y_->extent != kLanesY)
      return Refuse("the threads along x and y are not the 4 and 8 of a warp");
    if (z_ == nullptr || z_->extent % kTeamWarps != 0) return Refuse("the threads along z are no teams of four warps");
    team_ = ir::MakeVar("team");
    warp_ = ir::MakeVar("warp");
    for (const std::vector<Stmt>* loops : Loops())
      for (const Stmt& loop : *loops) ranges_.Bind(loop->var, loop->extent);
    for (const Stmt& loop : {columns_, element_, step_}) ranges_.Bind(loop->var, loop->extent);
    ranges_.Bind(team_, z_->extent / kTeamWarps);
    ranges_.Bind(warp_, kTeamWarps);
    return absl::OkStatus();
  }

  Expr ByTeam(const Expr& e) const {
    return ranges_.Simplify(ir::Substitute(e, {{z_->var, Expr(team_) * Expr(kTeamWarps) + Expr(warp_)}}));
  }

  // What all threads of a team name: the first of the matrices.
  std::vector<ir::VarBinding> AtFirst() const {
    return {{x_->var, Expr(0)},
            {y_->var, Expr(0)},
            {z_->var, Expr(z_->var) / Expr(kTeamWarps) * Expr(kTeamWarps)},
            {columns_->var, Expr(0)},
            {element_->var, Expr(0)},
            {step_->var, Expr(0)}};
  }

  // The loops around, those between and the teams at their first iterations, or at their last; all else at the first.
  Point Corner(bool last) const {
    Point point;
    for (const std::vector<Stmt>* loops : Loops())
      for (const Stmt& loop : *loops) point[loop->var.get()] = last ? loop->extent - 1 : 0;
    point[team_.get()] = last ? z_->extent / kTeamWarps - 1 : 0;
    for (const Stmt& loop : {x_, y_, columns_, element_, step_}) point[loop->var.get()] = 0;
    point[warp_.get()] = 0;
    return point;
  }

  absl::Status CheckSums() const {
    const Expr flat = ByTeam(ir::FlatIndex(store_->buffer, store_->indices));
    bool holds = true;
    for (const Var& v : {x_->var, y_->var, team_, warp_, step_->var}) holds = holds && !ir::UsesVar(flat, v);
    for (const bool last : {false, true}) {
      Point point = Corner(last);
      const std::optional<int64_t> first = ValueAt(flat, point);
      holds = holds && first.has_value() && *first % kFragmentLength == 0;
      for (int64_t i = 0; i < columns_->extent * kFragmentLength && holds; ++i) {
        point[columns_->var.get()] = i / kFragmentLength;
        point[element_->var.get()] = i % kFragmentLength;
        holds = ValueAt(flat, point) == *first + i;
      }
    }
    return holds ? absl::OkStatus() : Refuse(absl::StrCat("'", store_->buffer->name, "' holds no fragments"));
  }

  // Calls `see` with each row of A (column of B), each step and the place of what is there, for all threads and sums
  // that name it; false where `see` is.
  bool EachPlace(const Expr& flat, bool of_a, Point point,
                 const std::function<bool(int64_t outer, int64_t step, std::optional<int64_t> place)>& see) const {
    const int64_t blocks = of_a ? kTeamWarps : columns_->extent, lanes = of_a ? kLanesY : kLanesX;
    for (int64_t i = 0; i < blocks * lanes * kFragmentLength; ++i) {
      const int64_t e = i % kFragmentLength, lane = i / kFragmentLength % lanes, block = i / kFragmentLength / lanes;
      const ir::MatrixPlace sum = ir::SumPlace(of_a ? kLanesX * lane : lane, e);
      point[(of_a ? warp_ : columns_->var).get()] = block;
      point[(of_a ? y_ : x_)->var.get()] = lane;
      point[element_->var.get()] = e;
      for (int64_t step = 0; step < kTeamSteps; ++step) {
        point[step_->var.get()] = step;
        if (!see(kMatrixSide * block + (of_a ? sum.row : sum.column), step, ValueAt(flat, point))) return false;
      }
    }
    return true;
  }

  absl::StatusOr<ir::TiledMatrix> LayoutOf(const Expr& load, bool of_a) const {
    const absl::Status refusal = Refuse(absl::StrCat("'", load->buffer->name, "' does not lie in tiles"));
    const Expr flat = ByTeam(ir::FlatIndex(load->buffer, load->args));
    const std::vector<Var> others = of_a ? std::vector<Var>{columns_->var, x_->var} : std::vector<Var>{warp_, y_->var};
    for (const Var& v : others)
      if (ir::UsesVar(flat, v)) return refusal;
    std::optional<ir::TiledMatrix> found;
    for (const bool last : {false, true}) {
      // The corner's first element, its neighbours in a tile, and the tiles beside it.
      std::map<std::pair<int64_t, int64_t>, int64_t> places;
      const bool whole = EachPlace(flat, of_a, Corner(last), [&](int64_t outer, int64_t step, auto place) {
        if (place.has_value()) places.try_emplace({outer, step}, *place);
        return place.has_value();
      });
      if (!whole) return refusal;
      const int64_t first = places[{0, 0}];
      const ir::TiledMatrix m = {places[{1, 0}] == first + 1, places[{0, kTileSide}] - first,
                                 places[{kTileSide, 0}] - first};
      const bool fits =
          first % kTileSide == 0 && EachPlace(flat, of_a, Corner(last), [&](int64_t outer, int64_t step, auto place) {
            const int64_t row = m.turned ? step : outer, in_row = m.turned ? outer : step;
            return place == first + outer / kTileSide * m.next_outer + step / kTileSide * m.next_step +
                                row % kTileSide * kTileSide + in_row % kTileSide;
          });
      const bool same = !found.has_value() || (found->turned == m.turned && found->next_step == m.next_step &&
                                               found->next_outer == m.next_outer);
      if (!fits || !same) return refusal;
      found = m;
    }
    return *found;
  }

  const std::vector<Stmt>& around_;
  const Stmt loop_;
  std::vector<Stmt> between_;  // from the tensor loop to the last but those of columns, elements and steps
  Stmt columns_, element_, step_, store_, x_, y_, z_;
  Var team_, warp_;
  Factors factors_;
  ir::Simplifier ranges_;
};

}  // namespace

absl::StatusOr<Stmt> LowerTeamTensorLoop(const Stmt& loop, const std::vector<Stmt>& around) {
  return TeamTensorLoop(loop, around).Lower();
}

}  // namespace temper::nest
