#include "compiler/ops/templates/attention.h"

#include <algorithm>
#include <memory>

#include "base/strides.h"
#include "compiler/ops/families/infer_util.h"

namespace temper {
namespace {

using ir::Expr;

constexpr DType kTypes[] = {DType::kF32, DType::kF16, DType::kBF16};
bool IsOfTypes(DType type) { return std::ranges::count(kTypes, type) > 0; }

// A matrix of each example of a batch, which NumPy's rule broadcasts to others of `batch_shape`.
struct Batched {
  Shape shape, batch_shape;
  bool transposed;

  Batched(const Workload& w, int input, bool transposed, Shape batch_shape)
      : shape(w.TypeOf(input).shape), batch_shape(std::move(batch_shape)), transposed(transposed) {}
  Expr At(const ir::Tensor& x, const Expr& batch, const Expr& row, const Expr& column) const {
    const std::vector<Expr> all = Unflatten(batch, batch_shape);
    std::vector<Expr> index;
    const size_t rank = shape.size() - 2;
    for (size_t d = 0; d < rank; ++d) index.push_back(shape[d] == 1 ? Expr(0) : all[all.size() - rank + d]);
    index.push_back(transposed ? column : row);
    index.push_back(transposed ? row : column);
    return x(index);
  }
};

// Whether all of `calls` are elementwise, have the shape, and read inputs of the workload and results from call `first`
// on alone.
bool MakeElements(const Workload& w, std::span<const Workload::Call> calls, const Shape& shape, int first) {
  const int inputs = static_cast<int>(w.inputs.size());
  return std::ranges::all_of(calls, [&](const Workload::Call& call) {
    const OpDef* op = FindOp(call.op);
    return op != nullptr && op->compute != nullptr && op->pattern == OpPattern::kElementwise &&
           call.type.shape == shape && call.type.perm.empty() &&
           std::ranges::all_of(call.args, [&](int arg) { return arg < inputs || arg >= inputs + first; });
  });
}

// The product of two different inputs, or of a result and an input.
bool IsProduct(const Workload& w, const Workload::Call& call, bool of_inputs) {
  const int inputs = static_cast<int>(w.inputs.size());
  if (call.op != "matmul" || call.args[1] >= inputs || w.inputs[call.args[1]].constant ||
      (call.args[0] < inputs) != of_inputs || call.args[0] == call.args[1])
    return false;
  const TensorType &a = w.TypeOf(call.args[0]), &b = w.TypeOf(call.args[1]);
  return a.shape.size() >= 2 && b.shape.size() >= 2 && IsOfTypes(b.dtype) && IsOfTypes(call.type.dtype);
}

bool ReducesLastAxis(const Workload::Call& softmax) {
  const auto rank = static_cast<int64_t>(softmax.type.shape.size());
  const absl::StatusOr<int64_t> axis = ops::NormalizeAxis(softmax.attrs.Int("axis", -1), rank);
  return axis.ok() && *axis == rank - 1;
}

// The call that is softmax; -1: it is none of an attention.
int FindSoftmax(const Workload& w) {
  const auto is_softmax = [](const Workload::Call& call) { return call.op == "softmax"; };
  const auto found = std::ranges::find_if(w.calls, is_softmax);
  const int at = static_cast<int>(found - w.calls.begin()), inputs = static_cast<int>(w.inputs.size());
  if (w.anchor < 2 || at < 1 || at >= w.anchor) return -1;
  const Workload::Call &scores = w.calls[0], &softmax = w.calls[static_cast<size_t>(at)], &anchor = w.calls[w.anchor];
  const std::span<const Workload::Call> calls(w.calls);
  const Shape& shape = scores.type.shape;
  if (!IsProduct(w, scores, true) || !IsProduct(w, anchor, false) || !ReducesLastAxis(softmax) ||
      softmax.args[0] < inputs || softmax.type.shape != shape || !IsOfTypes(softmax.type.dtype) ||
      anchor.args[0] < inputs + at || anchor.attrs.Int("trans_a", 0) != 0)
    return -1;
  const auto before = calls.subspan(1, static_cast<size_t>(at - 1));
  const auto between = calls.subspan(static_cast<size_t>(at + 1), static_cast<size_t>(w.anchor - at - 1));
  const auto after = calls.subspan(static_cast<size_t>(w.anchor + 1));
  const Shape &out = anchor.type.shape, &shares = w.TypeOf(anchor.args[0]).shape;
  const auto same_type = [&](const Workload::Call& call) { return call.type.perm == w.output().perm; };
  const bool elementwise = MakeElements(w, before, shape, 0) && MakeElements(w, between, shape, at) &&
                           scores.type.perm.empty() && softmax.type.perm.empty() && shares == shape &&
                           out.size() == shape.size() && std::equal(shape.begin(), shape.end() - 1, out.begin());
  const bool epilogue = std::ranges::all_of(after, [&](const Workload::Call& call) {
    const OpDef* op = FindOp(call.op);
    return op != nullptr && op->pattern == OpPattern::kElementwise && call.type.shape == out && same_type(call) &&
           std::ranges::all_of(call.args, [&](int arg) { return arg < inputs || arg >= inputs + w.anchor; });
  });
  return elementwise && epilogue && same_type(anchor) ? at : -1;
}

GemmView ScoresView(const Workload& w, const Shape& batch_shape) {
  const Workload::Call& call = w.calls[0];
  const Batched q(w, call.args[0], call.attrs.Int("trans_a", 0) != 0, batch_shape);
  const Batched k(w, call.args[1], call.attrs.Int("trans_b", 0) != 0, batch_shape);
  const size_t rank = call.type.shape.size();
  GemmView v;
  v.batch = NumElements(batch_shape);
  v.rows = call.type.shape[rank - 2];
  v.columns = call.type.shape[rank - 1];
  v.reduction = {q.transposed ? q.shape[q.shape.size() - 2] : q.shape.back()};
  v.b_input = call.args[1];
  v.b_batched = true;
  v.b_contiguous = ColumnsAreContiguous(w.TypeOf(v.b_input), k.transposed);
  v.b_element = [k](const ir::Tensor& x, const Expr& batch, const Expr& column, const std::vector<Expr>& r) {
    return k.At(x, batch, r[0], column);
  };
  v.prepare = [q, input = call.args[0]](WorkloadProgram& program, ir::ProgramBuilder&,
                                        std::vector<std::string>*) -> GemmView::AElement {
    return [q, x = program.value(input)](const Expr& batch, const Expr& row, const std::vector<Expr>& r) {
      return q.At(x, batch, row, r[0]);
    };
  };
  return v;
}

GemmView SharesView(const Workload& w, const Shape& batch_shape) {
  const Workload::Call& call = w.calls[w.anchor];
  const Batched b(w, call.args[1], call.attrs.Int("trans_b", 0) != 0, batch_shape);
  const Shape& out = call.type.shape;
  const size_t rank = out.size();
  GemmView v;
  v.batch = NumElements(batch_shape);
  v.rows = out[rank - 2];
  v.columns = out[rank - 1];
  v.reduction = {w.calls[0].type.shape.back()};
  v.b_input = call.args[1];
  v.b_batched = true;
  v.b_contiguous = ColumnsAreContiguous(w.TypeOf(v.b_input), b.transposed);
  v.b_element = [b](const ir::Tensor& x, const Expr& batch, const Expr& column, const std::vector<Expr>& r) {
    return b.At(x, batch, r[0], column);
  };
  const std::vector<int>& perm = w.output().perm;
  const std::vector<int64_t> stride = RowMajorStrides(batch_shape);
  for (size_t p = 0; p < rank; ++p) {
    const size_t d = perm.empty() ? p : static_cast<size_t>(perm[p]);
    const GemmAxis axis = d + 1 == rank ? GemmAxis::kColumn : d + 2 == rank ? GemmAxis::kRow : GemmAxis::kBatch;
    v.out_dims.push_back({axis, out[d], axis == GemmAxis::kBatch ? stride[d] : 1});
  }
  v.out_index = [batch_shape](const Expr& batch, const Expr& row, const Expr& column) {
    std::vector<Expr> index = Unflatten(batch, batch_shape);
    index.push_back(row);
    index.push_back(column);
    return index;
  };
  return v;
}

// Elements of the call `last`, where that of the call `first` is given: all between are elementwise.
absl::StatusOr<ScoreElement> ElementsBetween(const Workload& w, int first, int last, WorkloadProgram& program) {
  const auto current = std::make_shared<Expr>();
  const TensorType& type = w.calls[static_cast<size_t>(first)].type;
  program.SetResult(first,
                    ir::Tensor(type.dtype, type.shape, [current](const std::vector<Expr>&) { return *current; }));
  TEMPER_RETURN_IF_ERROR(program.Compute(first + 1, last + 1));
  const Shape batch_shape(type.shape.begin(), type.shape.end() - 2);
  return [current, batch_shape, result = program.value(static_cast<int>(w.inputs.size()) + last)](
             const Expr& element, const Expr& batch, const Expr& row, const Expr& key) {
    *current = element;
    std::vector<Expr> index = Unflatten(batch, batch_shape);
    index.push_back(row);
    index.push_back(key);
    return result(index);
  };
}

}  // namespace

std::optional<Attention> Attention::Of(const Workload& w) {
  if (w.calls.empty() || w.anchor >= static_cast<int>(w.calls.size())) return std::nullopt;
  const int softmax = FindSoftmax(w);
  if (softmax < 0) return std::nullopt;
  const Shape& shape = w.calls[0].type.shape;
  const Shape batch_shape(shape.begin(), shape.end() - 2);
  const Workload::Call &first = w.calls[0], &reduction = w.calls[static_cast<size_t>(softmax)];
  return Attention{.softmax = softmax,
                   .factor = w.TypeOf(first.args[1]).dtype,
                   .operand = w.TypeOf(w.calls[w.anchor].args[1]).dtype,
                   .score = w.TypeOf(reduction.args[0]).dtype,
                   .share = reduction.type.dtype,
                   .scores = ScoresView(w, batch_shape),
                   .shares = SharesView(w, batch_shape)};
}

absl::StatusOr<ScoreElement> ScoresOf(const Workload& w, const Attention& a, WorkloadProgram& program) {
  const int last = w.calls[static_cast<size_t>(a.softmax)].args[0] - static_cast<int>(w.inputs.size());
  return ElementsBetween(w, 0, last, program);
}

absl::StatusOr<ScoreElement> SharesOf(const Workload& w, const Attention& a, WorkloadProgram& program) {
  const int last = w.calls[w.anchor].args[0] - static_cast<int>(w.inputs.size());
  return ElementsBetween(w, a.softmax, last, program);
}

}  // namespace temper
