// Random programs under random sequences of rewrites: whatever a rewrite accepts keeps the results, before and after
// lowering; whatever it refuses leaves the function as it was, with a reason.
#include <map>
#include <numeric>

#include "tests/schedule/programs.h"

namespace temper {
namespace {

using ir::Combiner;
using ir::Expr;
using ir::Load;

// Stages that read their neighbours, with clamped edges, and each other.
ir::Func Chain(Rng& rng) {
  const int64_t rows = 1 + rng.Below(6), columns = 1 + rng.Below(9);
  ir::ProgramBuilder b("chain");
  std::vector<ir::Buffer> values = {b.Input("x", DType::kF32, {rows, columns})};
  const int64_t stages = 2 + rng.Below(3);
  for (int64_t i = 0; i < stages; ++i) {
    // The last stage reads the one before it, so that no more than the stages in between may be dead.
    ir::Buffer left = values.back(),
               right = values[static_cast<size_t>(rng.Below(static_cast<int64_t>(values.size())))];
    const int64_t shift = rng.Below(3) - 1;
    values.push_back(b.Compute("s" + std::to_string(i), DType::kF32, {rows, columns}, [&](auto& at) {
      Expr column = at[1] + Expr(shift);
      Expr inside = And(Expr(0) <= column, column < Expr(columns));
      return Load(left, at) + Select(inside, Load(right, {at[0], column}), ir::Float(1));
    }));
  }
  b.MarkOutput(values.back());
  return *b.Finish();
}

ir::Func RowReductions(Rng& rng) {
  const int64_t rows = 1 + rng.Below(4), columns = 1 + rng.Below(11);
  ir::ProgramBuilder b("rows");
  ir::Buffer x = b.Input("x", DType::kF32, {rows, columns});
  ir::Buffer most = b.Reduce("most", DType::kF32, {rows}, {columns}, Combiner::kMax, [&](auto& i, auto& r) {
    return Load(x, {i[0], r[0]});
  });
  ir::Buffer less =
      b.Compute("less", DType::kF32, {rows, columns}, [&](auto& i) { return Load(x, i) - Load(most, {i[0]}); });
  ir::Buffer sum = b.Reduce("sum", DType::kF32, {rows}, {columns}, Combiner::kSum, [&](auto& i, auto& r) {
    return Load(less, {i[0], r[0]});
  });
  b.MarkOutput(
      b.Compute("out", DType::kF32, {rows, columns}, [&](auto& i) { return Load(less, i) * Load(sum, {i[0]}); }));
  return *b.Finish();
}

ir::Func Pooling(Rng& rng) {
  const int64_t h = 3 + rng.Below(5), c = 1 + rng.Below(5), stride = 1 + rng.Below(2), oh = (h - 1) / stride + 1;
  ir::ProgramBuilder b("pooling");
  ir::Buffer x = b.Input("x", DType::kF32, {h, c});
  ir::Buffer pool = b.Reduce("pool", DType::kF32, {oh, c}, {3}, Combiner::kMax, [&](auto& i, auto& r) {
    Expr row = i[0] * Expr(stride) + r[0] - Expr(1);
    return Select(And(Expr(0) <= row, row < Expr(h)), Load(x, {row, i[1]}), ir::Float(-9));
  });
  b.MarkOutput(b.Compute("out", DType::kF32, {oh * c}, [&](auto& i) {
    return Load(pool, {i[0] / Expr(c), i[0] % Expr(c)}) + ir::Float(1);
  }));
  return *b.Finish();
}

ir::Func RandomProgram(Rng& rng) {
  switch (rng.Below(6)) {
    case 0:
      return Chain(rng);
    case 1:
      return RowReductions(rng);
    case 2:
      return Pooling(rng);
    case 3:
      return Matmul(1 + rng.Below(7), 1 + rng.Below(7), 1 + rng.Below(6));
    case 4:
      return PaddedConv(1 + rng.Below(3), 1 + rng.Below(4), 1 + rng.Below(2), 1 + rng.Below(4));
    default:
      return PackedMatmul(1 + rng.Below(7), 1 + rng.Below(11), 1 + rng.Below(5), 1 + rng.Below(6));
  }
}

template <typename T>
const T& Pick(Rng& rng, const std::vector<T>& from) {
  return from[static_cast<size_t>(rng.Below(static_cast<int64_t>(from.size())))];
}

// One schedule under random rewrites.
class RandomRewriter {
 public:
  RandomRewriter(Schedule& s, Rng& rng) : s_(s), rng_(rng) {}

  // Tries one rewrite and returns its name.
  std::string Try();

 private:
  std::string RandomBlock() { return Pick(rng_, s_.Blocks()); }
  Loop RandomLoop() {
    std::vector<Loop> loops = s_.Loops(RandomBlock());
    return loops.empty() || rng_.Below(64) == 0 ? nullptr : Pick(rng_, loops);
  }
  ir::Stmt Find(const std::string& block) {
    ir::Stmt found;
    ir::VisitStmt(s_.func().body, [&](const ir::Stmt& s) {
      found = s->kind == ir::StmtKind::kBlock && s->block.name == block ? s : found;
    });
    return found;
  }
  std::string RandomRead(const std::string& block) {
    std::vector<std::string> names = {"nothing"};
    ir::Visit(Find(block)->value, [&](const Expr& e) {
      if (e->kind == ir::ExprKind::kLoad) names.push_back(e->buffer->name);
    });
    return Pick(rng_, names);
  }
  void Reorder();
  void TransformLayout();
  std::string TryLoops(int64_t kind);
  std::string TryBlocks(int64_t kind);

  Schedule& s_;
  Rng& rng_;
};

void RandomRewriter::Reorder() {
  std::vector<Loop> loops = s_.Loops(RandomBlock()), order;
  for (const Loop& loop : loops) {
    if (rng_.Below(2) == 0) order.push_back(loop);
  }
  for (size_t i = order.size(); i > 1; --i)
    std::swap(order[i - 1], order[static_cast<size_t>(rng_.Below(static_cast<int64_t>(i)))]);
  s_.Reorder(order);
}

void RandomRewriter::TransformLayout() {
  const std::string block = RandomBlock();
  const Shape old = Find(block)->buffer->shape;
  if (old.empty()) return;
  const int64_t inner = 1 + rng_.Below(4);
  Shape shape = old;
  shape.back() = (shape.back() + inner - 1) / inner;
  shape.push_back(inner);
  s_.TransformLayout(block, shape, [inner](const std::vector<Expr>& index) {
    std::vector<Expr> mapped = index;
    mapped.back() = index.back() / Expr(inner);
    mapped.push_back(index.back() % Expr(inner));
    return mapped;
  });
}

std::string RandomRewriter::TryLoops(int64_t kind) {
  switch (kind) {
    case 0:
      s_.Split(RandomLoop(), rng_.Below(6));
      return "split";
    case 1: {
      std::vector<Loop> loops = s_.Loops(RandomBlock());
      if (loops.size() < 2) return "fuse";
      const size_t i = static_cast<size_t>(rng_.Below(static_cast<int64_t>(loops.size() - 1)));
      s_.Fuse(loops[i], loops[i + 1]);
      return "fuse";
    }
    case 2:
      Reorder();
      return "reorder";
    case 3:
      s_.Unroll(RandomLoop());
      return "unroll";
    case 4:
      s_.Vectorize(s_.Loops(RandomBlock()).empty() ? nullptr : RandomLoop());
      return "vectorize";
    case 5:
      s_.Parallel(RandomLoop());
      return "parallel";
    case 6:
      s_.Partition(RandomLoop());
      return "partition";
    default:
      s_.Peel(RandomLoop(), rng_.Below(3), rng_.Below(3));
      return "peel";
  }
}

std::string RandomRewriter::TryBlocks(int64_t kind) {
  const ir::Scope scope = rng_.Below(2) == 0 ? ir::Scope::kMemory : ir::Scope::kRegister;
  const std::string block = RandomBlock();
  switch (kind) {
    case 0:
      s_.Inline(block);
      return "inline";
    case 1:
      s_.ComputeAt(block, RandomLoop());
      return "compute_at";
    case 2:
      s_.ReverseComputeAt(block, RandomLoop());
      return "reverse_compute_at";
    case 3:
      s_.CacheRead(block, RandomRead(block), scope);
      return "cache_read";
    case 4:
      s_.CacheWrite(block, scope);
      return "cache_write";
    case 5:
      s_.SetScope(block, scope);
      return "set_scope";
    case 6:
      s_.DecomposeReduction(block, s_.Loops(block).empty() ? nullptr : Pick(rng_, s_.Loops(block)));
      return "decompose_reduction";
    case 7:
      s_.Rfactor(block, s_.Loops(block).empty() ? nullptr : Pick(rng_, s_.Loops(block)));
      return "rfactor";
    case 8:
      TransformLayout();
      return "transform_layout";
    default:
      if (rng_.Below(3) == 0) {
        s_.Prefetch(block, RandomRead(block), RandomLoop(), rng_.Below(4));
      } else if (rng_.Below(2) == 0) {
        const Loop from = RandomLoop();
        s_.PrefetchAt(block, RandomRead(block), RandomLoop(), {{RandomLoop(), from ? Expr(from) + Expr(1) : Expr(0)}});
        return "prefetch_at";
      } else {
        s_.Prefetch(block, RandomRead(block), RandomLoop(), 1, RandomLoop(), {RandomLoop()});
      }
      return "prefetch";
  }
}

std::string RandomRewriter::Try() {
  const int64_t kind = rng_.Below(25);
  // The moves that bring blocks together are tried more often: without them the rest has little to break.
  if (kind >= 18) return kind >= 21 ? TryBlocks(1 + kind % 2) : TryLoops(kind % 3);
  return kind < 8 ? TryLoops(kind) : TryBlocks(kind - 8);
}

// Parallel loops in another order: iterations that depend on each other would show.
ir::Func ParallelInReverse(const ir::Func& f) {
  ir::Func reversed = f;
  reversed.body = ir::RewriteStmt(f.body, [](const ir::Stmt& s) -> ir::Stmt {
    if (s->kind != ir::StmtKind::kFor || s->for_kind != ir::ForKind::kParallel) return nullptr;
    return ir::For(s->var, s->extent, s->for_kind,
                   ir::Substitute(s->body, {{s->var, Expr(s->extent - 1) - Expr(s->var)}}));
  });
  return reversed;
}

struct Tally {
  int accepted = 0, refused = 0;
};

void RunOne(uint64_t seed, std::map<std::string, Tally>& tally) {
  Rng rng(seed);
  const ir::Func program = RandomProgram(rng);
  Schedule s(program);
  std::string history;
  const int64_t steps = 4 + rng.Below(14);
  for (int64_t i = 0; i < steps; ++i) {
    const ir::Stmt before = s.func().body;
    const std::string rewrite = RandomRewriter(s, rng).Try();
    history += " " + rewrite;
    if (!s.status().ok()) {
      ++tally[rewrite].refused;
      ASSERT_EQ(before, s.func().body) << seed << ":" << history;
      ASSERT_EQ(std::string(s.status().message()).substr(0, rewrite.size() + 1), rewrite + "(") << s.status();
      s = Schedule(s.func());
      continue;
    }
    if (before == s.func().body) continue;
    ++tally[rewrite].accepted;
    absl::Status verified = ir::Verify(s.func());
    ASSERT_TRUE(verified.ok()) << seed << ":" << history << "\n" << verified << "\n" << ir::Text(s.func());
    ASSERT_TRUE(SameResults(program, s.func(), 0, seed)) << seed << ":" << history << "\nbefore\n" << ir::Text(before);
    absl::StatusOr<ir::Func> lowered = Lower(s.func());
    ASSERT_TRUE(lowered.ok()) << seed << ":" << history << "\n" << lowered.status() << "\n" << ir::Text(s.func());
    ASSERT_TRUE(SameResults(program, *lowered, 0, seed)) << seed << ":" << history << "\nscheduled\n"
                                                         << ir::Text(s.func());
    ASSERT_TRUE(SameResults(program, ParallelInReverse(*lowered), 0, seed)) << seed << ":" << history;
  }
}

TEST(ScheduleFuzz, AcceptedRewritesKeepTheResults) {
  std::map<std::string, Tally> tally;
  const char* runs = std::getenv("TEMPER_FUZZ_RUNS");
  const uint64_t count = runs != nullptr ? std::strtoull(runs, nullptr, 10) : 2500;
  for (uint64_t seed = 1; seed <= count && !::testing::Test::HasFatalFailure(); ++seed) RunOne(seed, tally);
  if (::testing::Test::HasFatalFailure()) return;
  EXPECT_EQ(tally.size(), 19u);
  for (const auto& [rewrite, t] : tally) {
    EXPECT_GT(t.accepted, 0) << rewrite;
    EXPECT_GT(t.refused, 0) << rewrite;
    RecordProperty(rewrite, std::to_string(t.accepted) + "/" + std::to_string(t.accepted + t.refused));
  }
}

// Loops that were only split, fused and reordered lead to different points each: any of them may run in parallel.
TEST(ScheduleFuzz, RearrangedLoopsAreFoundIndependent) {
  Rng rng(3);
  for (int i = 0; i < 1500; ++i) {
    const Shape shape = {1 + rng.Below(9), 1 + rng.Below(9), 1 + rng.Below(40)};
    ir::ProgramBuilder b("copy");
    ir::Buffer x = b.Input("x", DType::kF32, shape);
    b.MarkOutput(b.Compute("out", DType::kF32, shape, [&](auto& at) { return Load(x, at); }));
    Schedule s(*b.Finish());
    for (int64_t step = rng.Below(7); step > 0; --step) {
      std::vector<Loop> loops = s.Loops("out");
      const size_t at = static_cast<size_t>(rng.Below(static_cast<int64_t>(loops.size())));
      const int64_t kind = rng.Below(3);
      if (kind == 0) s.Split(loops[at], 1 + rng.Below(12));
      if (kind == 1 && at > 0) s.Fuse(loops[at - 1], loops[at]);
      if (kind == 2 && at > 0) s.Reorder({loops[at], loops[static_cast<size_t>(rng.Below(static_cast<int64_t>(at)))]});
    }
    for (const Loop& loop : s.Loops("out")) {
      Schedule parallel(s.func());
      parallel.Parallel(loop);
      ASSERT_TRUE(parallel.status().ok()) << i << ": " << parallel.status() << "\n" << ir::Text(s.func());
    }
  }
}

// Conditions may choose between tiles and mask the lanes of a vector; inside a tile there are none.
::testing::AssertionResult TilesAreClean(const ir::Stmt& s, bool in_tile, bool in_vector) {
  const bool vectorized = s->kind == ir::StmtKind::kFor && s->for_kind == ir::ForKind::kVectorized;
  const bool unrolled = s->kind == ir::StmtKind::kFor && s->for_kind == ir::ForKind::kUnrolled;
  if (s->kind == ir::StmtKind::kIf && in_tile && !in_vector) {
    return ::testing::AssertionFailure() << "a condition in a tile: " << ir::Text(s->cond);
  }
  in_tile = in_tile || vectorized || unrolled || s->kind == ir::StmtKind::kAlloc;
  std::vector<ir::Stmt> children = s->stmts;
  if (s->body) children.push_back(s->body);
  if (s->else_body) children.push_back(s->else_body);
  for (const ir::Stmt& child : children) {
    if (::testing::AssertionResult clean = TilesAreClean(child, in_tile, vectorized); !clean) return clean;
  }
  return ::testing::AssertionSuccess();
}

TEST(ScheduleFuzz, TiledMatmulsOfAnyShapeHaveCleanTiles) {
  Rng rng(5);
  for (int i = 0; i < 200; ++i) {
    const int64_t lanes = 1 + rng.Below(4), nr = lanes * (1 + rng.Below(3)), mr = 1 + rng.Below(5);
    const ir::Func program = PackedMatmul(1 + rng.Below(14), 1 + rng.Below(20), 1 + rng.Below(4), nr);
    Schedule s(program);
    ScheduleTiles(s, mr, nr, lanes, rng.Below(2) == 0);
    ASSERT_TRUE(s.status().ok()) << s.status();
    ASSERT_TRUE(SameResults(program, s.func())) << i;
    absl::StatusOr<ir::Func> lowered = Lower(s.func());
    ASSERT_TRUE(lowered.ok()) << lowered.status();
    ASSERT_TRUE(SameResults(program, *lowered)) << i;
    ASSERT_TRUE(SameResults(program, ParallelInReverse(*lowered))) << i;
    ASSERT_TRUE(TilesAreClean(lowered->body, false, false)) << i << "\n" << ir::Text(*lowered);
  }
}

}  // namespace
}  // namespace temper
