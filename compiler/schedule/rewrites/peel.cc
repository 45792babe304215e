// Peel: the first and last iterations of a loop on their own, so that what holds only between them is decided there.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "compiler/schedule/rewrites/rewrites.h"

namespace temper::rewrites {

using namespace nest;  // NOLINT: this file is about nests

namespace {

// Scratch that no iteration of `loop` leaves to another: used below it alone, and no reduction along it.
std::vector<Buffer> OwnScratch(const Func& f, const Stmt& loop) {
  std::vector<Buffer> own;
  for (const Stmt& block : BlocksIn(loop)) {
    const Buffer& b = block->buffer;
    if (IsParam(f, b) || std::count(own.begin(), own.end(), b) > 0) continue;
    const std::vector<Stmt> writers = WritersOf(loop, b);
    const bool carried = std::any_of(writers.begin(), writers.end(),
                                     [&](const Stmt& w) { return ReduceLoops(*w).count(loop->var.get()) > 0; });
    if (!carried && writers.size() == WritersOf(f.body, b).size() &&
        ReadersOf(loop, b).size() == ReadersOf(f.body, b).size()) {
      own.push_back(b);
    }
  }
  return own;
}

// The iterations [begin, end) of `loop` as a loop of its own.
Stmt Part(const Stmt& loop, const char* name, int64_t begin, int64_t end) {
  Var var = ir::MakeVar(absl::StrCat(loop->var->name, name));
  return ir::For(var, end - begin, loop->for_kind,
                 ir::Substitute(loop->body, {{loop->var, begin == 0 ? Expr(var) : Expr(var) + Expr(begin)}}));
}

// `part` with scratch of its own, so that registers can be allocated to each part; the new buffers join `made`.
Stmt WithOwnScratch(Stmt part, const std::vector<Buffer>& scratch, std::vector<Buffer>& made) {
  for (const Buffer& from : scratch) {
    made.push_back(ir::MakeBuffer(from->name, from->dtype, from->shape, from->scope));
    part = ReplaceBuffer(part, from, made.back(), [](const std::vector<Expr>& indices) { return indices; });
  }
  return part;
}

}  // namespace

absl::StatusOr<Result<Peeled>> Peel(const Func& f, const Var& loop, int64_t first, int64_t last) {
  TEMPER_ASSIGN_OR_RETURN(Path path, FindLoop(f, loop));
  const Stmt s = path.back();
  if (first < 0 || last < 0 || first + last > s->extent) {
    return Refuse(absl::StrCat("a loop of ", s->extent, " iterations has no ", first, " first and ", last, " last"));
  }
  if (s->for_kind == ir::ForKind::kVectorized || ir::IsConcurrent(s->for_kind))
    return Refuse("only loops that run one iteration after another can be peeled");
  for (const Stmt& block : BlocksIn(s)) {
    if (block->block.init && ReduceLoops(*block).count(loop.get()) > 0) {
      return Refuse(absl::StrCat("it reduces in block '", block->block.name,
                                 "', whose initialisation has to be decomposed first"));
    }
  }
  const std::vector<Buffer> scratch = OwnScratch(f, s);
  const int64_t cuts[] = {0, first, s->extent - last, s->extent};
  std::unordered_set<std::string> names;
  for (const Stmt& block : BlocksIn(f.body)) names.insert(block->block.name);

  Result<Peeled> result{f, {}};
  std::vector<Stmt> parts;
  std::vector<Buffer> made;
  constexpr const char* kNames[] = {".first", ".middle", ".last"};
  for (size_t i = 0; i < 3; ++i) {
    if (cuts[i] == cuts[i + 1]) continue;
    Stmt part = Part(s, kNames[i], cuts[i], cuts[i + 1]);
    result.value.parts[i] = part->var;
    if (!parts.empty()) {
      NestCopy copy = CopyNest(part->body, "_part", names);
      result.value.copies.insert(result.value.copies.end(), copy.loops.begin(), copy.loops.end());
      part = WithOwnScratch(ir::For(part->var, part->extent, part->for_kind, copy.nest), scratch, made);
    }
    parts.push_back(part);
  }
  result.func.body = Replace(path, ir::Seq(std::move(parts)));
  for (const Buffer& b : made) result.func.body = ir::Alloc(b, result.func.body);
  return result;
}

}  // namespace temper::rewrites
