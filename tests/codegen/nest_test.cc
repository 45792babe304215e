// Statements: loops of each kind, scratch, masks, gathers, reductions, register tiles; errors; loading.
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <unistd.h>

#include <regex>
#include <thread>

#include "compiler/codegen/codegen.h"
#include "compiler/codegen/link.h"
#include "tests/codegen/expect_kernel.h"
#include "tests/codegen/matmul_nest.h"

namespace temper {
namespace {

using ir::Expr, ir::ExprKind, ir::ForKind, ir::Stmt, ir::Var;
using testing::HasSubstr, testing::Not;

ir::Buffer F32(std::string name, Shape shape, ir::Scope scope = ir::Scope::kMemory) {
  return ir::MakeBuffer(std::move(name), DType::kF32, std::move(shape), scope);
}

// --- loops and scratch

TEST(Nest, LaunchesOfDevicesAreRefusedInOneLine) {
  ir::Buffer c = F32("c", {8});
  Var g = ir::MakeVar("g"), t = ir::MakeVar("t");
  Stmt store = ir::Store(c, {Expr(g) * Expr(4) + Expr(t)}, ir::Float(1));
  ir::Func f{"f", {c}, 1, ir::For(g, 2, ForKind::kGroupX, ir::For(t, 4, ForKind::kThreadX, store))};
  absl::Status status = CompileKernels({{"k", f}}, HostTarget()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(status.message(), "k: the nest is for devices with thread groups, of which code for CPUs knows nothing");
}

TEST(Nest, ParallelLoopsRunAllTheirIterationsOnAnyNumberOfThreads) {
  ir::Buffer a = F32("a", {7, 24}), c = F32("c", {7, 24});
  Var i = ir::MakeVar("i"), j = ir::MakeVar("j");
  ir::Func f{"f",
             {a, c},
             1,
             ir::For(i, 7, ForKind::kParallel,
                     ir::For(j, 24, ForKind::kVectorized,
                             ir::Store(c, {i, j}, ir::Load(a, {i, j}) * ir::Cast(i, DType::kF32))))};
  for (int threads : {1, 2, 3, 7, 16}) ExpectSame(f, 1e-6, 1, threads);
  auto kernel = RunnableKernel::Make(f, HostTarget());
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  Rng rng(1);
  std::vector<NDArray> args = RandomArgs(f, rng);
  EXPECT_EQ(kernel->Run(args, 3), 1);
}

TEST(Nest, AParallelLoopSeesTheVariablesAroundIt) {
  ir::Buffer a = F32("a", {3, 4, 5}), c = F32("c", {3, 2, 4, 5});
  Var o = ir::MakeVar("o"), u = ir::MakeVar("u"), i = ir::MakeVar("i"), j = ir::MakeVar("j");
  Stmt body = ir::For(i, 4, ForKind::kParallel,
                      ir::For(j, 5, ForKind::kSerial,
                              ir::Store(c, {o, u, i, j},
                                        ir::Load(a, {o, i, j}) + ir::Cast(Expr(u) * Expr(10) + Expr(o), DType::kF32))));
  ExpectSame({"f", {a, c}, 1, ir::For(o, 3, ForKind::kSerial, ir::For(u, 2, ForKind::kUnrolled, body))});
}

// Functions of their own see variables of all kinds, scratch of all places, and other functions of their own.
TEST(Nest, OutlinedLoopsSeeWhatIsAroundThem) {
  for (ForKind outermost : {ForKind::kSerial, ForKind::kParallel, ForKind::kUnrolled, ForKind::kOutlined}) {
    ir::Buffer a = F32("a", {3, 4, 6}), c = F32("c", {3, 2, 4, 6}), stack = F32("stack", {4, 6}),
               large = F32("large", {8000}), inside = F32("inside", {6});
    Var o = ir::MakeVar("o"), u = ir::MakeVar("u"), i = ir::MakeVar("i"), j = ir::MakeVar("j"), k = ir::MakeVar("k"),
        l = ir::MakeVar("l"), m = ir::MakeVar("m"), n = ir::MakeVar("n");
    Stmt fill = ir::For(i, 4, ForKind::kOutlined,
                        ir::For(j, 6, ForKind::kVectorized,
                                ir::Store(stack, {i, j}, ir::Load(a, {o, i, j}) + ir::Cast(Expr(o), DType::kF32))));
    Stmt spread = ir::For(k, 6, ForKind::kOutlined, ir::Store(large, {Expr(k) * Expr(1000)}, ir::Load(stack, {u, k})));
    Stmt use = ir::Alloc(
        inside,
        ir::Seq({ir::For(m, 6, ForKind::kSerial,
                         ir::Store(inside, {m}, ir::Load(large, {Expr(m) * Expr(1000)}) * ir::Cast(u, DType::kF32))),
                 ir::For(n, 6, ForKind::kOutlined,
                         ir::Store(c, {o, u, l, n}, ir::Load(inside, {n}) + ir::Load(stack, {l, n})))}));
    Stmt body = ir::Alloc(
        stack, ir::Seq({fill, ir::For(u, 2, ForKind::kUnrolled,
                                      ir::Alloc(large, ir::Seq({spread, ir::For(l, 4, ForKind::kOutlined, use)})))}));
    const ir::Func f{"f", {a, c}, 1, ir::For(o, 3, outermost, body)};
    ASSERT_TRUE(ir::Verify(f).ok()) << ir::Verify(f);
    for (int threads : {1, 3}) ExpectSame(f, 0, 1, threads);
    EXPECT_NE(EmitText({{"kernel", f}}, HostTarget(), "ir")->find("call void @kernel.loop"), std::string::npos);
  }
}

TEST(Nest, ScratchOutsideAndInsideParallelLoops) {
  // shared: 8x300 in the workspace; small: on the stack; large: 8000 floats for each thread.
  ir::Buffer a = F32("a", {8, 300}), c = F32("c", {8, 300}), shared = F32("shared", {8, 300}),
             shared2 = F32("shared2", {3}), small = F32("small", {300}), large = F32("large", {8000}),
             large2 = F32("large2", {5000});
  Var i = ir::MakeVar("i"), j = ir::MakeVar("j"), k = ir::MakeVar("k"), l = ir::MakeVar("l"), m = ir::MakeVar("m"),
      p = ir::MakeVar("p"), q = ir::MakeVar("q");
  Stmt first =
      ir::For(p, 8, ForKind::kParallel,
              ir::For(q, 300, ForKind::kVectorized, ir::Store(shared, {p, q}, ir::Load(a, {p, q}) + ir::Float(1))));
  Stmt body = ir::Seq({
      ir::For(j, 300, ForKind::kVectorized, ir::Store(small, {j}, ir::Load(shared, {i, j}) * ir::Load(shared2, {1}))),
      ir::For(k, 300, ForKind::kSerial, ir::Store(large, {Expr(k) * Expr(26)}, ir::Load(small, {Expr(299) - Expr(k)}))),
      ir::For(l, 300, ForKind::kSerial, ir::Store(large2, {l}, ir::Load(large, {Expr(l) * Expr(26)}) - ir::Float(2))),
      ir::For(m, 300, ForKind::kVectorized, ir::Store(c, {i, m}, ir::Load(large2, {m}) + ir::Load(small, {m}))),
  });
  Stmt second = ir::For(i, 8, ForKind::kParallel, ir::Alloc(small, ir::Alloc(large, ir::Alloc(large2, body))));
  ir::Func f{"f",
             {a, c},
             1,
             ir::Alloc(shared, ir::Alloc(shared2, ir::Seq({ir::Store(shared2, {1}, ir::Float(0.5)), first, second})))};
  for (int threads : {1, 3}) ExpectSame(f, 1e-5, 1, threads);
  auto compiled = CompileKernels({{"kernel", f}}, HostTarget());
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  EXPECT_EQ(compiled->kernels[0].workspace_bytes, (8 * 300 * 4 + 63) / 64 * 64 + 64);
  EXPECT_EQ(compiled->kernels[0].thread_workspace_bytes, 8000 * 4 + (5000 * 4 + 63) / 64 * 64);
}

TEST(Nest, VectorisedLoopsOfAnyExtent) {
  for (int64_t n : {1, 2, 3, 5, 7, 8, 15, 16, 17, 24, 31, 48, 64, 100}) {
    SCOPED_TRACE(n);
    ir::Buffer a = F32("a", {2, n}), c = F32("c", {2, n}), r = F32("r", {1, n}, ir::Scope::kRegister);
    Var i = ir::MakeVar("i"), j = ir::MakeVar("j"), k = ir::MakeVar("k"), z = ir::MakeVar("z"), w = ir::MakeVar("w");
    Stmt body = ir::Alloc(r, ir::Seq({ir::For(z, n, ForKind::kVectorized, ir::Store(r, {0, z}, ir::Float(1))),
                                      ir::For(k, 3, ForKind::kSerial,
                                              ir::For(j, n, ForKind::kVectorized,
                                                      ir::Store(r, {0, j}, ir::Load(r, {0, j}) * ir::Load(a, {i, j})))),
                                      ir::For(w, n, ForKind::kVectorized, ir::Store(c, {i, w}, ir::Load(r, {0, w})))}));
    ExpectSame({"f", {a, c}, 1, ir::For(i, 2, ForKind::kSerial, body)});
  }
}

TEST(Nest, GathersScattersAndReversals) {
  ir::Buffer a = F32("a", {200}), idx = ir::MakeBuffer("idx", DType::kU8, {16}), c = F32("c", {5, 64});
  Var i = ir::MakeVar("i"), v = ir::MakeVar("v");
  Expr row = i, lane = v;
  auto loop = [&](std::vector<Expr> at, Expr value, int64_t lanes = 16) {
    ExpectSame(
        {"f",
         {a, idx, c},
         1,
         ir::For(i, 5, ForKind::kSerial, ir::For(v, lanes, ForKind::kVectorized, ir::Store(c, std::move(at), value)))});
  };
  loop({row, lane}, ir::Load(a, {lane * Expr(3) + row}));
  loop({row, lane}, ir::Load(a, {Expr(100) - lane + row}));
  loop({row, lane}, ir::Load(a, {lane / Expr(3) + lane % Expr(5) * Expr(7) + row}));
  loop({row, lane}, ir::Load(a, {ir::Cast(ir::Load(idx, {lane}), DType::kI64) % Expr(200)}));
  loop({row, lane * Expr(4) + Expr(1)}, ir::Load(a, {lane + row}));
  loop({row, Expr(40) - lane}, ir::Load(a, {lane + row}));
  loop({row, lane % Expr(4) * Expr(4) + lane / Expr(4)}, ir::Load(a, {lane + row}));
  loop({row, lane}, ir::Load(a, {lane * Expr(2)}) + ir::Load(a, {row}), 7);
}

TEST(Nest, LanesWithinAnAlignedVectorShareOneLoad) {
  const ir::Buffer a = F32("a", {5, 64}), c = F32("c", {5, 64});
  const Var r = ir::MakeVar("r"), v = ir::MakeVar("v"), i = ir::MakeVar("i");
  const Expr at = Expr(v) * 16 + Expr(i);
  const auto func = [&](const ir::Buffer& from, const Expr& column) {
    return ir::Func{
        "f",
        {from, c},
        1,
        ir::For(r, 5, ForKind::kSerial,
                ir::For(v, 4, ForKind::kUnrolled,
                        ir::For(i, 16, ForKind::kVectorized, ir::Store(c, {r, at}, ir::Load(from, {r, column})))))};
  };
  const auto shuffled = [&](const ir::Func& f) {
    const std::string text = *EmitText({{"kernel", f}}, *ParseTarget("llvm:x86-64-v4"), "ir");
    return text.find("shufflevector") != std::string::npos && text.find("insertelement") == std::string::npos;
  };
  const ir::Func within = func(a, at / 4 * 4 + at % 2);
  EXPECT_TRUE(shuffled(within));
  ExpectSame(within, 0);
  // A window that is not aligned to the vectors, or lanes that reach into two: what is read there might not exist.
  const ir::Buffer odd = F32("odd", {5, 63});
  for (const ir::Func& f : {func(odd, at / 4 * 4), func(a, (at / 4 * 8) % 64)}) {
    EXPECT_FALSE(shuffled(f));
    ExpectSame(f, 0);
  }
}

// c[column][line] = a[line][column], vectors along the lines, the columns unrolled.
ir::Func Transposed(DType dtype, int64_t lanes, int64_t columns, const std::function<Expr(Expr)>& column) {
  const ir::Buffer a = ir::MakeBuffer("a", dtype, {3 * lanes, 2 * lanes + 3}),
                   c = ir::MakeBuffer("c", dtype, {columns, 3 * lanes});
  const Var o = ir::MakeVar("o"), u = ir::MakeVar("u"), l = ir::MakeVar("l");
  const Expr line = Expr(o) * Expr(lanes) + Expr(l);
  const Stmt store = ir::Store(c, {u, line}, ir::Load(a, {line, column(u)}));
  const Stmt square = ir::For(u, columns, ForKind::kUnrolled, ir::For(l, lanes, ForKind::kVectorized, store));
  return {"f", {a, c}, 1, ir::For(o, 3, ForKind::kSerial, square)};
}

TEST(Nest, SquaresAreTransposedInRegisters) {
  const auto loads = [](const ir::Func& f) {
    const std::string text = *EmitText({{"kernel", f}}, *ParseTarget("llvm:x86-64-v3"), "ir");
    size_t n = 0;
    for (size_t at = text.find(" load <"); at != std::string::npos; at = text.find(" load <", at + 1)) ++n;
    return std::pair(n, text.find("insertelement") == std::string::npos);
  };
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kI64, DType::kI8, DType::kBool, DType::kBF16}) {
    for (const int64_t lanes : {2, 4, 8, 16}) {
      SCOPED_TRACE(absl::StrCat(std::string(Name(dtype)), " ", lanes));
      const ir::Func f = Transposed(dtype, lanes, 2 * lanes, [](const Expr& u) { return u + Expr(3); });
      ExpectSame(f, 0);
      if (dtype != DType::kF32 || lanes > 8) continue;
      EXPECT_EQ(loads(f), std::pair(static_cast<size_t>(2 * lanes), true)) << "each line of each square, once";
    }
  }
  // Part of a square, columns that go backward or are not neighbours: nobody else reads the rest of the lines.
  for (const ir::Func& f : {Transposed(DType::kF32, 8, 7, [](const Expr& u) { return u; }),
                            Transposed(DType::kF32, 8, 8, [](const Expr& u) { return Expr(18) - u; }),
                            Transposed(DType::kF32, 8, 8, [](const Expr& u) { return u * Expr(2); }),
                            Transposed(DType::kF32, 8, 8, [](const Expr& u) { return u % Expr(4) + Expr(15); })}) {
    EXPECT_FALSE(loads(f).second);
    ExpectSame(f, 0);
  }
}

TEST(Nest, HorizontalReductions) {
  for (DType t : {DType::kF32, DType::kF64, DType::kI32, DType::kI64, DType::kI8, DType::kU8}) {
    for (ExprKind k : {ExprKind::kAdd, ExprKind::kMul, ExprKind::kMin, ExprKind::kMax}) {
      ir::Buffer a = ir::MakeBuffer("a", t, {4, 48}), s = ir::MakeBuffer("s", t, {4}),
                 r = ir::MakeBuffer("r", t, {1}, ir::Scope::kRegister);
      Var i = ir::MakeVar("i"), o = ir::MakeVar("o"), v = ir::MakeVar("v"), w = ir::MakeVar("w");
      Expr at = Expr(o) * Expr(16) + Expr(v);
      Expr operand = k == ExprKind::kMul ? ir::Select(Expr(v) < Expr(3), ir::Load(a, {i, at}), ir::Const(1, t))
                                         : ir::Load(a, {i, at});
      Stmt in_memory = ir::Seq(
          {ir::Store(s, {i}, ir::Const(1, t)),
           ir::For(o, 3, ForKind::kSerial,
                   ir::For(v, 16, ForKind::kVectorized, ir::Store(s, {i}, ir::Binary(k, ir::Load(s, {i}), operand))))});
      ExpectSame({"f", {a, s}, 1, ir::For(i, 4, ForKind::kParallel, in_memory)}, 1e-5);
      Stmt in_register =
          ir::Alloc(r, ir::Seq({ir::Store(r, {0}, ir::Const(1, t)),
                                ir::For(w, 13, ForKind::kVectorized,
                                        ir::Store(r, {0}, ir::Binary(k, ir::Load(a, {i, w}), ir::Load(r, {0})))),
                                ir::Store(s, {i}, ir::Load(r, {0}))}));
      ExpectSame({"f", {a, s}, 1, ir::For(i, 4, ForKind::kSerial, in_register)}, k == ExprKind::kMul ? 1e-4 : 1e-5);
    }
  }
}

TEST(Nest, ReductionsUnderAMaskAndOfSums) {
  ir::Buffer a = F32("a", {3, 20}), b = F32("b", {3, 20}), s = F32("s", {3});
  Var i = ir::MakeVar("i"), o = ir::MakeVar("o"), v = ir::MakeVar("v");
  Expr at = Expr(o) * Expr(16) + Expr(v), mine = ir::Load(s, {i});
  for (Expr value : {mine + ir::Load(a, {i, at}) * ir::Load(b, {i, at}), ir::Max(mine, ir::Load(a, {i, at})),
                     ir::Min(ir::Load(a, {i, at}), mine), (ir::Load(a, {i, at}) + mine) + ir::Load(b, {i, at}),
                     mine + ir::Float(2)}) {
    Stmt loop = ir::For(o, 2, ForKind::kSerial,
                        ir::For(v, 16, ForKind::kVectorized, ir::If(at < Expr(20), ir::Store(s, {i}, value))));
    ExpectSame(
        {"f", {a, b, s}, 1, ir::For(i, 3, ForKind::kSerial, ir::Seq({ir::Store(s, {i}, ir::Float(0.25)), loop}))});
  }
}

// --- masks: what is not asked for must not be touched

// `elements` floats that end where the mapping ends: the next byte is not readable.
class Guarded {
 public:
  explicit Guarded(int64_t elements) {
    const int64_t page = sysconf(_SC_PAGESIZE), bytes = elements * 4;
    size_ = (bytes + page - 1) / page * page + 2 * page;
    base_ = static_cast<char*>(mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    mprotect(base_, page, PROT_NONE);
    mprotect(base_ + size_ - page, page, PROT_NONE);
    data = reinterpret_cast<float*>(base_ + size_ - page - bytes);
    for (int64_t i = 0; i < elements; ++i) data[i] = static_cast<float>(i + 1);
  }
  ~Guarded() { munmap(base_, size_); }
  float* data;

 private:
  char* base_;
  size_t size_;
};

void RunGuarded(const ir::Func& f, const std::vector<Guarded*>& args, const Target& t) {
  auto compiled = CompileKernels({{"kernel", f}}, t);
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  auto loaded = LoadObject(compiled->code);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  auto symbol = (*loaded)->Symbol("kernel");
  ASSERT_TRUE(symbol.ok());
  std::vector<void*> pointers;
  for (Guarded* g : args) pointers.push_back(g->data);
  SerialLauncher launcher(1);
  temper_call_on_host(reinterpret_cast<temper_kernel>(*symbol), pointers.data(), nullptr, &launcher.base);
}

TEST(Nest, TailsUnderAMaskStayInTheirBuffers) {
  for (const Target& t : TestTargets()) {
    if (!t.cpu()->Has("avx"))
      continue;  // without it the kernel may count on alignment, which a buffer at a page's end lacks
    for (int64_t n : {1, 5, 16, 20, 33}) {
      ir::Buffer a = F32("a", {n}), c = F32("c", {n});
      Var o = ir::MakeVar("o"), v = ir::MakeVar("v");
      Expr at = Expr(o) * Expr(16) + Expr(v);
      Guarded in(n), out(n);
      RunGuarded({"f",
                  {a, c},
                  1,
                  ir::For(o, (n + 15) / 16, ForKind::kSerial,
                          ir::For(v, 16, ForKind::kVectorized,
                                  ir::If(at < Expr(n), ir::Store(c, {at}, ir::Load(a, {at}) * ir::Float(2)))))},
                 {&in, &out}, t);
      for (int64_t i = 0; i < n; ++i) ASSERT_EQ(out.data[i], 2 * in.data[i]) << t.name() << " " << n;
    }
  }
}

TEST(Nest, SelectsNeverLoadTheBranchNotTaken) {
  constexpr int64_t kN = 20;
  for (const Target& t : TestTargets()) {
    if (!t.cpu()->Has("avx")) continue;
    for (ForKind kind : {ForKind::kSerial, ForKind::kVectorized}) {
      for (int64_t shift : {-5, 3, 1000000}) {
        for (int64_t stride : {1, 2, 0}) {
          ir::Buffer a = F32("a", {kN}), c = F32("c", {kN});
          Var v = ir::MakeVar("v");
          // stride 0: every lane asks for the same element, which may not exist.
          Expr at = Expr(v) * Expr(stride) + Expr(shift);
          Expr inside = ir::And(Expr(0) <= at, at < Expr(kN));
          Guarded in(kN), out(kN);
          RunGuarded({"f",
                      {a, c},
                      1,
                      ir::For(v, kN, kind, ir::Store(c, {v}, ir::Select(inside, ir::Load(a, {at}), ir::Float(-1))))},
                     {&in, &out}, t);
          for (int64_t i = 0; i < kN; ++i) {
            const int64_t from = i * stride + shift;
            ASSERT_EQ(out.data[i], from >= 0 && from < kN ? in.data[from] : -1.f)
                << t.name() << " shift " << shift << " stride " << stride;
          }
        }
      }
    }
  }
}

// Of a condition on the row and one on the column, the second is false in all lanes of a register.
TEST(Nest, LanesOfNoRegisterAreReadWhereAMaskIsFalseInAllOfThem) {
  for (const Target& t : TestTargets()) {
    if (!t.cpu()->Has("avx")) continue;
    for (const DType dtype : {DType::kF32, DType::kF64, DType::kI32, DType::kI64, DType::kI8}) {
      for (const int64_t columns : {3, 4, 8, 12}) {
        ir::Buffer a = ir::MakeBuffer("a", dtype, {2, columns}), c = ir::MakeBuffer("c", dtype, {3, columns + 1});
        Var i = ir::MakeVar("i"), v = ir::MakeVar("v");
        const Expr inside = ir::And(Expr(i) < Expr(2), Expr(v) < Expr(columns));
        const Expr value = ir::Select(inside, ir::Load(a, {i, v}), ir::Const(3, dtype));
        const ir::Func f{"f",
                         {a, c},
                         1,
                         ir::For(i, 3, ForKind::kParallel,
                                 ir::For(v, 16, ForKind::kVectorized,
                                         ir::If(Expr(v) < Expr(columns + 1), ir::Store(c, {i, v}, value))))};
        Rng rng(columns);
        EXPECT_TRUE(SameOnTarget(f, RandomArgs(f, rng), t, 0)) << t.name() << " " << Name(dtype) << " " << columns;
      }
    }
  }
}

TEST(Nest, NestedConditionsAndElse) {
  ir::Buffer a = F32("a", {40}), b = F32("b", {40}), c = F32("c", {40});
  Var o = ir::MakeVar("o"), v = ir::MakeVar("v");
  Expr at = Expr(o) * Expr(8) + Expr(v);
  auto set = [&](Expr value) { return ir::Store(c, {at}, value); };
  Stmt inner =
      ir::If(ir::Load(a, {at}) < ir::Float(0), set(ir::Load(b, {at})), ir::If(Expr(v) < Expr(3), set(ir::Float(7))));
  Stmt body = ir::If(ir::Eq(at % Expr(2), Expr(0)), inner,
                     set(ir::Select(Expr(o) < Expr(2), ir::Exp(ir::Load(a, {at})), ir::Load(b, {at}))));
  for (ForKind kind : {ForKind::kSerial, ForKind::kVectorized, ForKind::kUnrolled}) {
    ExpectSame(
        {"f", {a, b, c}, 1, ir::For(o, 5, ForKind::kSerial, ir::For(v, 8, kind, ir::Seq({set(ir::Float(1)), body})))});
  }
}

// A load of which all lanes are masked off takes as long as a hundred others where it would fail. So vectors that lie
// in one operand of a concatenation branch around the others' loads. Conditions at an image's edge stay masks.
TEST(Nest, VectorsWithinOneOperandOfAConcatenationLoadIt) {
  const ir::Buffer a = F32("a", {13}), b = F32("b", {17}), c = F32("c", {18}), out = F32("out", {48});
  const Var o = ir::MakeVar("o"), v = ir::MakeVar("v");
  const Expr at = Expr(o) * Expr(8) + Expr(v);
  const auto branches = [&](const Expr& value) {
    const ir::Func f{"f",
                     {a, b, c, out},
                     1,
                     ir::For(o, 6, ForKind::kSerial, ir::For(v, 8, ForKind::kVectorized, ir::Store(out, {at}, value)))};
    ExpectSame(f, 0);
    const auto text = EmitText({{"kernel", f}}, *ParseTarget("llvm:haswell"), "emitted");
    EXPECT_TRUE(text.ok()) << text.status();
    int count = 0;
    for (size_t place = 0; (place = text->find("\nthen", place)) != std::string::npos; ++place) ++count;
    return count;
  };
  const Expr rest = ir::Select(at < Expr(30), ir::Load(b, {at - Expr(13)}), ir::Load(c, {at - Expr(30)}));
  EXPECT_EQ(branches(ir::Select(at < Expr(13), ir::Load(a, {at}), rest)), 4);
  EXPECT_EQ(branches(ir::Select(at < Expr(13), ir::Load(a, {at}), ir::Float(0))), 0);
}

// --- register tiles

TEST(RegisterTile, MatmulOfManyShapes) {
  struct Case {
    int64_t m, n, k, mr, nr, lanes, unroll;
  };
  for (const Case& c : {Case{14, 32, 5, 14, 32, 16, 1}, Case{30, 64, 8, 14, 32, 16, 4}, Case{13, 48, 6, 6, 16, 8, 2},
                        Case{9, 12, 3, 4, 12, 4, 1}, Case{8, 24, 4, 3, 24, 8, 1}, Case{7, 28, 4, 3, 14, 7, 2},
                        Case{6, 6, 7, 4, 3, 3, 1}}) {
    for (bool parallel : {false, true})
      ExpectSame(MatmulNest(c.m, c.n, c.k, c.mr, c.nr, c.lanes, parallel, c.unroll), 1e-5);
  }
}

int Count(const std::string& text, const std::string& what) {
  int n = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
  return n;
}

// The inner loops of a tile and of the smaller one for the last rows: one multiply-add for each vector of them, no
// vector on the stack.
TEST(RegisterTile, StaysInRegisters) {
  struct Case {
    const char* target;
    int64_t mr, nr, lanes;
  };
  for (const Case& c :
       {Case{"llvm:x86-64-v4", 14, 32, 16}, Case{"llvm:znver4", 14, 32, 16}, Case{"llvm:icelake-server", 6, 64, 16},
        Case{"llvm:x86-64-v4", 28, 16, 16}, Case{"llvm:haswell", 6, 16, 8}, Case{"llvm:znver3", 4, 24, 8}}) {
    SCOPED_TRACE(std::string(c.target) + " " + std::to_string(c.mr) + "x" + std::to_string(c.nr));
    auto text = EmitText({{"kernel", MatmulNest(c.mr * 4 + c.mr / 2, c.nr * 4, 64, c.mr, c.nr, c.lanes, true)}},
                         *ParseTarget(c.target), "asm");
    ASSERT_TRUE(text.ok()) << text.status();
    EXPECT_EQ(Count(*text, "vfmadd"), (c.mr + c.mr / 2) * c.nr / c.lanes);
    for (const char* reg : {"zmm", "ymm"}) {
      size_t line = 0;
      while ((line = text->find(reg, line)) != std::string::npos) {
        const size_t begin = text->rfind('\n', line) + 1, end = text->find('\n', line);
        EXPECT_EQ(text->substr(begin, end - begin).find("rsp"), std::string::npos)
            << "spill: " << text->substr(begin, end - begin);
        line = end;
      }
    }
    EXPECT_EQ(Count(*text, c.lanes == 16 ? "%ymm" : "%zmm"), 0);
  }
}

TEST(RegisterTile, RowsWithTheirOwnBasesAreHoisted) {
  // Convolution's rows: row r of the image of width 7 starts at (r / 7) * 90 + r % 7 * 10.
  ir::Buffer a = F32("a", {7, 9, 10}), b = F32("b", {3, 10, 16}), c = F32("c", {49, 16}),
             acc = F32("acc", {7, 16}, ir::Scope::kRegister);
  Var t = ir::MakeVar("t"), i = ir::MakeVar("i"), v = ir::MakeVar("v"), kw = ir::MakeVar("kw"), k = ir::MakeVar("k"),
      zi = ir::MakeVar("zi"), zv = ir::MakeVar("zv"), oi = ir::MakeVar("oi"), ov = ir::MakeVar("ov");
  Expr row = Expr(t) * Expr(7) + Expr(i);
  Stmt init =
      ir::For(zi, 7, ForKind::kUnrolled, ir::For(zv, 16, ForKind::kVectorized, ir::Store(acc, {zi, zv}, ir::Float(0))));
  Stmt update = ir::Store(
      acc, {i, v},
      ir::Load(acc, {i, v}) + ir::Load(a, {row / Expr(7), row % Expr(7) + Expr(kw), k}) * ir::Load(b, {kw, k, v}));
  Stmt reduce = ir::For(kw, 3, ForKind::kSerial,
                        ir::For(k, 10, ForKind::kSerial,
                                ir::For(i, 7, ForKind::kUnrolled, ir::For(v, 16, ForKind::kVectorized, update))));
  Stmt out = ir::For(
      oi, 7, ForKind::kUnrolled,
      ir::For(ov, 16, ForKind::kVectorized,
              ir::Store(c, {Expr(t) * Expr(7) + Expr(oi), ov}, ir::Max(ir::Load(acc, {oi, ov}), ir::Float(0)))));
  ir::Func f{"f", {a, b, c}, 1, ir::For(t, 7, ForKind::kParallel, ir::Alloc(acc, ir::Seq({init, reduce, out})))};
  ExpectSame(f);
  // No division of the rows is left in the loop that multiplies: it would be a multiplication and shifts.
  auto text = EmitText({{"kernel", f}}, *ParseTarget("llvm:x86-64-v4"), "asm");
  ASSERT_TRUE(text.ok()) << text.status();
  const size_t fma = text->find("vfmadd");
  ASSERT_NE(fma, std::string::npos);
  const size_t begin = text->rfind("\n.LBB", fma), end = text->find("\tj", fma);
  const std::string loop = text->substr(begin, end - begin);
  EXPECT_EQ(Count(loop, "vfmadd"), 7) << loop;
  for (const char* op : {"imul", "mulq", "mulx", "shr", "sar"}) EXPECT_EQ(Count(loop, op), 0) << loop;
}

TEST(RegisterTile, ScalarAndPartialAccessesToVectorElements) {
  ir::Buffer a = F32("a", {2, 16}), c = F32("c", {2, 16}), d = F32("d", {2, 8}),
             r = F32("r", {2, 16}, ir::Scope::kRegister);
  Var i = ir::MakeVar("i"), v = ir::MakeVar("v"), w = ir::MakeVar("w"), x = ir::MakeVar("x"), y = ir::MakeVar("y"),
      u = ir::MakeVar("u"), q = ir::MakeVar("q");
  Stmt fill = ir::For(i, 2, ForKind::kUnrolled,
                      ir::For(v, 16, ForKind::kVectorized, ir::Store(r, {i, v}, ir::Load(a, {i, v}))));
  Stmt half = ir::For(w, 8, ForKind::kVectorized,
                      ir::Store(r, {1, Expr(w) + Expr(4)}, ir::Load(r, {0, Expr(w) * Expr(2)}) + ir::Load(r, {0, 3})));
  Stmt scalar = ir::For(u, 5, ForKind::kUnrolled, ir::Store(r, {0, u}, ir::Load(r, {1, Expr(15) - Expr(u)})));
  Stmt shuffled = ir::For(q, 8, ForKind::kVectorized,
                          ir::Store(d, {1, q}, ir::Load(r, {1, Expr(q) / Expr(2) + Expr(q) % Expr(2) * Expr(7)})));
  Stmt masked = ir::For(y, 16, ForKind::kVectorized, ir::If(Expr(9) < Expr(y), ir::Store(r, {0, y}, ir::Float(3))));
  Stmt out = ir::For(
      x, 32, ForKind::kUnrolled,
      ir::Store(c, {Expr(x) / Expr(16), Expr(x) % Expr(16)}, ir::Load(r, {Expr(x) / Expr(16), Expr(x) % Expr(16)})));
  Stmt zero = ir::Seq({ir::Store(d, {0, 0}, ir::Load(r, {1, 7})), ir::Store(d, {0, 1}, ir::Load(r, {0, 1}))});
  ExpectSame({"f", {a, c, d}, 2, ir::Alloc(r, ir::Seq({fill, half, scalar, masked, shuffled, zero, out}))});
}

// --- refusals

absl::Status CompileStatus(const ir::Func& f) { return CompileKernels({{"kernel", f}}, HostTarget()).status(); }

TEST(Refusal, NamesWhatIsWrong) {
  ir::Buffer a = F32("a", {8}), c = F32("c", {8}), r = F32("r", {8}, ir::Scope::kRegister);
  Var i = ir::MakeVar("i");
  auto alloc = [&](Stmt s) { return ir::Func{"f", {a, c}, 1, ir::Alloc(r, std::move(s))}; };
  absl::Status s = CompileStatus(alloc(ir::For(i, 8, ForKind::kSerial, ir::Store(r, {i}, ir::Load(a, {i})))));
  EXPECT_EQ(s.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(s.message().find("r has the index"), std::string::npos) << s;
  s = CompileStatus(alloc(ir::Store(r, {9}, ir::Float(0))));
  EXPECT_NE(s.message().find("out of range"), std::string::npos) << s;
  s = CompileStatus(alloc(ir::For(i, 8, ForKind::kParallel, ir::Store(c, {i}, ir::Load(r, {0})))));
  EXPECT_NE(s.message().find("across a parallel loop"), std::string::npos) << s;
  s = CompileStatus(
      {"f",
       {a, c},
       1,
       ir::For(i, 8, ForKind::kVectorized, ir::Store(c, {0}, ir::Float(1) / (ir::Load(c, {0}) + ir::Load(a, {i}))))});
  EXPECT_EQ(s.code(), absl::StatusCode::kUnimplemented) << s;
  s = CompileStatus({"f", {a, c}, 1, ir::For(i, 100000, ForKind::kUnrolled, ir::Store(c, {0}, ir::Float(1)))});
  EXPECT_EQ(s.code(), absl::StatusCode::kResourceExhausted) << s;
  s = CompileStatus({"f", {a, c}, 1, ir::BlockStmt({"b", {}, {}, Expr(), Expr()}, c, {0}, ir::Float(1))});
  EXPECT_EQ(s.code(), absl::StatusCode::kInvalidArgument) << s;
  Target cuda = HostTarget();
  cuda.generator = "cuda";
  EXPECT_EQ(CompileKernels({}, cuda).status().code(), absl::StatusCode::kUnimplemented);
}

TEST(Module, SeveralKernelsAreLoadedTogetherAndApart) {
  ir::Buffer c = F32("c", {4});
  auto store = [&](double v) {
    Var i = ir::MakeVar("i");
    return ir::Func{"f", {c}, 1, ir::For(i, 4, ForKind::kVectorized, ir::Store(c, {i}, ir::Float(v)))};
  };
  auto both = CompileKernels({{"one", store(1)}, {"two", store(2)}}, HostTarget());
  auto other = CompileKernels({{"one", store(3)}}, HostTarget());
  ASSERT_TRUE(both.ok() && other.ok());
  EXPECT_EQ(both->kernels[1].symbol, "two");
  EXPECT_FALSE(CompileKernels({{"one", store(1)}, {"one", store(2)}}, HostTarget()).ok());
  auto a = LoadObject(both->code), b = LoadObject(other->code);
  ASSERT_TRUE(a.ok() && b.ok());
  auto first = [](LoadedModule& m, const char* name) {
    float out[16] = {};
    void* args[] = {out};
    SerialLauncher launcher(1);
    temper_call_on_host(reinterpret_cast<temper_kernel>(*m.Symbol(name)), args, nullptr, &launcher.base);
    return out[3];
  };
  EXPECT_EQ(first(**a, "one"), 1);
  EXPECT_EQ(first(**b, "one"), 3);
  a->reset();
  EXPECT_EQ(first(**b, "one"), 3);
  EXPECT_EQ((*b)->Symbol("two").status().code(), absl::StatusCode::kNotFound);
}

TEST(Module, TheSameInputGivesTheSameBytes) {
  auto once = [] {
    return CompileKernels({{"kernel", MatmulNest(30, 64, 32, 14, 32, 16, true)}}, *ParseTarget("llvm:x86-64-v4"))->code;
  };
  EXPECT_EQ(once(), once());
}

TEST(Module, RefusesWhatIsNoKernel) {
  EXPECT_FALSE(LoadObject("").ok());
  EXPECT_FALSE(LoadObject("this is not an object file at all, only a line of text").ok());
  auto compiled = CompileKernels({{"kernel", MatmulNest(4, 16, 4, 2, 16, 16, false)}}, HostTarget());
  ASSERT_TRUE(compiled.ok());
  EXPECT_FALSE(LoadObject(compiled->code.substr(0, compiled->code.size() / 2)).ok());
}

TEST(Module, RefusesSymbolsItDoesNotKnow) {
  Plan plan;
  plan.variants.emplace_back().steps.push_back({"step", "no_such_kernel"});
  auto object = CompilePlan(plan, HostArch());
  ASSERT_TRUE(object.ok()) << object.status();
  EXPECT_NE(LoadObject(*object).status().message().find("no_such_kernel"), std::string::npos);
}

TEST(Module, ThreadsCompileAtOnce) {
  std::vector<std::string> objects(4);
  std::vector<std::thread> threads;
  for (std::string& object : objects) {
    threads.emplace_back([&object] {
      for (int i = 0; i < 3; ++i)
        object = CompileKernels({{"kernel", MatmulNest(9, 32, 8, 4, 16, 16, true)}}, HostTarget())->code;
    });
  }
  for (std::thread& t : threads) t.join();
  for (const std::string& object : objects) EXPECT_EQ(object, objects[0]);
  EXPECT_FALSE(objects[0].empty());
}

TEST(Module, SineAndCosineOfOneArgumentLoad) {
  ir::Buffer a = F32("a", {4}), c = F32("c", {4}), d = F32("d", {4});
  Var i = ir::MakeVar("i");
  Expr x = ir::Load(a, {i});
  ExpectSame(
      {"f",
       {a, c, d},
       2,
       ir::For(
           i, 4, ForKind::kSerial,
           ir::Seq({ir::Store(c, {i}, ir::Unary(ExprKind::kSin, x)),
                    ir::Store(d, {i}, ir::Unary(ExprKind::kCos, x) + ir::Binary(ExprKind::kPow, ir::Float(2), x))}))},
      1e-6);
}

TEST(Vectors, WhatIsNotReadIsNotAddressedOutsideTheBuffer) {
  // A row of zeros before the first row and behind the last: those would be loads from other pages.
  const ir::Buffer a = F32("a", {4, 16}), c = F32("c", {6, 16});
  const Var i = ir::MakeVar("i"), v = ir::MakeVar("v");
  const Expr row = Expr(i) - Expr(1);
  const auto padded = [&](bool may_be_outside) {
    const Expr inside = may_be_outside ? And(Expr(0) <= row, row < Expr(4)) : Expr(i) < Expr(3);
    const Expr value = ir::Select(inside, ir::Load(a, {may_be_outside ? row : Expr(i) % Expr(4), v}), ir::Float(0));
    return ir::Func{"f",
                    {a, c},
                    1,
                    ir::For(i, 6, ForKind::kSerial, ir::For(v, 16, ForKind::kVectorized, ir::Store(c, {i, v}, value)))};
  };
  ExpectSame(padded(true), 0);
  ExpectSame(padded(false), 0);
  const Target t = *ParseTarget("llvm:x86-64-v4");
  const auto outside = EmitText({{"kernel", padded(true)}}, t, "ir");
  const auto within = EmitText({{"kernel", padded(false)}}, t, "ir");
  ASSERT_TRUE(outside.ok() && within.ok());
  const std::regex chosen("select i1 [^,]*, ptr ");
  EXPECT_TRUE(std::regex_search(*outside, chosen)) << *outside;
  EXPECT_FALSE(std::regex_search(*within, chosen)) << *within;
}

TEST(Module, PrefetchesComeToAllCaches) {
  const ir::Buffer a = F32("a", {64}), c = F32("c", {64});
  const Var i = ir::MakeVar("i");
  const ir::Func f = {"f",
                      {a, c},
                      1,
                      ir::For(i, 64, ForKind::kSerial,
                              ir::Seq({ir::Prefetch(a, {Expr(i) + 16}), ir::Prefetch(a, {Expr(i) + 512}),
                                       ir::Store(c, {i}, ir::Load(a, {i}))}))};
  const auto text = EmitText({{"kernel", f}}, *ParseTarget("llvm:x86-64-v4"), "asm");
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_NE(text->find("prefetcht0"), std::string::npos);
  EXPECT_EQ(text->find("prefetcht1"), std::string::npos);
  ExpectSame(f, 0);
}

TEST(Module, WhatIsFetchedToBeWrittenIsAskedForAlone) {
  const ir::Buffer a = F32("a", {64}), c = F32("c", {64});
  const Var i = ir::MakeVar("i");
  const ir::Func f = {"f",
                      {a, c},
                      1,
                      ir::For(i, 64, ForKind::kSerial,
                              ir::Seq({ir::Prefetch(c, {Expr(i) + 16}, true), ir::Store(c, {i}, ir::Load(a, {i}))}))};
  const auto has = [&](const char* target) {
    const auto text = EmitText({{"kernel", f}}, *ParseTarget(target), "asm");
    EXPECT_TRUE(text.ok()) << text.status();
    return text.ok() && text->find("prefetchw") != std::string::npos;
  };
  EXPECT_TRUE(has("llvm:znver3"));
  EXPECT_TRUE(has("llvm:skylake-avx512"));
  EXPECT_FALSE(has("llvm:x86-64-v3")) << "some of them do not know the instruction";
  ExpectSame(f, 0);
}

TEST(Module, TextForPeople) {
  ir::Func f = MatmulNest(4, 16, 4, 2, 16, 16, false);
  // Each kind of text is of the kernel by its name, and for the target that was asked for.
  for (const auto& [name, widest, wider] :
       {std::tuple("llvm:x86-64-v3", "%ymm", "%zmm"), std::tuple("llvm:x86-64-v4", "%zmm", "<32 x float>")}) {
    const Target t = *ParseTarget(name);
    const auto ir = EmitText({{"kernel", f}}, t, "ir"), assembly = EmitText({{"kernel", f}}, t, "asm");
    ASSERT_TRUE(ir.ok() && assembly.ok()) << ir.status() << assembly.status();
    EXPECT_THAT(*ir, HasSubstr("define i32 @kernel("));
    EXPECT_THAT(*assembly, HasSubstr("\nkernel:\n"));
    EXPECT_THAT(*assembly, HasSubstr(widest));
    EXPECT_THAT(*assembly, Not(HasSubstr(wider)));
  }
  EXPECT_EQ(EmitText({{"kernel", f}}, HostTarget(), "wasm").status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace temper
