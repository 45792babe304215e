// The code that is generated for a few nests is that of kCodegenVersion: records of another version are of other code,
// so that code that changes while the version stays would make them lie. Held are the nests, and a hash of what Temper
// emits for each before LLVM's own passes have it, which a patch of LLVM does not change.
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/hash.h"
#include "compiler/codegen/codegen.h"
#include "tests/golden.h"
#include "tests/schedule/programs.h"

namespace temper {
namespace {

using ir::Expr, ir::ForKind, ir::Var;

ir::Func Lowered(const Schedule& s) {
  absl::StatusOr<ir::Func> lowered = Lower(s.func());
  EXPECT_TRUE(s.status().ok() && lowered.ok()) << s.status() << lowered.status();
  return lowered.ok() ? *std::move(lowered) : ir::Func();
}

// Register tiles, panels in parallel, both edges, an activation through a tile in memory.
ir::Func Tiles() {
  Schedule s(PackedMatmul(14, 43, 48, 16, Silu));
  ScheduleTiles(s, 6, 16, 4);
  return Lowered(s);
}
// Reductions and functions, in loops as they come.
ir::Func Rows() { return Lowered(Schedule(Softmax(3, 19))); }
// Conditions and divisions.
ir::Func Padded() { return Lowered(Schedule(PaddedConv(4, 5, 3, 8))); }

// c[i] = bf16(a[b[i]]): a gather, and a type without arithmetic, in vectors.
ir::Func Gathered() {
  const ir::Buffer a = ir::MakeBuffer("a", DType::kF32, {100}), b = ir::MakeBuffer("b", DType::kI32, {32}),
                   c = ir::MakeBuffer("c", DType::kBF16, {32});
  const Var o = ir::MakeVar("o"), v = ir::MakeVar("v");
  const Expr i = Expr(o) * Expr(8) + Expr(v);
  const ir::Stmt store =
      ir::Store(c, {i}, ir::Cast(ir::Load(a, {ir::Cast(ir::Load(b, {i}), DType::kI64)}), DType::kBF16));
  return {"gathered", {a, b, c}, 1, ir::For(o, 4, ForKind::kParallel, ir::For(v, 8, ForKind::kVectorized, store))};
}

// c[i][j] = a[j][i], in squares of vectors.
ir::Func TransposedRows() {
  const ir::Buffer a = ir::MakeBuffer("a", DType::kF32, {16, 8}), c = ir::MakeBuffer("c", DType::kF32, {8, 16});
  const Var o = ir::MakeVar("o"), i = ir::MakeVar("i"), v = ir::MakeVar("v");
  const Expr j = Expr(o) * Expr(8) + Expr(v);
  const ir::Stmt square =
      ir::For(i, 8, ForKind::kUnrolled, ir::For(v, 8, ForKind::kVectorized, ir::Store(c, {i, j}, ir::Load(a, {j, i}))));
  return {"transposed", {a, c}, 1, ir::For(o, 2, ForKind::kParallel, square)};
}

struct Section {
  std::string hash, nest;
};
using Sections = std::map<std::string, Section>;  // by kernel and target

std::string TextOf(const std::string& id, const Sections& sections) {
  std::string text = absl::StrCat("codegen ", id, "\n");
  for (const auto& [name, s] : sections) absl::StrAppend(&text, "== ", name, ": emitted code ", s.hash, "\n", s.nest);
  return text;
}

// The inverse of TextOf.
Sections Parsed(const std::string& text, std::string* id) {
  Sections sections;
  const std::vector<std::string> parts = absl::StrSplit(absl::StripSuffix(text, "\n"), "\n== ");
  *id = std::string(absl::StripPrefix(parts[0], "codegen "));
  for (size_t i = 1; i < parts.size(); ++i) {
    const std::pair<std::string, std::string> head_body = absl::StrSplit(parts[i], absl::MaxSplits('\n', 1));
    const std::pair<std::string, std::string> name_hash = absl::StrSplit(head_body.first, ": emitted code ");
    sections[name_hash.first] = {name_hash.second, head_body.second + "\n"};
  }
  return sections;
}

// The kernels of which both have the same nest and other code.
std::vector<std::string> Changed(const Sections& before, const Sections& now) {
  std::vector<std::string> changed;
  for (const auto& [name, s] : now) {
    const auto old = before.find(name);
    if (old != before.end() && old->second.nest == s.nest && old->second.hash != s.hash) changed.push_back(name);
  }
  return changed;
}

Sections Current() {
  Sections sections;
  for (const char* target : {"llvm:x86-64-v3", "llvm:x86-64-v4"}) {
    for (const auto& [name, nest] :
         {std::pair("tiles", Tiles()), std::pair("rows", Rows()), std::pair("padded", Padded()),
          std::pair("gathered", Gathered()), std::pair("transposed", TransposedRows())}) {
      const absl::StatusOr<std::string> code = EmitText({{"kernel", nest}}, *ParseTarget(target), "emitted");
      EXPECT_TRUE(code.ok()) << code.status();
      if (code.ok()) sections[absl::StrCat(name, " for ", target)] = {HashText(StableHash(*code)), ir::Text(nest)};
    }
  }
  return sections;
}

TEST(GoldenCode, IsThatOfItsVersion) {
  const std::string id = CodegenId(*ParseTarget("llvm:x86-64-v3"));
  const Sections now = Current();
  std::string held_id;
  const Sections held = Parsed(GoldenText("codegen", "kernels"), &held_id);
  if (held_id == id) {
    // Not even TEMPER_UPDATE_GOLDEN makes this good.
    for (const std::string& name : Changed(held, now)) {
      FAIL() << "other code is generated for the same nest (" << name
             << "): raise kCodegenVersion in compiler/codegen/codegen.h, then run this with TEMPER_UPDATE_GOLDEN=1";
    }
  }
  EXPECT_TRUE(MatchesGolden(TextOf(id, now), "codegen", "kernels"));
}

TEST(GoldenCode, TheTextReadsBackAndAChangeIsFound) {
  const Sections now = Current();
  std::string id;
  Sections other = Parsed(TextOf("7-llvm0", now), &id);
  EXPECT_EQ(id, "7-llvm0");
  EXPECT_EQ(TextOf(id, other), TextOf(id, now));
  EXPECT_TRUE(Changed(other, now).empty());
  const std::string first = now.begin()->first;
  other[first].hash = "0";
  EXPECT_EQ(Changed(other, now), std::vector<std::string>{first});
  other[first].nest += "another";
  EXPECT_TRUE(Changed(other, now).empty()) << "of another nest it may be other code";
}

}  // namespace
}  // namespace temper
