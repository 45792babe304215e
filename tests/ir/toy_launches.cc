#include "tests/ir/toy_launches.h"

#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/division.h"

namespace temper::ir {
namespace {

using Body = std::function<Stmt(const Expr&)>;

Stmt Loop(const char* name, int64_t extent, ForKind kind, const Body& body) {
  Var v = MakeVar(name);
  return For(v, extent, kind, body(v));
}

ForKind Unrolled(bool unrolled) { return unrolled ? ForKind::kUnrolled : ForKind::kSerial; }

// groups, shared arrays, threads, in that order.
Stmt Launched(Stmt code, const std::vector<Stmt>& groups, const std::vector<Buffer>& shared,
              const std::vector<Stmt>& threads) {
  for (size_t i = threads.size(); i-- > 0;) code = For(threads[i]->var, threads[i]->extent, threads[i]->for_kind, code);
  for (const Buffer& b : shared) code = Alloc(b, code);
  for (size_t i = groups.size(); i-- > 0;) code = For(groups[i]->var, groups[i]->extent, groups[i]->for_kind, code);
  return code;
}
Stmt Dimension(const char* name, int64_t extent, ForKind kind) { return For(MakeVar(name), extent, kind, Seq({})); }

}  // namespace

Toy Reduction(const ReductionChoice& c) {
  Buffer in = MakeBuffer("in", DType::kF32, {c.rows, c.columns}), out = MakeBuffer("out", DType::kF32, {c.rows});
  Stmt plain = Loop("i", c.rows, ForKind::kSerial, [&](const Expr& i) {
    return Seq({Store(out, {i}, Float(0)), Loop("k", c.columns, ForKind::kSerial, [&](const Expr& k) {
                  return Store(out, {i}, Load(out, {i}) + Load(in, {i, k}));
                })});
  });

  Buffer sums = MakeBuffer("sums", DType::kF32, {c.rows_a_group, c.threads}, Scope::kShared);
  Buffer own = MakeBuffer("own", DType::kF32, {1}, Scope::kRegister);
  const Stmt g = Dimension("g", c.rows / c.rows_a_group, ForKind::kGroupX);
  const Stmt u = Dimension("u", c.rows_a_group, ForKind::kThreadY), t = Dimension("t", c.threads, ForKind::kThreadX);
  const Expr row = Expr(g->var) * Expr(c.rows_a_group) + Expr(u->var), lane = t->var;
  const int64_t share = CeilDiv(c.columns, c.threads);
  auto sum = [&](const Expr& at) { return Load(sums, {u->var, at}); };
  std::vector<Stmt> code = {Store(own, {0}, Float(0)), Loop("k", share, Unrolled(c.unrolled), [&](const Expr& k) {
                              const Expr at = c.strided ? k * Expr(c.threads) + lane : lane * Expr(share) + k;
                              return If(at < Expr(c.columns), Store(own, {0}, Load(own, {0}) + Load(in, {row, at})));
                            })};
  code.push_back(Store(sums, {u->var, lane}, Load(own, {0})));
  for (int64_t half = c.threads / 2; half > 0; half /= 2) {
    code.push_back(Barrier());
    code.push_back(If(lane < Expr(half), Store(sums, {u->var, lane}, sum(lane) + sum(lane + Expr(half)))));
  }
  if (c.spare_barrier) code.push_back(Barrier());
  code.push_back(If(lane < 1, Store(out, {row}, sum(0))));
  Stmt launch = Launched(Alloc(own, Seq(code)), {g}, {sums}, {u, t});
  return {absl::StrCat("reduction of ", c.rows, "x", c.columns, " by ", c.rows_a_group, "x", c.threads,
                       c.strided ? " strided" : "", c.unrolled ? " unrolled" : ""),
          {"sum", {in, out}, 1, plain},
          {"sum", {in, out}, 1, launch}};
}

Toy Transpose(const TransposeChoice& c) {
  Buffer in = MakeBuffer("in", DType::kF32, {c.rows, c.columns});
  Buffer out = MakeBuffer("out", DType::kF32, {c.columns, c.rows});
  Stmt plain = Loop("i", c.rows, ForKind::kSerial, [&](const Expr& i) {
    return Loop("j", c.columns, ForKind::kSerial, [&](const Expr& j) { return Store(out, {j, i}, Load(in, {i, j})); });
  });

  const int64_t t = c.tile;
  Buffer tile = MakeBuffer("tile", DType::kF32, {t, t + c.padding}, Scope::kShared);
  const Stmt gx = Dimension("gx", CeilDiv(CeilDiv(c.columns, t), c.tiles_a_group), ForKind::kGroupX);
  const Stmt gy = Dimension("gy", CeilDiv(c.rows, t), ForKind::kGroupY);
  const Stmt x = Dimension("x", t, ForKind::kThreadX), y = Dimension("y", c.rows_a_pass, ForKind::kThreadY);
  auto at = [&](const Expr& row, const Expr& column, bool turned) {
    return turned ? std::vector<Expr>{column, row} : std::vector<Expr>{row, column};
  };
  // f(row of the tile) for each that the thread deals with; the thread's column is x.
  auto each_row = [&](const Body& f) {
    return Loop("p", t / c.rows_a_pass, ForKind::kSerial,
                [&](const Expr& p) { return f(p * Expr(c.rows_a_pass) + Expr(y->var)); });
  };
  Stmt code = Loop("s", c.tiles_a_group, ForKind::kSerial, [&](const Expr& s) {
    const Expr left = (Expr(gx->var) * Expr(c.tiles_a_group) + s) * Expr(t), top = Expr(gy->var) * Expr(t);
    Stmt fetch = each_row([&](const Expr& row) {
      const Expr i = top + row, j = left + Expr(x->var);
      return If(And(i < Expr(c.rows), j < Expr(c.columns)),
                Store(tile, at(row, x->var, c.turn_early), Load(in, {i, j})));
    });
    Stmt write = each_row([&](const Expr& row) {
      const Expr j = left + row, i = top + Expr(x->var);
      return If(And(i < Expr(c.rows), j < Expr(c.columns)),
                Store(out, {j, i}, Load(tile, at(row, x->var, !c.turn_early))));
    });
    return Seq({fetch, Barrier(), write, Barrier()});
  });
  return {absl::StrCat("transpose of ", c.rows, "x", c.columns, " by tiles of ", t, "+", c.padding, ", ", c.rows_a_pass,
                       " rows a pass, ", c.tiles_a_group, " tiles a group", c.turn_early ? ", turned early" : ""),
          {"turn", {in, out}, 1, plain},
          {"turn", {in, out}, 1, Launched(code, {gy, gx}, {tile}, {y, x})}};
}

namespace {

class MatmulBuilder {
 public:
  explicit MatmulBuilder(const MatmulChoice& c) : c_(c) {}
  Func Plain() const;
  Func Launch() const;

 private:
  Expr Row(const Expr& i) const { return Share(across(c_.swapped_axes), i, c_.rows, c_.threads_y); }
  Expr Column(const Expr& j) const { return Share(across(!c_.swapped_axes), j, c_.columns, c_.threads_x); }
  // The i-th of a thread's rows or columns within the tile.
  Expr Share(const Var& thread, const Expr& i, int64_t count, int64_t threads) const {
    return c_.side_by_side ? Expr(thread) * Expr(count) + i : i * Expr(threads) + Expr(thread);
  }
  Var across(bool x) const { return x ? x_->var : y_->var; }

  // All threads together bring one step's rows x columns elements of `from` to `to`, zeros where it has none.
  Stmt Fetch(const Buffer& from, int64_t rows, int64_t columns, const Expr& top, const Expr& left,
             const std::function<Stmt(const Expr& row, const Expr& column, const Expr& value)>& store) const;
  Stmt FetchBoth(const Expr& step, const Expr& buffer) const;
  Stmt Use(const Expr& buffer) const;
  Stmt OverTile(const std::function<Stmt(const Expr& i, const Expr& j)>& f) const;

  MatmulChoice c_;
  int64_t tile_m_ = c_.threads_y * c_.rows, tile_n_ = c_.threads_x * c_.columns, steps_ = CeilDiv(c_.k, c_.depth);
  Buffer a_ = MakeBuffer("a", DType::kF32, {c_.m, c_.k}), b_ = MakeBuffer("b", DType::kF32, {c_.k, c_.n}),
         out_ = MakeBuffer("c", DType::kF32, {c_.m, c_.n});
  Buffer tile_a_ = MakeBuffer(
      "tile_a", DType::kF32,
      {c_.buffers, c_.turned_a ? c_.depth : tile_m_, (c_.turned_a ? tile_m_ : c_.depth) + c_.padding}, Scope::kShared);
  Buffer tile_b_ = MakeBuffer("tile_b", DType::kF32, {c_.buffers, c_.depth, tile_n_}, Scope::kShared);
  Buffer sums_ = MakeBuffer("sums", DType::kF32, {c_.rows, c_.columns}, Scope::kRegister);
  Stmt gx_ = Dimension("gx", CeilDiv(c_.n, tile_n_), ForKind::kGroupX);
  Stmt gy_ = Dimension("gy", CeilDiv(c_.m, tile_m_), ForKind::kGroupY);
  Stmt x_ = Dimension("x", c_.swapped_axes ? c_.threads_y : c_.threads_x, ForKind::kThreadX);
  Stmt y_ = Dimension("y", c_.swapped_axes ? c_.threads_x : c_.threads_y, ForKind::kThreadY);
  Expr top_ = Expr(gy_->var) * Expr(tile_m_), left_ = Expr(gx_->var) * Expr(tile_n_);
};

Func MatmulBuilder::Plain() const {
  Stmt body = Loop("i", c_.m, ForKind::kSerial, [&](const Expr& i) {
    return Loop("j", c_.n, ForKind::kSerial, [&](const Expr& j) {
      return Seq({Store(out_, {i, j}, Float(0)), Loop("k", c_.k, ForKind::kSerial, [&](const Expr& k) {
                    return Store(out_, {i, j}, Load(out_, {i, j}) + Load(a_, {i, k}) * Load(b_, {k, j}));
                  })});
    });
  });
  return {"matmul", {a_, b_, out_}, 1, body};
}

Stmt MatmulBuilder::Fetch(const Buffer& from, int64_t rows, int64_t columns, const Expr& top, const Expr& left,
                          const std::function<Stmt(const Expr&, const Expr&, const Expr&)>& store) const {
  const int64_t threads = x_->extent * y_->extent, count = rows * columns;
  return Loop("f", CeilDiv(count, threads), ForKind::kSerial, [&](const Expr& f) {
    const Expr e = f * Expr(threads) + Expr(y_->var) * Expr(x_->extent) + Expr(x_->var);
    const Expr row = e / Expr(columns), column = e % Expr(columns);
    const Expr inside = And(top + row < Expr(from->shape[0]), left + column < Expr(from->shape[1]));
    return If(e < Expr(count), store(row, column, Select(inside, Load(from, {top + row, left + column}), Float(0))));
  });
}

Stmt MatmulBuilder::FetchBoth(const Expr& step, const Expr& buffer) const {
  const Expr first = step * Expr(c_.depth);
  return Seq(
      {Fetch(a_, tile_m_, c_.depth, top_, first,
             [&](const Expr& row, const Expr& k, const Expr& value) {
               return c_.turned_a ? Store(tile_a_, {buffer, k, row}, value) : Store(tile_a_, {buffer, row, k}, value);
             }),
       Fetch(b_, c_.depth, tile_n_, first, left_, [&](const Expr& k, const Expr& column, const Expr& value) {
         return Store(tile_b_, {buffer, k, column}, value);
       })});
}

Stmt MatmulBuilder::OverTile(const std::function<Stmt(const Expr&, const Expr&)>& f) const {
  const ForKind kind = Unrolled(c_.unrolled);
  return Loop("i", c_.rows, kind,
              [&](const Expr& i) { return Loop("j", c_.columns, kind, [&](const Expr& j) { return f(i, j); }); });
}

Stmt MatmulBuilder::Use(const Expr& buffer) const {
  auto update = [&](const Expr& i, const Expr& j, const Expr& k) {
    const Expr a = c_.turned_a ? Load(tile_a_, {buffer, k, Row(i)}) : Load(tile_a_, {buffer, Row(i), k});
    return Store(sums_, {i, j}, Load(sums_, {i, j}) + a * Load(tile_b_, {buffer, k, Column(j)}));
  };
  auto over_depth = [&](const Body& f) { return Loop("k", c_.depth, ForKind::kSerial, f); };
  if (c_.depth_inside) {
    return OverTile(
        [&](const Expr& i, const Expr& j) { return over_depth([&](const Expr& k) { return update(i, j, k); }); });
  }
  return over_depth(
      [&](const Expr& k) { return OverTile([&](const Expr& i, const Expr& j) { return update(i, j, k); }); });
}

Func MatmulBuilder::Launch() const {
  std::vector<Stmt> code = {OverTile([&](const Expr& i, const Expr& j) { return Store(sums_, {i, j}, Float(0)); })};
  if (c_.buffers == 1) {
    code.push_back(Loop("s", steps_, ForKind::kSerial, [&](const Expr& s) {
      return Seq({FetchBoth(s, 0), Barrier(), Use(0), Barrier()});
    }));
  } else {
    code.insert(code.end(), {FetchBoth(0, 0), Barrier()});
    code.push_back(Loop("s", steps_, ForKind::kSerial, [&](const Expr& s) {
      Stmt next = If(s + 1 < Expr(steps_), FetchBoth(s + 1, (s + 1) % 2));
      return Seq({next, Use(s % 2), Barrier()});
    }));
  }
  code.push_back(OverTile([&](const Expr& i, const Expr& j) {
    const Expr row = top_ + Row(i), column = left_ + Column(j);
    return If(And(row < Expr(c_.m), column < Expr(c_.n)), Store(out_, {row, column}, Load(sums_, {i, j})));
  }));
  Stmt launch = Launched(Alloc(sums_, Seq(code)), {gy_, gx_}, {tile_a_, tile_b_}, {y_, x_});
  return {"matmul", {a_, b_, out_}, 1, launch};
}

}  // namespace

Toy Matmul(const MatmulChoice& c) {
  MatmulBuilder builder(c);
  return {absl::StrCat("matmul ", c.m, "x", c.n, "x", c.k, " by ", c.threads_x, "x", c.threads_y, " threads of ",
                       c.rows, "x", c.columns, ", depth ", c.depth, ", buffers ", c.buffers, ", padding ", c.padding,
                       c.turned_a ? ", turned a" : "", c.side_by_side ? ", side by side" : "",
                       c.swapped_axes ? ", swapped axes" : "", c.unrolled ? ", unrolled" : "",
                       c.depth_inside ? ", depth inside" : ""),
          builder.Plain(), builder.Launch()};
}

Toy DrawToy(Rng& rng) {
  auto coin = [&] { return rng.Below(2) == 0; };
  switch (rng.Below(4)) {
    case 0: {
      const int64_t rows_a_group = 1 + rng.Below(3);
      return Reduction({.rows = rows_a_group * (1 + rng.Below(3)),
                        .columns = 1 + rng.Below(200),
                        .threads = int64_t{1} << rng.Below(7),
                        .rows_a_group = rows_a_group,
                        .strided = coin(),
                        .unrolled = coin(),
                        .spare_barrier = coin()});
    }
    case 1: {
      const int64_t rows_a_pass = int64_t{1} << rng.Below(4);
      return Transpose({.rows = 1 + rng.Below(40),
                        .columns = 1 + rng.Below(40),
                        .tile = rows_a_pass * (1 + rng.Below(3)),
                        .rows_a_pass = rows_a_pass,
                        .padding = rng.Below(3),
                        .tiles_a_group = 1 + rng.Below(3),
                        .turn_early = coin()});
    }
    default:
      return Matmul({.m = 1 + rng.Below(24),
                     .n = 1 + rng.Below(24),
                     .k = 1 + rng.Below(16),
                     .threads_x = 1 + rng.Below(6),
                     .threads_y = 1 + rng.Below(6),
                     .rows = 1 + rng.Below(4),
                     .columns = 1 + rng.Below(4),
                     .depth = 1 + rng.Below(6),
                     .buffers = 1 + rng.Below(2),
                     .padding = rng.Below(2),
                     .turned_a = coin(),
                     .side_by_side = coin(),
                     .swapped_axes = coin(),
                     .unrolled = coin(),
                     .depth_inside = coin()});
  }
}

std::vector<NDArray> DrawArguments(const Func& f, Rng& rng) {
  std::vector<NDArray> args;
  for (size_t p = 0; p < f.params.size(); ++p) {
    NDArray& array = args.emplace_back(f.params[p]->dtype, f.params[p]->shape);
    const bool output = p + static_cast<size_t>(f.num_outputs) >= f.params.size();
    for (int64_t i = 0; i < array.size(); ++i) {
      array.Set(i, output ? std::numeric_limits<double>::quiet_NaN() : static_cast<double>(rng.Below(9) - 4));
    }
  }
  return args;
}

int CountBarriers(const Func& f) {
  int count = 0;
  VisitStmt(f.body, [&](const Stmt& s) { count += s->kind == StmtKind::kBarrier ? 1 : 0; });
  return count;
}

Func WithoutBarrier(const Func& f, int which) {
  Func result = f;
  int seen = 0;
  result.body = RewriteStmt(f.body, [&](const Stmt& s) -> Stmt {
    return s->kind == StmtKind::kBarrier && seen++ == which ? Seq({}) : nullptr;
  });
  return result;
}

// --- another way to run launches ---

namespace {

bool HasBarrier(const Stmt& s) {
  bool found = false;
  VisitStmt(s, [&](const Stmt& node) { found = found || node->kind == StmtKind::kBarrier; });
  return found;
}

// Uses of `from` become uses of `to`, whose indices have `prefix` in front.
Stmt Redirect(const Stmt& s, const Buffer& from, const Buffer& to, const std::vector<Expr>& prefix) {
  auto extended = [&](const std::vector<Expr>& indices) {
    std::vector<Expr> all = prefix;
    all.insert(all.end(), indices.begin(), indices.end());
    return all;
  };
  Stmt loads = RewriteExprs(s, [&](const Expr& e) {
    return Rewrite(e, [&](const Expr& node) {
      return node->kind == ExprKind::kLoad && node->buffer == from ? Load(to, extended(node->args)) : Expr();
    });
  });
  return RewriteStmt(loads, [&](const Stmt& node) -> Stmt {
    if (node->kind != StmtKind::kStore || node->buffer != from) return nullptr;
    return Store(to, extended(node->indices), node->value);
  });
}

class Serializer {
 public:
  Serializer(const Launch& launch, bool reverse) : launch_(launch), reverse_(reverse) {}

  Stmt Run() const {
    Stmt s = Pieces(launch_.body);
    for (const Buffer& b : launch_.shared) {
      Buffer memory = MakeBuffer(b->name, b->dtype, b->shape);
      s = Alloc(memory, Redirect(s, b, memory, {}));
    }
    for (const Stmt& g : launch_.group_loops) s = For(g->var, g->extent, ForKind::kSerial, s);
    return s;
  }

 private:
  Stmt EachThread(const Stmt& s) const {
    std::vector<VarBinding> bindings;
    std::vector<Stmt> loops;
    for (const Stmt& t : launch_.thread_loops) {
      loops.push_back(For(MakeVar(t->var->name), t->extent, ForKind::kSerial, Seq({})));
      const Expr v = loops.back()->var;
      bindings.push_back({t->var, reverse_ ? Expr(t->extent - 1) - v : v});
    }
    Stmt body = Substitute(s, bindings);
    for (const Stmt& loop : loops) body = For(loop->var, loop->extent, ForKind::kSerial, body);
    return body;
  }

  // The loop's steps one behind another, so that a piece may reach from one into the next.
  Stmt Steps(const Stmt& loop) const {
    std::vector<Stmt> steps;
    for (int64_t i = 0; i < loop->extent; ++i) steps.push_back(Substitute(loop->body, {{loop->var, Expr(i)}}));
    return Seq(steps);
  }

  Stmt Pieces(const Stmt& s) const {
    switch (s->kind) {
      case StmtKind::kSeq: {
        std::vector<Stmt> pieces, free;
        auto flush = [&] {
          if (!free.empty()) pieces.push_back(EachThread(Seq(free)));
          free.clear();
        };
        for (const Stmt& child : s->stmts) {
          if (!HasBarrier(child)) {
            free.push_back(child);
            continue;
          }
          flush();
          pieces.push_back(Pieces(child));
        }
        flush();
        return Seq(pieces);
      }
      case StmtKind::kFor:
        if (HasBarrier(s)) return Pieces(Steps(s));
        break;
      case StmtKind::kIf:
        if (HasBarrier(s)) return If(s->cond, Pieces(s->body), s->else_body ? Pieces(s->else_body) : nullptr);
        break;
      case StmtKind::kAlloc: {
        if (!HasBarrier(s)) break;
        // One for each thread.
        Shape shape = s->buffer->shape;
        std::vector<Expr> thread;
        for (const Stmt& t : launch_.thread_loops) thread.push_back(t->var);
        for (size_t i = launch_.thread_loops.size(); i-- > 0;) {
          shape.insert(shape.begin(), launch_.thread_loops[i]->extent);
        }
        Buffer all = MakeBuffer(s->buffer->name, s->buffer->dtype, shape);
        return Alloc(all, Pieces(Redirect(s->body, s->buffer, all, thread)));
      }
      case StmtKind::kBarrier:
        return Seq({});
      case StmtKind::kStore:
      case StmtKind::kBlock:
      case StmtKind::kPrefetch:
      case StmtKind::kInstruction:
        break;
    }
    return EachThread(s);
  }

  const Launch& launch_;
  const bool reverse_;
};

}  // namespace

Func Serialized(const Func& f, bool reverse) {
  absl::StatusOr<std::vector<Launch>> launches = LaunchesOf(f);
  Func result = f;
  if (!launches.ok() || launches->size() != 1) return result;
  result.body = Serializer(launches->front(), reverse).Run();
  return result;
}

}  // namespace temper::ir
