// Tensor expressions: operators say *what* they compute here; schedule/ says how.
#pragma once

#include "compiler/ir/stmt.h"

namespace temper::ir {

// A tensor by its logical shape and a function from a logical index to a scalar expression. It may be backed by a
// buffer (then reading it is a load through `perm`) or be a formula that is inlined wherever it is read.
class Tensor {
 public:
  using Fn = std::function<Expr(const std::vector<Expr>&)>;
  Tensor() = default;
  Tensor(DType dtype, Shape shape, Fn fn) : dtype_(dtype), shape_(std::move(shape)), fn_(std::move(fn)) {}
  // `perm[i]` is the logical axis stored as the i-th physical dimension of `buffer`; empty is the identity.
  static Tensor OfBuffer(const Buffer& buffer, const std::vector<int>& perm = {});

  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  int rank() const { return static_cast<int>(shape_.size()); }
  Expr operator()(const std::vector<Expr>& index) const { return fn_(index); }

 private:
  DType dtype_ = DType::kF32;
  Shape shape_;
  Fn fn_;
};

enum class Combiner : uint8_t { kSum, kMax, kMin, kProd };
Expr Identity(Combiner c, DType dtype);
Expr Combine(Combiner c, Expr a, Expr b);

// Collects stages into a function: each stage becomes one Block under a naive loop nest, in order; intermediate
// buffers become Allocs of scope memory around the whole body. Loop variables are named after the stage and its axes.
class ProgramBuilder {
 public:
  explicit ProgramBuilder(std::string name) : name_(std::move(name)) {}

  Buffer Input(std::string name, DType dtype, Shape physical_shape);
  // The result buffer of a stage may be declared an output with a shape of the caller's choosing (same dense bytes).
  // `fn` maps a physical index of the new buffer to its value. Block name = `name`, made unique.
  Buffer Compute(std::string name, DType dtype, Shape shape, const std::function<Expr(const std::vector<Expr>&)>& fn);
  Buffer Reduce(std::string name, DType dtype, Shape shape, std::vector<int64_t> reduce_extents, Combiner combiner,
                const std::function<Expr(const std::vector<Expr>& index, const std::vector<Expr>& reduce)>& fn);
  void MarkOutput(const Buffer& buffer);  // outputs in order of marking
  // A stage holding `t` with the physical order `perm`; reads of the result go through it.
  Tensor Materialize(std::string name, const Tensor& t, const std::vector<int>& perm = {});
  Buffer last() const;  // the buffer of the latest stage

  absl::StatusOr<Func> Finish();  // verified

 private:
  std::string UniqueName(std::string name);
  std::string name_;
  std::vector<Buffer> inputs_, outputs_, stages_;
  std::vector<Stmt> nests_;
  std::vector<std::string> names_;
};

}  // namespace temper::ir
