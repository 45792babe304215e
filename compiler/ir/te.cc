#include "compiler/ir/te.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "absl/strings/str_cat.h"

namespace temper::ir {
namespace {

std::vector<int> PermOrIdentity(const std::vector<int>& perm, size_t rank) {
  if (!perm.empty() || rank == 0) return perm;
  std::vector<int> identity(rank);
  std::iota(identity.begin(), identity.end(), 0);
  return identity;
}

// The iterators of a block under construction, each with a loop of its own around it.
struct Nest {
  explicit Nest(std::string name) : block{.name = std::move(name)} {}

  // `letter` and a number name the iterator; the loop is named after the block too. Returns the iterator.
  Expr AddIter(const char* letter, size_t number, int64_t extent, bool reduce) {
    std::string name = absl::StrCat(letter, number);
    Var iter = MakeVar(name);
    Var loop = MakeVar(absl::StrCat(block.name, ".", name));
    block.iters.push_back({iter, extent, reduce});
    block.bindings.push_back(loop);
    loops.push_back(loop);
    return iter;
  }

  Stmt Build(const Buffer& buffer, std::vector<Expr> indices, Expr value) {
    std::vector<IterVar> iters = block.iters;
    Stmt s = BlockStmt(std::move(block), buffer, std::move(indices), std::move(value));
    for (size_t i = loops.size(); i-- > 0;) s = For(loops[i], iters[i].extent, ForKind::kSerial, std::move(s));
    return s;
  }

  BlockInfo block;
  std::vector<Var> loops;
};

// What no number of the type lies beyond.
Expr Extreme(DType dtype, bool largest) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (IsFloat(dtype)) return Const(largest ? kInfinity : -kInfinity, dtype);
  // The extremes of 64 bits are no doubles, so they can not go through Const.
  using Limits = std::numeric_limits<int64_t>;
  if (dtype == DType::kI64) return Int(largest ? Limits::max() : Limits::min());
  if (dtype == DType::kU64) return Int(largest ? -1 : 0, dtype);
  return Const(largest ? Largest(dtype) : Lowest(dtype), dtype);
}

}  // namespace

Tensor Tensor::OfBuffer(const Buffer& buffer, const std::vector<int>& perm) {
  std::vector<int> order = PermOrIdentity(perm, buffer->shape.size());
  Shape logical(buffer->shape.size());
  for (size_t i = 0; i < order.size(); ++i) logical[order[i]] = buffer->shape[i];
  return Tensor(buffer->dtype, std::move(logical), [buffer, order](const std::vector<Expr>& index) {
    std::vector<Expr> physical;
    physical.reserve(order.size());
    for (int axis : order) physical.push_back(index[axis]);
    return Load(buffer, std::move(physical));
  });
}

Expr Identity(Combiner c, DType dtype) {
  switch (c) {
    case Combiner::kSum:
      return Const(0, dtype);
    case Combiner::kProd:
      return Const(1, dtype);
    case Combiner::kMax:
      return Extreme(dtype, false);
    case Combiner::kMin:
      break;
  }
  return Extreme(dtype, true);
}

Expr Combine(Combiner c, Expr a, Expr b) {
  switch (c) {
    case Combiner::kSum:
      return a + b;
    case Combiner::kProd:
      return a * b;
    case Combiner::kMax:
      return Max(a, b);
    case Combiner::kMin:
      break;
  }
  return Min(a, b);
}

std::string ProgramBuilder::UniqueName(std::string name) {
  std::string unique = name;
  for (int n = 1; std::find(names_.begin(), names_.end(), unique) != names_.end(); ++n)
    unique = absl::StrCat(name, "_", n);
  names_.push_back(unique);
  return unique;
}

Buffer ProgramBuilder::Input(std::string name, DType dtype, Shape physical_shape) {
  inputs_.push_back(MakeBuffer(UniqueName(std::move(name)), dtype, std::move(physical_shape)));
  return inputs_.back();
}

Buffer ProgramBuilder::Compute(std::string name, DType dtype, Shape shape,
                               const std::function<Expr(const std::vector<Expr>&)>& fn) {
  return Reduce(std::move(name), dtype, std::move(shape), {}, Combiner::kSum,
                [&fn](const std::vector<Expr>& index, const std::vector<Expr>&) { return fn(index); });
}

Buffer ProgramBuilder::Reduce(
    std::string name, DType dtype, Shape shape, std::vector<int64_t> reduce_extents, Combiner combiner,
    const std::function<Expr(const std::vector<Expr>& index, const std::vector<Expr>& reduce)>& fn) {
  Buffer buffer = MakeBuffer(UniqueName(std::move(name)), dtype, shape);
  Nest nest(buffer->name);
  std::vector<Expr> index, reduce;
  for (size_t i = 0; i < shape.size(); ++i) index.push_back(nest.AddIter("i", i, shape[i], false));
  for (size_t i = 0; i < reduce_extents.size(); ++i) reduce.push_back(nest.AddIter("r", i, reduce_extents[i], true));
  Expr value = fn(index, reduce);
  if (!reduce.empty()) {
    nest.block.init = Identity(combiner, dtype);
    value = Combine(combiner, Load(buffer, index), value);
  }
  nests_.push_back(nest.Build(buffer, index, std::move(value)));
  stages_.push_back(buffer);
  return buffer;
}

void ProgramBuilder::MarkOutput(const Buffer& buffer) { outputs_.push_back(buffer); }

Tensor ProgramBuilder::Materialize(std::string name, const Tensor& t, const std::vector<int>& perm) {
  std::vector<int> order = PermOrIdentity(perm, t.shape().size());
  Shape physical;
  for (int axis : order) physical.push_back(t.shape()[axis]);
  Buffer buffer = Compute(std::move(name), t.dtype(), physical, [&](const std::vector<Expr>& index) {
    std::vector<Expr> logical(index.size());
    for (size_t i = 0; i < order.size(); ++i) logical[order[i]] = index[i];
    return t(logical);
  });
  return Tensor::OfBuffer(buffer, order);
}

Buffer ProgramBuilder::last() const { return stages_.back(); }

absl::StatusOr<Func> ProgramBuilder::Finish() {
  if (outputs_.empty()) return absl::InvalidArgumentError(absl::StrCat("program ", name_, " marks no output"));
  for (const Buffer& output : outputs_) {
    if (std::find(stages_.begin(), stages_.end(), output) == stages_.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("program ", name_, ": output ", output->name, " is no stage of it"));
    }
  }
  Stmt body = Seq(nests_);
  for (size_t i = stages_.size(); i-- > 0;) {
    if (std::find(outputs_.begin(), outputs_.end(), stages_[i]) == outputs_.end())
      body = Alloc(stages_[i], std::move(body));
  }
  Func func{name_, inputs_, static_cast<int>(outputs_.size()), std::move(body)};
  func.params.insert(func.params.end(), outputs_.begin(), outputs_.end());
  TEMPER_RETURN_IF_ERROR(Verify(func));
  return func;
}

}  // namespace temper::ir
