// Double buffering and pipelines: what a step needs is made while steps before it run.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "compiler/schedule/rewrites/placement.h"
#include "compiler/schedule/rewrites/rewrites.h"

namespace temper::rewrites {

using namespace nest;  // NOLINT: this file is about nests

namespace {

constexpr int64_t kVersions = 2;

// The dimension of `buffer` that tells the steps of `loop` apart: all that touches the buffer in a step stays at the
// loop's own value there.
absl::StatusOr<size_t> StepDimension(const Stmt& loop, const Buffer& buffer) {
  ir::Simplifier simplifier;
  simplifier.Bind(loop->var, loop->extent);
  BindLoopsIn(loop->body, simplifier);
  std::vector<std::vector<Expr>> accesses;
  const auto add = [&](const std::vector<Expr>& indices, const StmtNode& block) {
    accesses.emplace_back();
    for (const Expr& e : indices) accesses.back().push_back(ir::Substitute(e, BindingsOf(block)));
  };
  for (const Stmt& block : BlocksIn(loop)) {
    if (block->buffer == buffer) add(block->indices, *block);
    for (const Expr& load : ReadsOf(*block, buffer)) add(load->args, *block);
  }
  for (size_t d = 0; d < buffer->shape.size(); ++d) {
    const bool steps = std::ranges::all_of(accesses, [&](const std::vector<Expr>& indices) {
      const Expr e = simplifier.Simplify(indices[d]);
      return e->kind == ir::ExprKind::kVar && e->var == loop->var;
    });
    if (steps) return d;
  }
  return Refuse(absl::StrCat("no dimension of '", buffer->name, "' is the step of loop '", loop->var->name, "'"));
}

// Of the loop's children, those that make scratch for child number `at` alone, and their buffers.
struct Makers {
  std::vector<size_t> places;
  std::vector<Buffer> buffers;
};

absl::StatusOr<Makers> MakersFor(const Func& f, const Stmt& loop, const std::vector<Stmt>& children, size_t at) {
  Makers makers;
  const auto is_for = [&](const Stmt& child, const Buffer& buffer) {
    const size_t readers = ReadersOf(f.body, buffer).size();
    return !IsParam(f, buffer) && WritersOf(child, buffer).size() == WritersOf(f.body, buffer).size() && readers > 0 &&
           ReadersOf(children[at], buffer).size() == readers;
  };
  for (const Stmt& block : BlocksIn(children[at])) {
    for (const Buffer& buffer : BuffersRead(*block)) {
      if (WritersOf(loop, buffer).empty()) continue;
      const auto maker =
          std::ranges::find_if(children, [&](const Stmt& child) { return !WritersOf(child, buffer).empty(); });
      const size_t place = static_cast<size_t>(maker - children.begin());
      if (place >= at || !is_for(*maker, buffer))
        return Refuse(absl::StrCat("it reads '", buffer->name, "', which other parts of the loop touch too"));
      for (const Stmt& made_of : BlocksIn(*maker)) {
        for (const Buffer& input : BuffersRead(*made_of)) {
          if (!WritersOf(loop, input).empty())
            return Refuse(absl::StrCat("'", made_of->block.name, "' reads '", input->name, "', which the loop makes"));
        }
      }
      if (std::ranges::count(makers.places, place) == 0) makers.places.push_back(place);
      makers.buffers.push_back(buffer);
    }
  }
  return makers;
}

// `s` as the loop's step so many later runs it, if there is one.
Stmt StepAhead(const Stmt& s, const Stmt& loop, int64_t steps = 1) {
  const Expr next = Expr(loop->var) + Expr(steps);
  return EditBlocks(ir::Substitute(s, {{loop->var, next}}),
                    [&](StmtNode& block) { AddConjunct(block, next < Expr(loop->extent)); });
}

// Dimension `d` of the buffer keeps so many versions.
Stmt Fold(const Stmt& root, const Buffer& buffer, size_t d, int64_t versions) {
  Shape shape = buffer->shape;
  shape[d] = versions;
  const Buffer folded = ir::MakeBuffer(buffer->name, buffer->dtype, std::move(shape), buffer->scope);
  return ReplaceBuffer(root, buffer, folded, [&](std::vector<Expr> indices) {
    indices[d] = versions == 1 ? Expr(0) : indices[d] % Expr(versions);
    return indices;
  });
}

// A serial loop, and in its body the nest that makes scratch for what comes later there.
struct Stage {
  Path path;  // to the loop
  std::vector<Stmt> children;
  size_t at;  // of them, the nest
  Buffer buffer;
  size_t step;  // the dimension that tells the loop's steps apart

  const Stmt& loop() const { return path.back(); }
};

absl::StatusOr<Stage> StageOf(const Func& f, const std::string& block, const Var& loop) {
  TEMPER_ASSIGN_OR_RETURN(Path path, FindLoop(f, loop));
  TEMPER_ASSIGN_OR_RETURN(const Path to_block, FindBlock(f, block));
  const Stmt s = path.back();
  const Buffer buffer = to_block.back()->buffer;
  if (s->for_kind != ir::ForKind::kSerial) return Refuse("only a serial loop has steps one after another");
  const std::vector<Stmt> children = Children(s->body);
  const auto holder =
      std::ranges::find_if(children, [&](const Stmt& child) { return Contains(child, to_block.back().get()); });
  if (holder == children.end()) return Refuse("the block is not below the loop");
  const size_t at = static_cast<size_t>(holder - children.begin());
  if (IsParam(f, buffer) || BlocksIn(*holder).size() != 1 || WritersOf(f.body, buffer).size() != 1)
    return Refuse(
        absl::StrCat("'", buffer->name, "' is not scratch that this block alone makes, in a nest of its own"));
  for (const Stmt& reader : ReadersOf(f.body, buffer)) {
    const bool later =
        std::any_of(holder + 1, children.end(), [&](const Stmt& c) { return Contains(c, reader.get()); });
    if (!later) return Refuse(absl::StrCat("its reader '", reader->block.name, "' does not come later in the loop"));
  }
  TEMPER_ASSIGN_OR_RETURN(const size_t step, StepDimension(s, buffer));
  return Stage{std::move(path), children, at, buffer, step};
}

}  // namespace

absl::StatusOr<Func> DoubleBuffer(const Func& f, const std::string& block, const Var& loop) {
  TEMPER_ASSIGN_OR_RETURN(const Stage stage, StageOf(f, block, loop));
  const Stmt s = stage.loop();
  const std::vector<Stmt>& children = stage.children;
  const size_t at = stage.at;
  TEMPER_ASSIGN_OR_RETURN(const Makers makers, MakersFor(f, s, children, at));
  std::vector<std::pair<Buffer, size_t>> once;
  for (const Buffer& made : makers.buffers) {
    TEMPER_ASSIGN_OR_RETURN(const size_t d, StepDimension(s, made));
    once.emplace_back(made, d);
  }

  // What makes the block's operands comes first in the loop, so that they arrive while the rest runs; the block last.
  std::unordered_set<std::string> names;
  for (const Stmt& each : BlocksIn(f.body)) names.insert(each->block.name);
  std::vector<Stmt> before, first, rest;
  const auto run_ahead = [&](const Stmt& child, std::vector<Stmt>& ahead) {
    before.push_back(ir::Substitute(CopyNest(child, "_first", names).nest, {{loop, Expr(0)}}));
    ahead.push_back(StepAhead(child, s));
  };
  for (size_t i = 0; i < children.size(); ++i) {
    if (i == at) continue;
    if (std::ranges::count(makers.places, i) > 0) {
      run_ahead(children[i], first);
    } else {
      rest.push_back(children[i]);
    }
  }
  run_ahead(children[at], rest);
  first.insert(first.end(), rest.begin(), rest.end());
  before.push_back(ir::For(s->var, s->extent, s->for_kind, ir::Seq(std::move(first))));

  Func result = f;
  result.body = Fold(Replace(stage.path, ir::Seq(std::move(before))), stage.buffer, stage.step, kVersions);
  for (const auto& [made, d] : once) result.body = Fold(result.body, made, d, 1);
  TEMPER_RETURN_IF_ERROR(CheckAnnotations(result.body));
  return result;
}

absl::StatusOr<Func> Pipeline(const Func& f, const std::vector<std::string>& blocks, const Var& loop, int depth) {
  if (depth < 2) return Refuse("there are no steps ahead");
  std::vector<Stage> stages;
  for (const std::string& block : blocks) {
    TEMPER_ASSIGN_OR_RETURN(Stage stage, StageOf(f, block, loop));
    for (const Buffer& read : BuffersRead(*FindBlock(f, block)->back())) {
      if (!IsParam(f, read)) return Refuse(absl::StrCat("'", block, "' reads '", read->name, "', which is made here"));
    }
    if (stage.buffer->scope != ir::Scope::kShared) return Refuse(absl::StrCat("'", block, "' is not in shared memory"));
    stages.push_back(std::move(stage));
  }
  if (stages.empty()) return Refuse("no blocks are named");
  const Stmt s = stages.front().loop();
  const int64_t ahead = depth - 1;
  const auto copies = [&](const Stage& stage) {
    return EditBlocks(stage.children[stage.at], [&](StmtNode& block) { block.ahead = static_cast<int>(ahead); });
  };
  std::unordered_set<std::string> names;
  for (const Stmt& each : BlocksIn(f.body)) names.insert(each->block.name);
  std::vector<Stmt> before, body;
  for (int64_t step = 0; step < std::min(ahead, s->extent); ++step) {
    for (const Stage& stage : stages)
      before.push_back(ir::Substitute(CopyNest(copies(stage), "_first", names).nest, {{loop, Expr(step)}}));
  }
  for (const Stage& stage : stages) body.push_back(StepAhead(copies(stage), s, ahead));
  const std::vector<Stmt>& children = stages.front().children;
  for (size_t i = 0; i < children.size(); ++i) {
    if (std::ranges::none_of(stages, [&](const Stage& stage) { return stage.at == i; })) body.push_back(children[i]);
  }
  before.push_back(ir::For(s->var, s->extent, s->for_kind, ir::Seq(std::move(body))));
  Func result = f;
  result.body = Replace(stages.front().path, ir::Seq(std::move(before)));
  for (const Stage& stage : stages) result.body = Fold(result.body, stage.buffer, stage.step, depth);
  TEMPER_RETURN_IF_ERROR(CheckAnnotations(result.body));
  return result;
}

}  // namespace temper::rewrites
