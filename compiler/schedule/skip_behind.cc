#include "compiler/schedule/skip_behind.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
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
// A parallel loop of so many iterations, or more, that goes through lines each of which ends early, runs in this many
// parts at least: a part is left out at once, not iteration by iteration.
constexpr int64_t kManyIterations = 1024, kParts = 256;

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

// The places of which it is the largest.
std::vector<Expr> PartsOf(const Expr& place) {
  if (place->kind != ExprKind::kMax) return {place};
  std::vector<Expr> parts = PartsOf(place->args[0]);
  std::ranges::copy(PartsOf(place->args[1]), std::back_inserter(parts));
  return parts;
}

// What variables add up to in a place, over `at`, which stands for an index that adds up the same, beside whole spans
// of it. Empty: the index does not tell it.
Expr SumBy(const ir::Sum& sum, const Expr& index, const Var& at, const ir::Simplifier& ranges) {
  const ir::Sum all = ir::Flatten(index);
  Expr own(0);
  for (const ir::Term& term : sum.terms) {
    const auto same = [&](const ir::Term& t) {
      return t.coefficient == term.coefficient && ir::StructurallyEqual(t.atom, term.atom);
    };
    if (std::ranges::count_if(all.terms, same) != 1) return {};
    own = own + term.atom * Expr(term.coefficient);
  }
  const std::optional<ir::Interval> bounds = ranges.Bounds(own);
  if (sum.terms.empty() || all.constant != 0 || !bounds || bounds->min < 0) return {};
  int64_t span = 0;
  for (const ir::Term& t : all.terms) {
    const auto same = [&](const ir::Term& term) { return ir::StructurallyEqual(t.atom, term.atom); };
    if (std::ranges::any_of(sum.terms, same)) continue;
    if (t.coefficient <= 0) return {};
    span = std::gcd(span, t.coefficient);
  }
  if (span == 0) return Expr(at);
  return span > bounds->max ? Expr(at) % Expr(span) : Expr();
}

// A place over iterators as one over the index `at` of what is read there, the least where several read it. Empty: the
// index does not tell it.
Expr PlaceBy(const Expr& place, const std::vector<Expr>& index, const std::vector<Var>& at,
             const ir::Simplifier& ranges) {
  const ir::Sum sum = ir::Flatten(place);
  for (size_t i = 0; i < index.size(); ++i) {
    if (const Expr by = SumBy(sum, index[i], at[i], ranges)) return by + Expr(sum.constant);
  }
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

// The largest of the places that the index tells.
Expr LargestBy(const Expr& place, const std::vector<Expr>& index, const std::vector<Var>& at,
               const ir::Simplifier& ranges) {
  Expr largest;
  for (const Expr& part : PartsOf(place)) {
    const Expr by = PlaceBy(part, index, at, ranges);
    if (by) largest = largest ? ir::Max(largest, by) : by;
  }
  return largest;
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

struct ShortTile {
  Expr place, end;                    // of its first element, and what that is before
  int64_t step = 1;                   // from an element's place to the next one's, at least
  std::vector<int64_t> extents = {};  // short ones, from the shortest on
  VarSet loops = {};                  // that count its elements
  VarSet inner = {};                  // all in the loop whose iteration makes it
};
using ShortTiles = std::unordered_map<const ir::VarNode*, ShortTile>;  // by that loop

// With fewer iterations of these loops.
Stmt Shortened(const Stmt& root, const VarSet& loops, int64_t extent) {
  return ir::RewriteStmt(root, [&](const Stmt& s) -> Stmt {
    if (s->kind != StmtKind::kFor || !loops.contains(s->var.get())) return nullptr;
    return ir::For(s->var, std::min(s->extent, extent), s->for_kind, s->body);
  });
}

// Tiles of few elements before an extent as short ones: the others would go into no result.
Stmt WithShortTiles(const Stmt& root, const ShortTiles& tiles) {
  std::unordered_set<std::string> names;
  for (const Stmt& block : BlocksIn(root)) names.insert(block->block.name);
  return ir::RewriteStmt(root, [&](const Stmt& s) -> Stmt {
    const auto known = s->kind == StmtKind::kFor ? tiles.find(s->var.get()) : tiles.end();
    if (known == tiles.end()) return nullptr;
    const ShortTile& tile = known->second;
    const bool tests = s->body->kind == StmtKind::kIf && !s->body->else_body;
    const Stmt whole = tests ? s->body->body : s->body;
    Stmt some;
    for (size_t i = 0; i <= tile.extents.size(); ++i) {
      const Stmt up_to = i < tile.extents.size()
                             ? CopyNest(Shortened(whole, tile.loops, tile.extents[i]), "_short", names).nest
                             : whole;
      some = some ? ir::If(tile.place + Expr(tile.extents[i - 1] * tile.step) < tile.end, up_to, some) : up_to;
    }
    return ir::For(s->var, s->extent, s->for_kind, tests ? ir::If(s->body->cond, some) : some);
  });
}

class Skipper {
 public:
  Skipper(const ir::Func& f, const std::vector<OperandFacts>& operands, const std::vector<Behind>& output, int extent,
          Schedules of)
      : func_(f), facts_(f, operands), extent_(extent), of_(of), blocks_(BlocksIn(f.body)), places_(PlacesIn(blocks_)) {
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

  // Parallel loops that go through lines, by how many iterations each of these takes, after Run.
  const std::unordered_map<const ir::VarNode*, int64_t>& lines() const { return lines_; }

  std::vector<std::optional<Behind>> UnreadOperands() {
    std::vector<std::optional<Behind>> unread;
    for (size_t i = 0; i + 1 < func_.params.size(); ++i) unread.push_back(UnreadOf(func_.params[i]));
    return unread;
  }

  // The function without its short tiles, which join `tiles`.
  std::optional<ir::Func> Run(ShortTiles& tiles) {
    tiles_ = &tiles;
    // What reads the output would have to know where it is not written.
    if (!ReadersOf(func_.body, func_.params.back()).empty()) return std::nullopt;
    ir::Func result = func_;
    // All of it, perhaps, as a step of a sequence that has ended.
    const Expr least = LeastPlace(func_.body, [](const Expr& place) { return ir::AsInt(place).value_or(0) > 0; });
    result.body = Skip(func_.body);
    if (least) result.body = ir::If(least < Extent(), result.body);
    if (!least && !skips_) return std::nullopt;
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
      Expr all = UnreadPlace(*block);
      const Expr terms = of_ == Schedules::kThisOne ? UnreadTerms(block) : Expr();
      if (terms) all = all ? ir::Max(all, terms) : terms;
      std::vector<Expr> places = Guards(*block, reads, ranges);
      for (size_t i = 0; i < reads.size(); ++i) {
        Behind here = result;
        here.place = ByPlaces(*reads[i], result.index);
        if (!here.place && !places[i] && !all) return std::nullopt;
        if (!places[i] || (all && IsAtMost(places[i], all, ranges))) places[i] = all;
        if (all && !IsAtMost(all, places[i], ranges)) places[i] = ir::Max(places[i], all);  // behind one or the other
        std::vector<Expr> index;
        for (const Expr& e : reads[i]->args) index.push_back(ranges.Simplify(e));
        if (!here.place) here.place = LargestBy(places[i], index, result.index, ranges);
        if (here.place) here.place = own.Simplify(here.place);
        const std::optional<Behind> both = here.place && result.place ? BehindBoth(result, here) : here;
        if (!both || !both->place) return std::nullopt;
        result = *both;
      }
    }
    const bool says = result.place && ir::AsInt(result.place).value_or(1) > 0;  // no extent is less than 1
    return says ? std::optional(result) : std::nullopt;
  }

  // What a load does not read of a dimension where other elements say which it reads: what is above the largest of
  // them, over the index. Empty: they may be any.
  Expr ByPlaces(const ir::ExprNode& load, const std::vector<Var>& index) const {
    for (size_t d = 0; d < load.args.size(); ++d) {
      if (!ir::HasLoad(load.args[d])) continue;
      const std::optional<ExtentBound> most = facts_.MostAs(load.args[d]);
      if (most && most->extent == extent_ && most->least >= 0) return PlaceOf(*most, Expr(index[d]) - Expr(1));
    }
    return {};
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
      const std::optional<BehindFacts::Place> inside = facts_.NoBehind(e->args[0], ranges);
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

  // Behind which place a block reads nothing, over its iterators, since loops leave its terms out there. They leave out
  // whole iterations, each by the least place in it.
  Expr UnreadTerms(const Stmt& block) {
    if (!ReadersOf(func_.body, func_.params.back()).empty()) return {};  // nothing is left out
    for (const BehindFacts::Place& term : facts_.IdleTerms(*block)) {
      if (term.extent != extent_ || !BeginsInside(*block, term.at)) continue;
      const Expr place = loops_.Simplify(ir::Substitute(term.at, BindingsOf(*block)));
      for (const Stmt& loop : LoopsOf(PathToBlock(func_.body, block->block.name))) {
        if (!MaySkip(loop) || !ir::UsesVar(place, loop->var)) continue;
        const Expr least = LeastPlace(loop->body, [&](const Expr& at) { return ir::UsesVar(at, loop->var); });
        const bool leaves_out = least && (MayTest(loop) || ir::BoundOf(loop->var, least, Extent()));
        const std::optional<ir::Interval> more = leaves_out ? loops_.Bounds(place - least) : std::nullopt;
        if (more && more->min >= 0 && more->max < kFar) return term.at - Expr(more->max);
      }
    }
    return {};
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
    return LeastPlace(BlocksIn(s), LoopVarsIn(s), fits);
  }

  // Of blocks, while the loops `inner` run.
  Expr LeastPlace(const std::vector<Stmt>& blocks, const VarSet& inner, const std::function<bool(const Expr&)>& fits) {
    Expr least;
    for (const Stmt& block : blocks) {
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
      return s->kind == StmtKind::kFor && MaySkip(s) ? SkipIterations(s) : nullptr;
    });
  }

  bool MaySkip(const Stmt& loop) const {
    const bool runs = loop->for_kind == ForKind::kSerial || loop->for_kind == ForKind::kParallel;
    return runs && !in_tiles_.contains(loop->var.get());
  }

  // Of a loop those that are behind the extent.
  Stmt SkipIterations(const Stmt& loop) {
    const bool tests = MayTest(loop);
    if (tests) FindShortTile(loop);
    const Expr least = LeastPlace(loop->body, [&](const Expr& place) { return ir::UsesVar(place, loop->var); });
    if (!least) return nullptr;
    Stmt body = loop->body;
    std::vector<Expr> ends;
    for (const Expr& place : PartsOf(least)) {
      if (!ir::UsesVar(place, loop->var)) continue;  // an outer loop's
      if (const Expr end = ir::BoundOf(loop->var, place, Extent())) {
        ends.push_back(end);
      } else if (tests) {
        body = ir::If(place < Extent(), body);
        FindLines(loop, place);
      }
    }
    for (const Expr& end : ends) body = ir::If(Expr(loop->var) < end, body);
    if (body == loop->body) return nullptr;
    skips_ = true;
    return ir::For(loop->var, loop->extent, loop->for_kind, body);
  }

  void FindLines(const Stmt& loop, const Expr& place) {
    if (loop->for_kind != ForKind::kParallel || loop->extent < kManyIterations) return;
    ir::Visit(place, [&](const Expr& e) {
      if (e->kind != ExprKind::kMod || !ir::AsInt(e->args[1])) return;
      const Expr& at = e->args[0];
      const bool divides = at->kind == ExprKind::kDiv && ir::AsInt(at->args[1]).value_or(0) > 0;
      const Expr& of = divides ? at->args[0] : at;
      const int64_t line = *ir::AsInt(e->args[1]) * (divides ? *ir::AsInt(at->args[1]) : 1);
      const bool is_loop = of->kind == ExprKind::kVar && of->var == loop->var;
      if (is_loop && loop->extent % line == 0) lines_.emplace(loop->var.get(), line);
    });
  }

  // Of a loop whose iteration makes a tile in memory, from a place on: how many of its elements a short tile has. A
  // tile that is a whole line begins at the same place in each iteration.
  void FindShortTile(const Stmt& loop) {
    const VarSet inner = LoopVarsIn(loop->body);
    const auto meets = [&](const auto& known) {
      return known.first == loop->var.get() || inner.contains(known.first) ||
             known.second.inner.contains(loop->var.get());
    };
    if (std::ranges::any_of(*tiles_, meets)) return;
    std::vector<Stmt> blocks = BlocksIn(loop->body);
    const auto writes = [&](const Stmt& block) { return block->buffer->scope != ir::Scope::kRegister; };
    if (std::ranges::none_of(blocks, writes)) return;
    // What is summed up may end before the zeros do that are written behind it.
    if (!std::ranges::all_of(blocks, writes)) std::erase_if(blocks, writes);
    for (const bool moves : {true, false}) {  // with the loop, or only with those around it
      const auto begins = [&](const Expr& place) { return ir::UsesVar(place, loop->var) == moves; };
      const Expr least = LeastPlace(blocks, inner, begins);
      for (const Expr& place : least ? PartsOf(least) : std::vector<Expr>()) {
        if (begins(place)) AddShortTile(loop, place, inner);
      }
    }
  }

  void AddShortTile(const Stmt& loop, const Expr& place, const VarSet& inner) {
    if (tiles_->contains(loop->var.get())) return;
    ShortTile tile{.place = place, .end = Extent(), .step = kFar, .inner = inner};
    int64_t most = 0;
    ir::VisitStmt(loop->body, [&](const Stmt& s) {
      if (s->kind != StmtKind::kFor || s->for_kind != ForKind::kUnrolled) return;
      const std::optional<int64_t> step = StepFrom(place, s, inner);
      if (!step) return;
      tile.step = std::min(tile.step, *step);
      tile.loops.insert(s->var.get());
      most = std::max(most, s->extent);
    });
    if (most < kFewestToShorten) return;
    for (const int64_t share : kShorter) tile.extents.push_back(CeilDiv(most, share));
    tiles_->emplace(loop->var.get(), std::move(tile));
    skips_ = true;
  }

  // How much further all that a loop does is in each iteration, beginning at that place or behind it. nullopt: it is
  // not, or it does nothing.
  std::optional<int64_t> StepFrom(const Expr& place, const Stmt& loop, const VarSet& inner) {
    VarSet others = inner;
    others.erase(loop->var.get());
    int64_t least = kFar;
    for (const Stmt& block : BlocksIn(loop)) {
      if (ReduceLoops(*block).contains(loop->var.get())) return std::nullopt;
      int64_t largest = 0;
      for (const Expr& of_block : PlacesOf(block)) {
        const Expr at = LeastOf(of_block, loops_, others);
        const auto in = [&](int64_t i) { return ir::Substitute(at, {{loop->var, Expr(i)}}); };
        for (const int64_t step : {ir::AsInt(loops_.Simplify(in(1) - in(0))).value_or(0), int64_t{1}}) {
          if (step > largest && ir::UsesVar(of_block, loop->var) &&
              IsAtMost(place + Expr(loop->var) * Expr(step), at, loops_))
            largest = step;
        }
      }
      least = std::min(least, largest);
    }
    return least > 0 && least < kFar ? std::optional(least) : std::nullopt;
  }

  // What is behind the extent of statements of which others are not, or not yet.
  Stmt SkipParts(const Stmt& seq) {
    struct Part {
      Stmt stmt;
      Expr least;  // empty: it is never behind
    };
    std::vector<Part> parts;  // that do something: what is fetched ahead goes with the others
    for (const Stmt& s : seq->stmts) {
      if (BlocksIn(s).empty()) continue;
      const auto moves = [](const Expr& place) { return !ir::AsInt(place); };
      const bool runs = s->kind == StmtKind::kFor || s->kind == StmtKind::kIf;
      parts.push_back({s, runs ? LeastPlace(s, moves) : Expr()});
    }
    bool any = false;
    std::vector<Stmt> stmts = seq->stmts;
    for (Stmt& s : stmts) {
      const auto part = std::ranges::find(parts, s, &Part::stmt);
      if (part == parts.end() || !part->least) continue;
      const bool is_first = std::ranges::all_of(
          parts, [&](const Part& other) { return other.least && IsAtMost(part->least, other.least, loops_); });
      if (is_first) continue;  // loops around leave it out
      s = ir::If(part->least < Extent(), s);
      any = true;
    }
    if (!any) return nullptr;
    skips_ = true;
    return ir::Seq(std::move(stmts));
  }

  // None counts as one: sums begin then, with what is zero there.
  Expr Extent() const { return ir::Max(ir::Load(parameter_, {}), Expr(1)); }

  const ir::Func& func_;
  const BehindFacts facts_;
  const int extent_;
  const Schedules of_;
  const std::vector<Stmt> blocks_;
  const std::set<const ir::BufferNode*> places_;
  const Buffer parameter_ = ir::MakeBuffer(UniqueBufferName(func_, "extent"), DType::kI64, {});
  std::map<const ir::BufferNode*, std::optional<Behind>> unread_;
  std::map<std::string, std::vector<Expr>> places_of_;     // by block
  ShortTiles* tiles_ = nullptr;                            // the caller's, while it runs
  std::unordered_map<const ir::VarNode*, int64_t> lines_;  // see lines()
  ir::Simplifier loops_;
  VarSet in_tiles_;  // loops of what one instruction does: it does all of it
  bool skips_ = false;
};

// Loops that go through lines of so many iterations as loops over equal parts of lines, each with a loop of its own.
// Places in `tiles` are over these then.
ir::Func InParts(const ir::Func& f, const std::unordered_map<const ir::VarNode*, int64_t>& lines, ShortTiles& tiles) {
  ir::Func parted = f;
  parted.body = ir::RewriteStmt(f.body, [&](const Stmt& s) -> Stmt {
    const auto known = s->kind == StmtKind::kFor ? lines.find(s->var.get()) : lines.end();
    if (known == lines.end()) return nullptr;
    const int64_t line = known->second;
    int64_t length = std::min(line, s->extent / kParts);
    while (line % length != 0) --length;
    if (length == 1) return nullptr;
    const Var part = ir::MakeVar(s->var->name + ".o"), in_part = ir::MakeVar(s->var->name + ".i");
    const Expr parts(line / length);
    const Expr at = Expr(part) / parts * Expr(line) + Expr(part) % parts * Expr(length) + Expr(in_part);
    for (auto& [loop, tile] : tiles) tile.place = ir::Substitute(tile.place, {{s->var, at}});
    const Stmt body = ir::Substitute(s->body, {{s->var, at}});
    return ir::For(part, s->extent / length, s->for_kind, ir::For(in_part, length, ForKind::kSerial, body));
  });
  return parted;
}

}  // namespace

std::optional<Skipping> SkipBehind(const ir::Func& scheduled, std::vector<OperandFacts> operands,
                                   const std::vector<Behind>& output, const std::set<int>& extents) {
  Skipping result{scheduled, {}};
  ShortTiles tiles;
  for (const int extent : extents) {
    ShortTiles here = tiles;
    Skipper skipper(result.func, operands, output, extent, Schedules::kThisOne);
    std::optional<ir::Func> skips = skipper.Run(here);
    if (!skipper.lines().empty()) {
      here = tiles;
      const ir::Func parted = InParts(result.func, skipper.lines(), here);
      skips = Skipper(parted, operands, output, extent, Schedules::kThisOne).Run(here);
    }
    if (!skips) continue;
    result.func = *std::move(skips);
    result.extents.push_back(extent);
    operands.emplace_back();  // the extent
    tiles = std::move(here);
  }
  if (result.extents.empty()) return std::nullopt;
  result.func.body = WithShortTiles(result.func.body, tiles);
  return result;
}

std::vector<std::optional<Behind>> UnreadOperands(const ir::Func& f, const std::vector<OperandFacts>& operands,
                                                  const std::vector<Behind>& output, int extent, Schedules of) {
  return Skipper(f, operands, output, extent, of).UnreadOperands();
}

}  // namespace temper
