// suppress: boxes of each class that score enough are collected, and then taken one after another, the best first. One
// pass over those collected takes away what overlaps the box that was taken last, and finds the best of the others.
// Threads share the classes.
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
      taken_.emplace_back("taken", DType::kF32);
    }
  }

  Stmt All() const {
    return LoopOver("line", lines_, ForKind::kParallel, [&](const Expr& line) {
      std::vector<Stmt> stmts = {Clear(line), number_.Set(0), Collect(line), EndCollected(),
                                 going_.Set(ir::Int(1, DType::kI32))};
      for (const Cell& edge : taken_) stmts.push_back(edge.Set(ir::Float(0)));
      stmts.push_back(LoopOver("pick", k_, ForKind::kSerial, [&](const Expr& pick) {
        return ir::If(ir::Int(0, DType::kI32) < going_.Get(), ir::Seq({FindBest(), TakeBest(line, pick)}));
      }));
      Stmt body = ir::Seq(std::move(stmts));
      for (const ir::Buffer& buffer : {position_, left_, edges_[0], edges_[1], edges_[2], edges_[3]})
        body = ir::Alloc(buffer, std::move(body));
      for (const Cell* cell : {&number_, &top_, &at_, &going_, &taken_[0], &taken_[1], &taken_[2], &taken_[3]})
        body = cell->Within(std::move(body));
      return body;
    });
  }

 private:
  // With room for what is written behind the last one.
  ir::Buffer Collected(const std::string& name, DType dtype) const {
    return ir::MakeBuffer(name, dtype, {(CeilDiv(count_, kChunk) + 1) * kChunk});
  }
  Stmt Clear(const Expr& line) const {
    return VectorLoop("cleared", k_, lanes_, [&](const Expr& i) {
      return ir::Store(out_, {line, i}, ir::Int(-1, DType::kI32));
    });
  }
  Stmt Collect(const Expr& line) const;
  Stmt EndCollected() const {
    return VectorLoop("end", kChunk, lanes_,
                      [&](const Expr& i) { return ir::Store(left_, {number_.Get() + i}, ir::Float(kNothing)); });
  }
  Stmt FindBest() const;
  Stmt BestOfLanes(const ir::Buffer& best, const ir::Buffer& where) const;
  Stmt TakeBest(const Expr& line, const Expr& pick) const;

  const int64_t lines_, classes_, k_, count_, lanes_;
  const ir::Buffer boxes_, scores_;
  const Expr overlap_, least_;
  const ir::Buffer out_;
  // Of the boxes that are collected: where they were, their scores, and their edges.
  const ir::Buffer position_ = Collected("position", DType::kI32), left_ = Collected("left", DType::kF32);
  std::vector<ir::Buffer> edges_;
  std::vector<Cell> taken_;  // edges of the box that was taken last; of no area before that
  const Cell number_{"number", DType::kI64}, at_{"at", DType::kI32}, top_{"top", DType::kF32};
  const Cell going_{"going", DType::kI32};  // 0 once no box is left
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

// Leaves the best score in top_, and in at_ the first box that has it.
Stmt Statements::FindBest() const {
  const ir::Buffer best = ir::MakeBuffer("best", DType::kF32, {lanes_}, ir::Scope::kRegister);
  const ir::Buffer where = ir::MakeBuffer("where", DType::kI32, {lanes_}, ir::Scope::kRegister);
  const auto each = [&](const LoopBody& body) { return LoopOver("lane", lanes_, ForKind::kVectorized, body); };
  const Stmt begin = each([&](const Expr& lane) {
    return ir::Seq({ir::Store(best, {lane}, ir::Float(kNothing)), ir::Store(where, {lane}, ir::Int(0, DType::kI32))});
  });
  const auto look = [&](const Expr& box, const Expr& lane) {
    const auto edge = [&](int which) { return ir::Load(edges_[static_cast<size_t>(which)], {box}); };
    const ops::Box taken = {taken_[0].Get(), taken_[1].Get(), taken_[2].Get(), taken_[3].Get()};
    const Expr gone = ops::Overlaps(taken, ops::BoxAt(edge), overlap_), score = ir::Load(left_, {box});
    const Expr better = ir::Load(best, {lane}) < score;
    return ir::Seq({
        ir::Store(left_, {box}, ir::Select(gone, ir::Float(kNothing), score)),
        ir::Store(where, {lane}, ir::Select(better, ir::Cast(box, DType::kI32), ir::Load(where, {lane}))),
        ir::Store(best, {lane}, ir::Max(ir::Load(best, {lane}), score)),
    });
  };
  const Stmt pass = LoopOver("chunk", CeilDiv(count_, kChunk), ForKind::kSerial, [&](const Expr& chunk) {
    const Expr first = chunk * Expr(kChunk);
    const Stmt body = LoopOver("vector", kChunk / lanes_, ForKind::kUnrolled, [&](const Expr& vector) {
      return each([&](const Expr& lane) { return look(first + vector * Expr(lanes_) + lane, lane); });
    });
    return ir::If(first < number_.Get(), body);
  });
  return ir::Alloc(best, ir::Alloc(where, ir::Seq({begin, pass, BestOfLanes(best, where)})));
}

// Of equal scores the first box: a lane has its own first one.
Stmt Statements::BestOfLanes(const ir::Buffer& best, const ir::Buffer& where) const {
  const ir::Buffer bests = ir::MakeBuffer("bests", DType::kF32, {lanes_});
  const ir::Buffer wheres = ir::MakeBuffer("wheres", DType::kI32, {lanes_});
  const Stmt put = LoopOver("lane", lanes_, ForKind::kVectorized, [&](const Expr& lane) {
    return ir::Seq(
        {ir::Store(bests, {lane}, ir::Load(best, {lane})), ir::Store(wheres, {lane}, ir::Load(where, {lane}))});
  });
  const Stmt join = LoopOver("lane", lanes_, ForKind::kSerial, [&](const Expr& lane) {
    const Expr score = ir::Load(bests, {lane}), box = ir::Load(wheres, {lane});
    const Expr better = ir::Or(top_.Get() < score, ir::And(ir::Eq(top_.Get(), score), box < at_.Get()));
    return ir::Seq({at_.Set(ir::Select(better, box, at_.Get())), top_.Set(ir::Max(top_.Get(), score))});
  });
  const Stmt all = ir::Seq({put, top_.Set(ir::Float(kNothing)), at_.Set(ir::Int(0, DType::kI32)), join});
  return ir::Alloc(bests, ir::Alloc(wheres, all));
}

Stmt Statements::TakeBest(const Expr& line, const Expr& pick) const {
  const Expr at = ir::Cast(at_.Get(), DType::kI64);
  std::vector<Stmt> take = {ir::Store(out_, {line, pick}, ir::Load(position_, {at})),
                            ir::Store(left_, {at}, ir::Float(kNothing))};
  for (size_t edge = 0; edge < kEdges; ++edge) take.push_back(taken_[edge].Set(ir::Load(edges_[edge], {at})));
  return ir::If(ir::Float(kNothing) < top_.Get(), ir::Seq(std::move(take)), going_.Set(ir::Int(0, DType::kI32)));
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

CpuTemplate SuppressTemplate() { return {"suppress", 1, Matches, NoKnobs, Build, FootprintOf}; }

}  // namespace temper
