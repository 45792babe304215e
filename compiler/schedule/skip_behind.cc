#include "compiler/schedule/skip_behind.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "base/division.h"
#include "compiler/schedule/region.h"

namespace temper {
namespace {

using namespace nest;  // NOLINT: this file is about nests
using ir::ExprKind;
using ir::ForKind;

// A tile of registers of as many elements along an axis, or more, has short ones besides: of these shares of them.
constexpr int64_t kFewestToShorten = 4, kShorter[] = {kShortestTile, 2};
constexpr int64_t kFar = int64_t{1} << 40;  // further than any place, and no overflow when it is multiplied

// The least that a place may be while the loops `inner` run: an expression over the others.
Expr LeastOf(const Expr& e, const ir::Simplifier& ranges, const VarSet& inner) {
  if (!UsesAny(e, inner)) return e;
  if (std::optional<Range> range = RangeOf(e, ranges, inner)) return range->min;
  const auto least = [&](size_t i) { return LeastOf(e->args[i], ranges, inner); };
  const auto positive = [&](size_t i) { return ir::AsInt(e->args[i]).value_or(0) > 0; };
  if (e->kind == ExprKind::kAdd) return least(0) + least(1);
  if (e->kind == ExprKind::kMax) return ir::Max(least(0), least(1));
  if (e->kind == ExprKind::kSub && !UsesAny(e->args[1], inner)) return least(0) - e->args[1];
  if (e->kind == ExprKind::kMul && positive(1)) return least(0) * e->args[1];
  if (e->kind == ExprKind::kMul && positive(0)) return e->args[0] * least(1);
  if (e->kind == ExprKind::kDiv && positive(1)) return least(0) / e->args[1];
  if (e->kind == ExprKind::kMod && positive(1)) {
    // Where it does not begin again meanwhile, what it begins with.
    const std::optional<Range> range = RangeOf(e->args[0], ranges, inner);
    const int64_t most = *ir::AsInt(e->args[1]) - (range ? range->extent : 0);
    if (!range || most < 0) return Expr(0);
    const Expr first = ranges.Simplify(range->min % e->args[1]);
    return ir::Select(first <= Expr(most), first, Expr(0));
  }
  const std::optional<ir::Interval> bounds = ranges.Bounds(e);
  return Expr(bounds ? bounds->min : -kFar);
}

// What an index tells of one of its terms, over `at`, which stands for the index.
struct Told {
  Expr value;
  bool exact;  // else it is the least that the term may be
};
std::optional<Told> ToldOf(const ir::Sum& index, const ir::Term& term, const Var& at, const ir::Simplifier& ranges) {
  const std::optional<ir::Interval> own = ranges.Bounds(term.atom);
  const int64_t step = term.coefficient;
  if (step <= 0 || !own || own->max > kFar / step) return std::nullopt;
  const int64_t span = step * (own->max + 1);
  Expr rest(index.constant), less(index.constant);  // less: without what is whole spans
  bool has_spans = false;
  for (const ir::Term& t : index.terms) {
    if (&t == &term) continue;
    rest = rest + t.atom * Expr(t.coefficient);
    const bool is_span = own->min >= 0 && t.coefficient > 0 && t.coefficient % span == 0;
    if (!is_span) less = less + t.atom * Expr(t.coefficient);
    has_spans |= is_span;
  }
  const std::optional<ir::Interval> inner = ranges.Bounds(less), all = ranges.Bounds(rest);
  if (inner && inner->min >= 0 && inner->max < step) {
    const Expr whole = Expr(at) / Expr(step);
    return Told{has_spans ? whole % Expr(own->max + 1) : whole, true};
  }
  if (!all || std::abs(all->max) > kFar) return std::nullopt;
  // (at - the rest) / step, rounded up; what is divided is not negative.
  const int64_t more = step - 1 - all->max, wholes = std::max<int64_t>(0, (step - 1 - more) / step);
  return Told{(Expr(at) + Expr(more + wholes * step)) / Expr(step) - Expr(wholes), false};
}

// A variable by an index: what it is over `at`, which stands for the index, or the least that it may be. Empty: the
// index does not tell it.
Expr VariableBy(const Var& var, const std::vector<Expr>& index, const std::vector<Var>& at,
                const ir::Simplifier& ranges, bool exact) {
  const auto divides = [&](const Expr& e, ExprKind kind) {
    const bool of_var = e->kind == kind && e->args[0]->kind == ExprKind::kVar && e->args[0]->var == var;
    return of_var ? ir::AsInt(e->args[1]).value_or(0) : 0;
  };
  for (size_t i = 0; i < index.size(); ++i) {
    const ir::Sum sum = ir::Flatten(index[i]);
    for (const ir::Term& term : sum.terms) {
      const bool is_var = term.atom->kind == ExprKind::kVar && term.atom->var == var;
      const int64_t divisor = is_var ? 1 : divides(term.atom, ExprKind::kDiv);
      if (divisor <= 0) continue;
      const std::optional<Told> told = ToldOf(sum, term, at[i], ranges);
      if (!told || (exact && !told->exact)) continue;
      if (is_var) return told->value;
      const Expr parts = told->value * Expr(divisor);
      for (size_t j = 0; j < index.size(); ++j) {
        if (divides(index[j], ExprKind::kMod) == divisor) return parts + Expr(at[j]);
      }
      if (!exact) return parts;
    }
  }
  return {};
}

// A place over iterators as one over the index `at` of what is read there, the least where several read it. Empty: the
// index does not tell it.
Expr PlaceBy(const Expr& place, const std::vector<Expr>& index, const std::vector<Var>& at,
             const ir::Simplifier& ranges) {
  VarSet left;
  CollectVars(place, left);
  std::vector<ir::VarBinding> told;
  bool known = true;
  ir::Visit(place, [&](const Expr& e) {
    if (e->kind != ExprKind::kVar || !left.erase(e->var.get())) return;
    Expr by = VariableBy(e->var, index, at, ranges, true);
    const bool has_least = !by && GrowsWith(place, e->var);
    if (has_least) by = VariableBy(e->var, index, at, ranges, false);
    if (has_least && !by) by = Expr(0);  // iterators begin there
    if (by) told.push_back({e->var, by});
    known = known && by;
  });
  return known ? ir::Substitute(place, told) : Expr();
}

// The places of which it is the largest.
std::vector<Expr> PartsOf(const Expr& place) {
  if (place->kind != ExprKind::kMax) return {place};
  std::vector<Expr> parts = PartsOf(place->args[0]);
  std::ranges::copy(PartsOf(place->args[1]), std::back_inserter(parts));
  return parts;
}

// Buffers of which an element says where another one lies, or is part of a division of whole numbers, or something is
// that is made of it.
std::set<const ir::BufferNode*> PlacesIn(const std::vector<Stmt>& blocks) {
  std::set<const ir::BufferNode*> places;
  const auto each = [](const Expr& root, const std::function<void(const Expr&)>& visit) {
    ir::AnyNode(root, [&](const Expr& e) {
      visit(e);
      return false;
    });
  };
  const auto add = [&](const Expr& root) {
    each(root, [&](const Expr& e) {
      if (e->kind == ExprKind::kLoad) places.insert(e->buffer.get());
    });
  };
  const auto add_in = [&](const Expr& root) {
    each(root, [&](const Expr& e) {
      const bool divides = (e->kind == ExprKind::kDiv || e->kind == ExprKind::kMod) && !IsFloat(e->dtype);
      if (e->kind == ExprKind::kLoad || divides) std::ranges::for_each(e->args, add);
    });
  };
  for (const Stmt& block : blocks) {
    std::ranges::for_each(block->indices, add);
    add_in(block->value);
    if (block->block.init) add_in(block->block.init);
  }
  for (size_t before = places.size() + 1; before != places.size();) {
    before = places.size();
    for (const Stmt& block : blocks) {
      if (places.contains(block->buffer.get())) add(block->value);
    }
  }
  return places;
}

class Skipper {
 public:
  Skipper(const ir::Func& f, const std::vector<OperandFacts>& operands, const std::vector<Behind>& output, int extent)
      : func_(f), facts_(f, operands), extent_(extent), blocks_(BlocksIn(f.body)), places_(PlacesIn(blocks_)) {
    const Buffer& out = f.params.back();
    std::optional<Behind>& unread = unread_[out.get()];
    for (const Behind& b : output) {
      if (b.kind == Behind::kUnread && b.extent == extent && !unread) unread = InShape(b, out->shape);
    }
    BindLoopsIn(f.body, loops_);
    ir::VisitStmt(f.body, [&](const Stmt& s) {
      if (s->kind == StmtKind::kFor && s->for_kind == ForKind::kTile) in_tiles_.merge(LoopVarsIn(s->body));
    });
  }

  std::vector<std::optional<Behind>> UnreadOperands() {
    std::vector<std::optional<Behind>> unread;
    for (size_t i = 0; i + 1 < func_.params.size(); ++i) unread.push_back(UnreadOf(func_.params[i]));
    return unread;
  }

  std::optional<ir::Func> Run() {
    // What reads the output would have to know where it is not written.
    if (!ReadersOf(func_.body, func_.params.back()).empty()) return std::nullopt;
    ir::Func result = func_;
    // All of it, perhaps, as a step of a sequence that has ended.
    const Expr least = LeastPlace(func_.body, [](const Expr& place) { return ir::AsInt(place).value_or(0) > 0; });
    result.body = least ? ir::If(least < Extent(), func_.body) : Skip(func_.body);
    if (!least && !skips_) return std::nullopt;
    result.body = WithShortTiles(result.body);
    result.params.insert(result.params.end() - 1, parameter_);
    return result;
  }

 private:
  // What of a buffer nobody reads; nullopt: all may be read. A buffer that is made of itself is read whole.
  const std::optional<Behind>& UnreadOf(const Buffer& buffer) {
    const auto [known, is_new] = unread_.try_emplace(buffer.get());
    if (!is_new) return known->second;
    std::optional<Behind> read = ByReaders(buffer);
    return unread_[buffer.get()] = std::move(read);
  }

  std::optional<Behind> ByReaders(const Buffer& buffer) {
    if (places_.contains(buffer.get())) return std::nullopt;  // it has to be one wherever it is read
    Behind result{.extent = extent_, .shape = buffer->shape, .index = IndexOf(buffer->shape.size())};
    ir::Simplifier own;
    for (size_t d = 0; d < buffer->shape.size(); ++d) own.Bind(result.index[d], buffer->shape[d]);
    for (const Stmt& block : blocks_) {
      const std::vector<Expr> reads = ReadsOf(*block, buffer);
      if (reads.empty()) continue;
      const ir::Simplifier ranges = RangesOf(*block);
      const Expr all = UnreadPlace(*block);
      std::vector<Expr> places = Guards(*block, reads, ranges);
      for (size_t i = 0; i < reads.size(); ++i) {
        if (!places[i] && !all) return std::nullopt;
        if (!places[i] || (all && IsAtMost(places[i], all, ranges))) places[i] = all;
        if (all && !IsAtMost(all, places[i], ranges)) places[i] = ir::Max(places[i], all);  // behind one or the other
        std::vector<Expr> index;
        for (const Expr& e : reads[i]->args) index.push_back(ranges.Simplify(e));
        Behind here = result;
        here.place = PlaceBy(places[i], index, result.index, ranges);
        if (here.place) here.place = own.Simplify(here.place);
        const std::optional<Behind> both = here.place && result.place ? BehindBoth(result, here) : here;
        if (!both || !both->place) return std::nullopt;
        result = *both;
      }
    }
    const bool says = result.place && ir::AsInt(result.place).value_or(1) > 0;  // no extent is less than 1
    return says ? std::optional(result) : std::nullopt;
  }

  // For each of a block's loads: a place of it behind which a choice in its value does not take what is loaded. Empty:
  // there is none.
  std::vector<Expr> Guards(const StmtNode& block, const std::vector<Expr>& loads, const ir::Simplifier& ranges) const {
    std::vector<Expr> guards(loads.size()), places;  // places: kept while their nodes tell them apart
    std::vector<bool> met(loads.size(), false);
    std::set<std::pair<const ir::ExprNode*, const ir::ExprNode*>> walked;  // nodes are shared
    const std::function<void(const Expr&, const Expr&)> walk = [&](const Expr& e, const Expr& guard) {
      if (!walked.emplace(e.get(), guard.get()).second) return;
      for (size_t i = 0; i < loads.size(); ++i) {
        if (e->kind != ExprKind::kLoad || !ir::StructurallyEqual(e, loads[i])) continue;
        const bool same = !met[i] || (guard && guards[i] && ir::StructurallyEqual(guard, guards[i]));
        guards[i] = same ? guard : Expr();
        met[i] = true;
      }
      if (e->kind != ExprKind::kSelect) {
        for (const Expr& arg : e->args) walk(arg, guard);
        return;
      }
      const std::optional<BehindFacts::Place> inside = facts_.AsCondition(e->args[0], ranges);
      walk(e->args[0], guard);
      const bool is_guard = !guard && inside && inside->extent == extent_;
      if (is_guard) places.push_back(inside->at);
      walk(e->args[1], is_guard ? inside->at : guard);
      walk(e->args[2], guard);
    };
    walk(block.value, {});
    for (const Expr& e : block.indices) walk(e, {});
    if (block.block.init) walk(block.block.init, {});
    return guards;
  }

  // Of the element that a block makes, over its iterators; empty: it may be read, wherever it is.
  Expr UnreadPlace(const StmtNode& block) {
    const std::optional<Behind>& unread = UnreadOf(block.buffer);
    if (!unread || std::ranges::any_of(block.indices, ir::HasLoad)) return {};
    return PlaceAt(*unread, block.indices, RangesOf(block));
  }

  // Places of a block's iterations, over the loops: what is behind one of them need not be done.
  const std::vector<Expr>& PlacesOf(const Stmt& block) {
    const auto [known, is_new] = places_of_.try_emplace(block->block.name);
    std::vector<Expr>& places = known->second;
    if (!is_new) return places;
    const auto add = [&](const Expr& place) {
      places.push_back(loops_.Simplify(ir::Substitute(place, BindingsOf(*block))));
    };
    if (const Expr place = UnreadPlace(*block)) add(place);
    for (const BehindFacts::Place& term : facts_.IdleTerms(*block)) {
      if (term.extent == extent_ && BeginsInside(*block, term.at)) add(term.at);
    }
    return places;
  }

  // Whether the first term of each sum, which the sum begins with, is not behind any extent.
  static bool BeginsInside(const StmtNode& block, const Expr& place) {
    if (!block.block.init) return true;
    std::vector<ir::VarBinding> first;
    for (const ir::IterVar& iter : block.block.iters) {
      if (iter.reduce) first.push_back({iter.var, Expr(0)});
    }
    return ir::AsInt(RangesOf(block).Simplify(ir::Substitute(place, first))) == 0;
  }

  // The least place of what a statement does, which is one of those that `fits` holds for. Empty: it does something
  // else, or that is not known.
  Expr LeastPlace(const Stmt& s, const std::function<bool(const Expr&)>& fits) {
    const VarSet inner = LoopVarsIn(s);
    Expr least;
    for (const Stmt& block : BlocksIn(s)) {
      Expr here;
      for (const Expr& place : PlacesOf(block)) {
        const Expr of_block = loops_.Simplify(LeastOf(place, loops_, inner));
        if (!here && fits(of_block)) here = of_block;
      }
      if (!here) return {};
      if (!least || IsAtMost(here, least, loops_)) {
        least = here;
      } else if (!IsAtMost(least, here, loops_)) {
        least = ir::Min(least, here);
      }
    }
    return least;
  }

  // Whether a test in each iteration is little beside its work.
  static bool MayTest(const Stmt& loop) {
    return loop->for_kind == ForKind::kParallel || ir::AnyOf(loop->body, [](const Stmt& s) {
             return s->kind == StmtKind::kFor && s->for_kind != ForKind::kUnrolled &&
                    s->for_kind != ForKind::kVectorized;
           });
  }

  Stmt Skip(const Stmt& root) {
    return ir::RewriteStmt(root, [&](const Stmt& s) -> Stmt {
      if (s->kind == StmtKind::kSeq) return SkipParts(s);
      const bool runs = s->kind == StmtKind::kFor && !in_tiles_.contains(s->var.get()) &&
                        (s->for_kind == ForKind::kSerial || s->for_kind == ForKind::kParallel);
      return runs ? SkipIterations(s) : nullptr;
    });
  }

  // Of a loop those that are behind the extent.
  Stmt SkipIterations(const Stmt& loop) {
    const Expr least = LeastPlace(loop->body, [&](const Expr& place) { return ir::UsesVar(place, loop->var); });
    if (!least) return nullptr;
    const bool tests = MayTest(loop);
    Stmt body = loop->body;
    std::vector<Expr> ends;
    for (const Expr& place : PartsOf(least)) {
      if (!ir::UsesVar(place, loop->var)) continue;  // an outer loop's
      if (tests) FindShortTile(loop, place);
      if (const Expr end = ir::BoundOf(loop->var, place, Extent())) {
        ends.push_back(end);
      } else if (tests) {
        body = ir::If(place < Extent(), body);
      }
    }
    for (const Expr& end : ends) body = ir::If(Expr(loop->var) < end, body);
    if (body == loop->body) return nullptr;
    skips_ = true;
    return ir::For(loop->var, loop->extent, loop->for_kind, body);
  }

  // Of a loop whose iteration makes a tile, from a place on: how many of its elements a short tile has.
  void FindShortTile(const Stmt& loop, const Expr& place) {
    const VarSet inner = LoopVarsIn(loop->body);
    const auto is_known = [&](const auto& short_tile) { return inner.contains(short_tile.first); };
    if (short_tiles_.contains(loop->var.get()) || std::ranges::any_of(short_tiles_, is_known)) return;
    ShortTile tile{.place = place};
    int64_t most = 0;
    ir::VisitStmt(loop->body, [&](const Stmt& s) {
      if (s->kind != StmtKind::kFor || s->for_kind != ForKind::kUnrolled || !CountsFrom(place, s, inner)) return;
      tile.loops.insert(s->var.get());
      most = std::max(most, s->extent);
    });
    if (most < kFewestToShorten) return;
    for (const int64_t share : kShorter) tile.extents.push_back(CeilDiv(most, share));
    short_tiles_.emplace(loop->var.get(), std::move(tile));
  }

  // Whether all that a loop does begins at that place or behind it, and one further in each iteration.
  bool CountsFrom(const Expr& place, const Stmt& loop, const VarSet& inner) {
    VarSet others = inner;
    others.erase(loop->var.get());
    const Expr next = place + Expr(loop->var);
    return std::ranges::all_of(BlocksIn(loop), [&](const Stmt& block) {
      return !ReduceLoops(*block).contains(loop->var.get()) &&
             std::ranges::any_of(PlacesOf(block), [&](const Expr& of_block) {
               return ir::UsesVar(of_block, loop->var) && IsAtMost(next, LeastOf(of_block, loops_, others), loops_);
             });
    });
  }

  // Tiles of few elements before the extent as short ones: the others would go into no result.
  Stmt WithShortTiles(const Stmt& root) {
    std::unordered_set<std::string> names;
    for (const Stmt& block : BlocksIn(root)) names.insert(block->block.name);
    return ir::RewriteStmt(root, [&](const Stmt& s) -> Stmt {
      const auto known = s->kind == StmtKind::kFor ? short_tiles_.find(s->var.get()) : short_tiles_.end();
      if (known == short_tiles_.end()) return nullptr;
      const ShortTile& tile = known->second;
      const Stmt whole = s->body->body;
      Stmt some;
      for (size_t i = 0; i <= tile.extents.size(); ++i) {
        const Stmt up_to = i < tile.extents.size()
                               ? CopyNest(Shortened(whole, tile.loops, tile.extents[i]), "_short", names).nest
                               : whole;
        some = some ? ir::If(tile.place + Expr(tile.extents[i - 1]) < Extent(), up_to, some) : up_to;
      }
      return ir::For(s->var, s->extent, s->for_kind, ir::If(s->body->cond, some));
    });
  }

  // With fewer iterations of these loops.
  static Stmt Shortened(const Stmt& root, const VarSet& loops, int64_t extent) {
    return ir::RewriteStmt(root, [&](const Stmt& s) -> Stmt {
      if (s->kind != StmtKind::kFor || !loops.contains(s->var.get())) return nullptr;
      return ir::For(s->var, std::min(s->extent, extent), s->for_kind, s->body);
    });
  }

  // What is behind the extent of statements of which others are not.
  Stmt SkipParts(const Stmt& seq) {
    std::vector<Stmt> parts;
    bool all = true, any = false;
    for (const Stmt& s : seq->stmts) {
      const Expr least =
          s->kind == StmtKind::kFor ? LeastPlace(s, [](const Expr& place) { return !ir::AsInt(place); }) : Expr();
      parts.push_back(least ? ir::If(least < Extent(), s) : s);
      all = all && (least || BlocksIn(s).empty());  // what is fetched ahead goes with the others
      any = any || least;
    }
    if (all || !any) return nullptr;
    skips_ = true;
    return ir::Seq(std::move(parts));
  }

  struct ShortTile {
    Expr place = {};                    // of its first element
    std::vector<int64_t> extents = {};  // short ones, from the shortest on
    VarSet loops = {};                  // that count its elements
  };

  // None counts as one: sums begin then, with what is zero there.
  Expr Extent() const { return ir::Max(ir::Load(parameter_, {}), Expr(1)); }

  const ir::Func& func_;
  const BehindFacts facts_;
  const int extent_;
  const std::vector<Stmt> blocks_;
  const std::set<const ir::BufferNode*> places_;
  const Buffer parameter_ = ir::MakeBuffer(UniqueBufferName(func_, "extent"), DType::kI64, {});
  std::map<const ir::BufferNode*, std::optional<Behind>> unread_;
  std::map<std::string, std::vector<Expr>> places_of_;             // by block
  std::unordered_map<const ir::VarNode*, ShortTile> short_tiles_;  // by the loop whose iteration makes one
  ir::Simplifier loops_;
  VarSet in_tiles_;  // loops of what one instruction does: it does all of it
  bool skips_ = false;
};

}  // namespace

std::optional<ir::Func> SkipBehind(const ir::Func& scheduled, const std::vector<OperandFacts>& operands,
                                   const std::vector<Behind>& output, int extent) {
  return Skipper(scheduled, operands, output, extent).Run();
}

std::vector<std::optional<Behind>> UnreadOperands(const ir::Func& f, const std::vector<OperandFacts>& operands,
                                                  const std::vector<Behind>& output, int extent) {
  return Skipper(f, operands, output, extent).UnreadOperands();
}

}  // namespace temper
