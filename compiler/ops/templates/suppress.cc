// suppress: boxes of each class that score enough are collected, and then looked at one after another, the best first:
// one is taken unless it overlaps one of those taken. Of each chunk of the collected the best scores are kept, lane by
// lane, so that the best of all is found among few. Threads share the classes.
#include <limits>

#include "base/division.h"
#include "compiler/ops/families/boxes.h"
#include "compiler/ops/templates/statements.h"
#include "compiler/ops/templates/templates.h"

namespace temper {
namespace {

using ir::Expr;
using ir::ForKind;
using ir::Stmt;

constexpr int kEdges = 4;
constexpr double kNothing = -std::numeric_limits<double>::infinity();  // the score of a box that is gone

class Statements {
 public:
  Statements(const Workload& w, const std::vector<ir::Buffer>& p, int64_t lanes)
      : lines_(w.output().shape[0] * w.output().shape[1]),
        classes_(w.output().shape[1]),
        k_(w.output().shape[2]),
        count_(w.TypeOf(w.calls[0].args[1]).shape[2]),
        lanes_(lanes),
        boxes_(p[0]),
        scores_(p[1]),
        overlap_(ir::Load(p[2], {0})),
        least_(ir::Load(p[3], {0})),
        out_(p[4]) {
    for (int edge = 0; edge < kEdges; ++edge) {
      edges_.push_back(Collected("edge", DType::kF32));
      taken_.push_back(ir::MakeBuffer("taken", DType::kF32, {CeilDiv(k_, kPiece) * kPiece}));
      box_.emplace_back("box", DType::kF32);
    }
  }

  Stmt All() const {
    return LoopOver("line", lines_, ForKind::kParallel, [&](const Expr& line) {
      Stmt body =
          ir::Seq({Clear(line), number_.Set(0), Collect(line), EndCollected(), BestOfChunks(), count_taken_.Set(0),
                   going_.Set(ir::Int(1, DType::kI32)), LoopOver("look", count_, ForKind::kSerial, [&](const Expr&) {
                     const Stmt look = ir::If(ir::Float(kNothing) < top_.Get(), Look(line), End());
                     return ir::If(Holds(going_), ir::Seq({FindBest(), look}));
                   })});
      std::vector<ir::Buffer> buffers = {position_, left_, bests_};
      buffers.insert(buffers.end(), edges_.begin(), edges_.end());
      buffers.insert(buffers.end(), taken_.begin(), taken_.end());
      for (const ir::Buffer& buffer : buffers) body = ir::Alloc(buffer, std::move(body));
      for (const Cell* cell : {&number_, &count_taken_, &top_, &at_, &chunk_, &going_, &free_})
        body = cell->Within(std::move(body));
      for (const Cell& edge : box_) body = edge.Within(std::move(body));
      return body;
    });
  }

 private:
  // With room for what is written behind the last one.
  ir::Buffer Collected(const std::string& name, DType dtype) const {
    return ir::MakeBuffer(name, dtype, {(CeilDiv(count_, kChunk) + 1) * kChunk});
  }
  // No box, and none of any area, is taken.
  Stmt Clear(const Expr& line) const {
    std::vector<Stmt> stmts = {VectorLoop("cleared", k_, lanes_, [&](const Expr& i) {
      return ir::Store(out_, {line, i}, ir::Int(-1, DType::kI32));
    })};
    for (const ir::Buffer& edge : taken_) {
      stmts.push_back(VectorLoop("cleared", CeilDiv(k_, kPiece) * kPiece, lanes_,
                                 [&](const Expr& i) { return ir::Store(edge, {i}, ir::Float(0)); }));
    }
    return ir::Seq(std::move(stmts));
  }
  Stmt Collect(const Expr& line) const;
  Stmt EndCollected() const {
    return VectorLoop("end", kChunk, lanes_,
                      [&](const Expr& i) { return ir::Store(left_, {number_.Get() + i}, ir::Float(kNothing)); });
  }
  // The best scores of the chunk that begins there, lane by lane.
  Stmt BestOfChunk(const Expr& chunk) const;
  Stmt BestOfChunks() const {
    return EachChunk([&](const Expr& chunk) { return BestOfChunk(chunk); });
  }
  // `body` of each chunk that has collected boxes.
  Stmt EachChunk(const LoopBody& body) const {
    return LoopOver("chunk", CeilDiv(count_, kChunk), ForKind::kSerial,
                    [&](const Expr& chunk) { return ir::If(chunk * Expr(kChunk) < number_.Get(), body(chunk)); });
  }
  Stmt FindBest() const;
  Stmt FirstOfBest(const std::function<Stmt(const ir::Buffer& best, const ir::Buffer& where)>& look) const;
  Stmt Look(const Expr& line) const;
  Stmt Take(const Expr& line) const;
  Stmt End() const { return going_.Set(ir::Int(0, DType::kI32)); }
  static Expr Holds(const Cell& cell) { return ir::Int(0, DType::kI32) < cell.Get(); }

  const int64_t lines_, classes_, k_, count_, lanes_;
  const ir::Buffer boxes_, scores_;
  const Expr overlap_, least_;
  const ir::Buffer out_;
  // Of the boxes that are collected: where they were, their scores, and their edges.
  const ir::Buffer position_ = Collected("position", DType::kI32), left_ = Collected("left", DType::kF32);
  std::vector<ir::Buffer> edges_;
  const ir::Buffer bests_ = ir::MakeBuffer("bests", DType::kF32, {CeilDiv(count_, kChunk), lanes_});
  std::vector<ir::Buffer> taken_;  // edges of the boxes that are taken
  std::vector<Cell> box_;          // those of the one that is looked at
  const Cell number_{"number", DType::kI64}, count_taken_{"count_taken", DType::kI64};
  const Cell at_{"at", DType::kI32}, top_{"top", DType::kF32}, chunk_{"chunk", DType::kI64};
  const Cell going_{"going", DType::kI32};  // 0 once no box is left, or enough are taken
  const Cell free_{"free", DType::kI32};    // 0: the box overlaps one that is taken
};

// Each box is written behind those collected, and the next one over it if it does not count.
Stmt Statements::Collect(const Expr& line) const {
  const Expr image = line / Expr(classes_);
  const auto counts = [&](const Expr& box) { return least_ < ir::Load(scores_, {line, box}); };
  const auto collect = [&](const Expr& begin, int64_t count) {
    return LoopOver("box", count, ForKind::kSerial, [&](const Expr& i) {
      const Expr box = begin + i, end = number_.Get();
      std::vector<Stmt> stmts = {ir::Store(position_, {end}, ir::Cast(box, DType::kI32)),
                                 ir::Store(left_, {end}, ir::Load(scores_, {line, box}))};
      for (int edge = 0; edge < kEdges; ++edge)
        stmts.push_back(ir::Store(edges_[static_cast<size_t>(edge)], {end}, ir::Load(boxes_, {image, edge, box})));
      stmts.push_back(number_.Set(end + ir::Cast(counts(box), DType::kI64)));
      return ir::Seq(std::move(stmts));
    });
  };
  const int64_t chunks = count_ / kChunk, whole = chunks * kChunk;
  std::vector<Stmt> stmts;
  if (chunks > 0) {
    stmts.push_back(LoopOver("chunk", chunks, ForKind::kSerial, [&](const Expr& chunk) {
      return FilterChunk(chunk * Expr(kChunk), lanes_, counts, collect);
    }));
  }
  if (whole < count_) stmts.push_back(collect(whole, count_ - whole));
  return ir::Seq(std::move(stmts));
}

Stmt Statements::BestOfChunk(const Expr& chunk) const {
  return LoopOver("lane", lanes_, ForKind::kVectorized, [&](const Expr& lane) {
    const auto score = [&](int64_t vector) {
      return ir::Load(left_, {chunk * Expr(kChunk) + Expr(vector * lanes_) + lane});
    };
    Expr best = score(0);
    for (int64_t vector = 1; vector < kChunk / lanes_; ++vector) best = ir::Max(best, score(vector));
    return ir::Store(bests_, {chunk, lane}, best);
  });
}

// Leaves the best score in top_, and in at_ the first box that has it: in the first chunk that has it.
Stmt Statements::FindBest() const {
  const auto each = [&](const LoopBody& body) { return LoopOver("lane", lanes_, ForKind::kVectorized, body); };
  const auto better = [&](const ir::Buffer& best, const ir::Buffer& where, const Expr& score, const Expr& place,
                          const Expr& lane) {
    const Expr is_better = ir::Load(best, {lane}) < score;
    return ir::Seq({ir::Store(where, {lane}, ir::Select(is_better, place, ir::Load(where, {lane}))),
                    ir::Store(best, {lane}, ir::Max(ir::Load(best, {lane}), score))});
  };
  const Stmt chunk = FirstOfBest([&](const ir::Buffer& best, const ir::Buffer& where) {
    return EachChunk([&](const Expr& chunk) {
      return each([&](const Expr& lane) {
        return better(best, where, ir::Load(bests_, {chunk, lane}), ir::Cast(chunk, DType::kI32), lane);
      });
    });
  });
  const Stmt box = FirstOfBest([&](const ir::Buffer& best, const ir::Buffer& where) {
    return LoopOver("vector", kChunk / lanes_, ForKind::kUnrolled, [&](const Expr& vector) {
      return each([&](const Expr& lane) {
        const Expr place = chunk_.Get() * Expr(kChunk) + vector * Expr(lanes_) + lane;
        return better(best, where, ir::Load(left_, {place}), ir::Cast(place, DType::kI32), lane);
      });
    });
  });
  return ir::Seq({chunk, chunk_.Set(ir::Cast(at_.Get(), DType::kI64)), box});
}

// `look` keeps the best score of each lane and the first place that has it; the first of equals is left in at_.
Stmt Statements::FirstOfBest(const std::function<Stmt(const ir::Buffer& best, const ir::Buffer& where)>& look) const {
  const ir::Buffer best = ir::MakeBuffer("best", DType::kF32, {lanes_}, ir::Scope::kRegister);
  const ir::Buffer where = ir::MakeBuffer("where", DType::kI32, {lanes_}, ir::Scope::kRegister);
  const ir::Buffer bests = ir::MakeBuffer("lane_bests", DType::kF32, {lanes_});
  const ir::Buffer wheres = ir::MakeBuffer("lane_places", DType::kI32, {lanes_});
  const auto each = [&](const LoopBody& body) { return LoopOver("lane", lanes_, ForKind::kVectorized, body); };
  const Stmt begin = each([&](const Expr& lane) {
    return ir::Seq({ir::Store(best, {lane}, ir::Float(kNothing)), ir::Store(where, {lane}, ir::Int(0, DType::kI32))});
  });
  const Stmt put = each([&](const Expr& lane) {
    return ir::Seq(
        {ir::Store(bests, {lane}, ir::Load(best, {lane})), ir::Store(wheres, {lane}, ir::Load(where, {lane}))});
  });
  const Stmt join = LoopOver("lane", lanes_, ForKind::kSerial, [&](const Expr& lane) {
    const Expr score = ir::Load(bests, {lane}), place = ir::Load(wheres, {lane});
    const Expr better = ir::Or(top_.Get() < score, ir::And(ir::Eq(top_.Get(), score), place < at_.Get()));
    return ir::Seq({at_.Set(ir::Select(better, place, at_.Get())), top_.Set(ir::Max(top_.Get(), score))});
  });
  Stmt all =
      ir::Seq({begin, look(best, where), put, top_.Set(ir::Float(kNothing)), at_.Set(ir::Int(0, DType::kI32)), join});
  for (const ir::Buffer& buffer : {best, where, bests, wheres}) all = ir::Alloc(buffer, std::move(all));
  return all;
}

// The best box goes, and is taken if it overlaps none that is.
Stmt Statements::Look(const Expr& line) const {
  const Expr at = ir::Cast(at_.Get(), DType::kI64);
  std::vector<Stmt> stmts = {ir::Store(left_, {at}, ir::Float(kNothing)), BestOfChunk(chunk_.Get()),
                             free_.Set(ir::Int(1, DType::kI32))};
  for (size_t edge = 0; edge < kEdges; ++edge) stmts.push_back(box_[edge].Set(ir::Load(edges_[edge], {at})));
  const ops::Box box = {box_[0].Get(), box_[1].Get(), box_[2].Get(), box_[3].Get()};
  stmts.push_back(LoopOver("piece", CeilDiv(k_, kPiece), ForKind::kSerial, [&](const Expr& piece) {
    const Expr first = piece * Expr(kPiece);
    const auto overlaps = [&](const Expr& i) {
      const auto edge = [&](int which) { return ir::Load(taken_[static_cast<size_t>(which)], {first + i}); };
      return ops::Overlaps(ops::BoxAt(edge), box, overlap_);
    };
    const Stmt look = IfAny(kPiece, lanes_, overlaps, free_.Set(ir::Int(0, DType::kI32)));
    return ir::If(first < count_taken_.Get(), ir::If(Holds(free_), look));
  }));
  stmts.push_back(ir::If(Holds(free_), Take(line)));
  return ir::Seq(std::move(stmts));
}

Stmt Statements::Take(const Expr& line) const {
  const Expr end = count_taken_.Get(), at = ir::Cast(at_.Get(), DType::kI64);
  std::vector<Stmt> take = {ir::Store(out_, {line, end}, ir::Load(position_, {at}))};
  for (size_t edge = 0; edge < kEdges; ++edge) take.push_back(ir::Store(taken_[edge], {end}, box_[edge].Get()));
  take.push_back(count_taken_.Set(end + Expr(1)));
  take.push_back(ir::If(Expr(k_ - 1) < count_taken_.Get(), End()));
  return ir::Seq(std::move(take));
}

bool Matches(const Workload& w) { return IsRowMajorCall(w, "non_max_suppression"); }

absl::StatusOr<Kernel> Build(const Workload& w, const Config&, const CpuTarget& t) {
  const Shape &out = w.output().shape, &boxes = w.TypeOf(w.calls[0].args[0]).shape;
  const int64_t lines = out[0] * out[1];
  return KernelOf(w, {boxes, {lines, boxes[2]}, {1}, {1}, {lines, out[2]}},
                  [&](const std::vector<ir::Buffer>& p) { return Statements(w, p, t.lanes()).All(); });
}

CpuFootprint FootprintOf(const Workload& w, const Config&, const CpuTarget& t) {
  return FootprintOfPasses(w, 2, static_cast<double>(w.output().shape[0] * w.output().shape[1]), t);
}

}  // namespace

CpuTemplate SuppressTemplate() { return {"suppress", 2, Matches, NoKnobs, Build, FootprintOf}; }

}  // namespace temper
