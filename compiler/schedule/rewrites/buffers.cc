// Where values live: copies through other buffers, scopes, layouts and prefetches.
#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/rng.h"
#include "compiler/schedule/rewrites/placement.h"
#include "compiler/schedule/rewrites/rewrites.h"

namespace temper::rewrites {

using namespace nest;  // NOLINT: this file is about nests

namespace {

// to[i...] = from[i...] over all of `to`.
Stmt CopyBlock(const std::string& name, const Buffer& from, const Buffer& to) {
  ir::BlockInfo info{.name = name};
  std::vector<Expr> indices;
  for (size_t d = 0; d < to->shape.size(); ++d) {
    info.iters.push_back({ir::MakeVar(absl::StrCat("i", d)), to->shape[d], false});
    info.bindings.push_back(Expr(0));
    indices.push_back(info.iters.back().var);
  }
  return ir::BlockStmt(std::move(info), to, indices, ir::Load(from, indices));
}

// The statement of the outermost sequence that holds the last of `path`, and its parent's place on the path.
size_t TopOf(const Path& path) {
  size_t i = 0;
  while (path[i]->kind == StmtKind::kAlloc) ++i;
  return path[i]->kind == StmtKind::kSeq ? i + 1 : i;
}

// The innermost loop on `path` that also encloses one of `blocks`, as a place on the path; none if no loop does.
std::optional<size_t> SharedLoop(const Path& path, const std::vector<Stmt>& blocks) {
  for (size_t i = path.size(); i-- > 0;) {
    if (path[i]->kind != StmtKind::kFor) continue;
    for (const Stmt& block : blocks) {
      if (Contains(path[i], block.get())) return i;
    }
  }
  return std::nullopt;
}

Buffer CacheBuffer(const Func& f, const Buffer& of, ir::Scope scope) {
  const char* suffix = scope == ir::Scope::kRegister ? "_register" : "_cache";
  return ir::MakeBuffer(UniqueBufferName(f, of->name + suffix), of->dtype, of->shape, scope);
}

// `root` with the copy in front of the statement that holds the reader.
absl::StatusOr<Stmt> PlaceBefore(const Stmt& root, const std::string& reader, const Stmt& copy, const Buffer& buffer,
                                 const Buffer& cache) {
  Path path = PathToBlock(root, reader);
  const std::vector<Stmt> writers = WritersOf(root, buffer);
  std::optional<size_t> shared = SharedLoop(path, writers);
  if (!shared.has_value()) {
    path.resize(TopOf(path) + 1);
    return Replace(path, ir::Seq({BuildNest(copy, WholeDomain(*copy), {}), path.back()}));
  }
  // The buffer is made one iteration of this loop at a time: so is the copy, of what the reader wants in it.
  const Stmt loop = path[*shared], block = path.back();
  const std::vector<Stmt> children = Children(loop->body);
  size_t at = 0;
  while (!Contains(children[at], block.get())) ++at;
  for (size_t i = at; i < children.size(); ++i) {
    if (!WritersOf(children[i], buffer).empty()) {
      return Refuse(
          absl::StrCat("'", buffer->name, "' is not complete before the block within loop '", loop->var->name, "'"));
    }
  }
  ir::Simplifier simplifier;
  BindLoops(std::vector<Stmt>(path.begin(), path.begin() + static_cast<std::ptrdiff_t>(*shared) + 1), simplifier);
  BindLoopsIn(loop->body, simplifier);
  const VarSet inner = LoopVarsIn(loop->body);
  RegionUnion region(simplifier, inner);
  for (const Expr& load : ReadsOf(*block, cache)) {
    std::vector<Expr> bound;
    for (const Expr& e : load->args) bound.push_back(ir::Substitute(e, BindingsOf(*block)));
    region.Add(bound);
  }
  std::vector<Range> plan = WholeDomain(*copy);
  NarrowToWrites(*copy, region.ranges(), plan);
  return InsertInLoop(root, loop->var, at, BuildNest(copy, plan, simplifier));
}

Expr ReplaceLoads(const Expr& e, const Buffer& from, const Buffer& to) {
  if (!e) return e;
  return ir::Rewrite(e, [&](const Expr& node) {
    return node->kind == ir::ExprKind::kLoad && node->buffer == from ? ir::Load(to, node->args) : Expr();
  });
}

void ReadFrom(StmtNode& block, const Buffer& from, const Buffer& to) {
  for (Expr& e : block.indices) e = ReplaceLoads(e, from, to);
  block.block.init = ReplaceLoads(block.block.init, from, to);
  block.value = ReplaceLoads(block.value, from, to);
}

absl::StatusOr<Buffer> FindRead(const StmtNode& block, const std::string& name) {
  std::string known;
  for (const Buffer& b : BuffersRead(block)) {
    if (b->name == name) return b;
    absl::StrAppend(&known, known.empty() ? "'" : ", '", b->name, "'");
  }
  return absl::NotFoundError(
      absl::StrCat("the block does not read '", name, "', but ", known.empty() ? "nothing" : known));
}

absl::StatusOr<Buffer> Intermediate(const Func& f, const std::string& block) {
  TEMPER_ASSIGN_OR_RETURN(Path path, FindBlock(f, block));
  if (IsParam(f, path.back()->buffer))
    return Refuse(absl::StrCat("'", path.back()->buffer->name, "' is an output of the function"));
  return path.back()->buffer;
}

}  // namespace

absl::StatusOr<Result<std::string>> CacheRead(const Func& f, const std::string& block, const std::string& buffer,
                                              ir::Scope scope) {
  TEMPER_ASSIGN_OR_RETURN(Path path, FindBlock(f, block));
  TEMPER_ASSIGN_OR_RETURN(const Buffer from, FindRead(*path.back(), buffer));
  if (from == path.back()->buffer) return Refuse("the block also writes it");
  const Buffer cache = CacheBuffer(f, from, scope);
  const std::string name = UniqueBlockName(f, cache->name);
  const Stmt root = Replace(path, EditBlock(path.back(), [&](StmtNode& node) { ReadFrom(node, from, cache); }));
  TEMPER_ASSIGN_OR_RETURN(Stmt body, PlaceBefore(root, block, CopyBlock(name, from, cache), from, cache));
  Func result = f;
  result.body = ir::Alloc(cache, body);
  return Result<std::string>{std::move(result), name};
}

absl::StatusOr<Result<std::string>> CacheWrite(const Func& f, const std::string& block, ir::Scope scope) {
  TEMPER_ASSIGN_OR_RETURN(Path path, FindBlock(f, block));
  const Buffer to = path.back()->buffer;
  if (WritersOf(f.body, to).size() != 1) return Refuse(absl::StrCat("'", to->name, "' is written by other blocks too"));
  std::vector<Stmt> readers = ReadersOf(f.body, to);
  std::erase_if(readers, [&](const Stmt& s) { return s == path.back(); });
  if (std::optional<size_t> shared = SharedLoop(path, readers)) {
    return Refuse(absl::StrCat("'", to->name, "' is read inside loop '", path[*shared]->var->name,
                               "' already: cache it before its readers move there"));
  }
  const Buffer cache = CacheBuffer(f, to, scope);
  const std::string name = UniqueBlockName(f, cache->name + "_out");
  Stmt writer = EditBlock(path.back(), [&](StmtNode& node) {
    ReadFrom(node, to, cache);
    node.buffer = cache;
  });
  Path top(path.begin(), path.begin() + static_cast<std::ptrdiff_t>(TopOf(path)) + 1);
  Path below(path.begin() + static_cast<std::ptrdiff_t>(TopOf(path)), path.end());
  const Stmt copy = CopyBlock(name, cache, to);
  Func result = f;
  result.body =
      ir::Alloc(cache, Replace(top, ir::Seq({Replace(below, writer), BuildNest(copy, WholeDomain(*copy), {})})));
  return Result<std::string>{std::move(result), name};
}

absl::StatusOr<Func> SetScope(const Func& f, const std::string& block, ir::Scope scope) {
  TEMPER_ASSIGN_OR_RETURN(const Buffer from, Intermediate(f, block));
  const Buffer to = ir::MakeBuffer(from->name, from->dtype, from->shape, scope);
  Func result = f;
  result.body = ReplaceBuffer(f.body, from, to, [](const std::vector<Expr>& indices) { return indices; });
  return result;
}

namespace {

// Every element of the old shape has a place of its own in the new one. Small buffers are tried whole, of larger ones
// a sample, beside a proof of the bounds.
absl::Status CheckLayout(const Shape& from, const Shape& to,
                         const std::function<std::vector<Expr>(const std::vector<Expr>&)>& map) {
  constexpr int64_t kTried = 4096;
  const int64_t size = NumElements(from);
  ir::Simplifier simplifier;
  std::vector<Expr> axes;
  for (size_t d = 0; d < from.size(); ++d) {
    Var v = ir::MakeVar(absl::StrCat("i", d));
    simplifier.Bind(v, from[d]);
    axes.push_back(v);
  }
  const std::vector<Expr> mapped = map(axes);
  if (mapped.size() != to.size())
    return Refuse(absl::StrCat("the map gives ", mapped.size(), " indices for ", to.size(), " dimensions"));
  for (size_t d = 0; d < to.size(); ++d) {
    std::optional<ir::Interval> bounds = simplifier.Bounds(mapped[d]);
    if (size > kTried && (!bounds.has_value() || bounds->min < 0 || bounds->max >= to[d])) {
      return Refuse(absl::StrCat("index ", ir::Text(mapped[d]), " may leave dimension ", d));
    }
  }
  std::set<std::vector<int64_t>> taken;
  std::set<int64_t> seen;
  Rng rng(1);
  for (int64_t i = 0; i < std::min(size, kTried); ++i) {
    int64_t flat = size <= kTried ? i : rng.Below(size);
    if (!seen.insert(flat).second) continue;
    std::vector<ir::VarBinding> point;
    for (size_t d = from.size(); d-- > 0; flat /= from[d]) point.push_back({axes[d]->var, Expr(flat % from[d])});
    std::vector<int64_t> place;
    for (size_t d = 0; d < to.size(); ++d) {
      std::optional<int64_t> value = ir::AsInt(simplifier.Simplify(ir::Substitute(mapped[d], point)));
      if (!value.has_value() || *value < 0 || *value >= to[d])
        return Refuse(absl::StrCat("index ", ir::Text(mapped[d]), " leaves dimension ", d));
      place.push_back(*value);
    }
    if (!taken.insert(place).second) return Refuse("the map puts two elements at one place");
  }
  return absl::OkStatus();
}

// Variables of `e` that are none of the loops'.
std::vector<Var> VarsBeside(const Expr& e, const std::vector<Stmt>& loops) {
  std::vector<Var> beside;
  ir::Visit(e, [&](const Expr& node) {
    if (node->kind != ir::ExprKind::kVar) return;
    if (std::none_of(loops.begin(), loops.end(), [&](const Stmt& s) { return s->var == node->var; }))
      beside.push_back(node->var);
  });
  return beside;
}

}  // namespace

absl::StatusOr<Func> TransformLayout(const Func& f, const std::string& block, const Shape& shape,
                                     const std::function<std::vector<Expr>(const std::vector<Expr>&)>& map) {
  TEMPER_ASSIGN_OR_RETURN(const Buffer from, Intermediate(f, block));
  TEMPER_RETURN_IF_ERROR(CheckLayout(from->shape, shape, map));
  const Buffer to = ir::MakeBuffer(from->name, from->dtype, shape, from->scope);
  Func result = f;
  result.body = ReplaceBuffer(f.body, from, to, map);
  return result;
}

absl::StatusOr<Func> Prefetch(const Func& f, const std::string& block, const std::string& buffer, const Var& loop,
                              std::vector<ir::VarBinding> at, const std::vector<Var>& each) {
  TEMPER_ASSIGN_OR_RETURN(Path path, FindBlock(f, block));
  TEMPER_ASSIGN_OR_RETURN(Path target, FindLoop(f, loop));
  const bool for_store = path.back()->buffer->name == buffer;
  TEMPER_ASSIGN_OR_RETURN(const Buffer from, for_store ? path.back()->buffer : FindRead(*path.back(), buffer));
  const Stmt& place = target.back();
  for (const ir::VarBinding& b : at) {
    const auto is_bound = [&](const Stmt& s) { return s->var == b.var; };
    if (std::ranges::none_of(LoopsOf(path), is_bound)) return Refuse("the loop is not around the block");
    const std::vector<Var> unknown = VarsBeside(b.value, LoopsOf(target));
    if (!unknown.empty())
      return Refuse(absl::StrCat("loop '", unknown.front()->name, "' is not around loop '", loop->name, "'"));
  }
  if (!IsParam(f, from))
    return Refuse(absl::StrCat("'", buffer, "' is scratch of the function, which needs no prefetch"));
  if (place->for_kind == ir::ForKind::kVectorized) return Refuse("the loop is vectorized");
  std::vector<Stmt> around;
  for (const Stmt& s : LoopsOf(path)) {
    if (Contains(s, place.get())) continue;  // also `loop` itself
    if (std::any_of(at.begin(), at.end(), [&](const ir::VarBinding& b) { return b.var == s->var; })) continue;
    const bool kept = std::count(each.begin(), each.end(), s->var) > 0;
    if (kept) around.push_back(ir::For(ir::MakeVar(s->var->name), s->extent, ir::ForKind::kUnrolled, nullptr));
    at.push_back({s->var, kept ? Expr(around.back()->var) : Expr(0)});
  }
  if (around.size() != each.size()) return Refuse("a loop to go through is not between the loop and the block");
  std::vector<Expr> indices;
  for (const Expr& e : for_store ? path.back()->indices : ReadsOf(*path.back(), from).front()->args) {
    if (HasLoad(e)) return Refuse(absl::StrCat("its index ", ir::Text(e), " is itself loaded"));
    indices.push_back(ir::Substitute(ir::Substitute(e, BindingsOf(*path.back())), at));
  }
  Stmt prefetch = ir::Prefetch(from, std::move(indices), for_store);
  for (size_t i = around.size(); i-- > 0;)
    prefetch = ir::For(around[i]->var, around[i]->extent, around[i]->for_kind, prefetch);
  Func result = f;
  result.body = InsertInLoop(f.body, loop, 0, prefetch);
  return result;
}

}  // namespace temper::rewrites
