#include <algorithm>

#include "absl/strings/str_cat.h"
#include "compiler/ops/templates/stages.h"
#include "compiler/schedule/lower.h"

namespace temper {

using ir::Expr;

namespace {

bool IsSameIndex(const std::vector<Expr>& a, const std::vector<Expr>& b) {
  return std::ranges::equal(a, b, [](const Expr& x, const Expr& y) {
    return x.get() == y.get() || (ir::AsInt(x).has_value() && ir::AsInt(x) == ir::AsInt(y));
  });
}

// Gives the same expression for the same index again, and its copies do: a chain that reads each of its values twice
// would grow without bounds otherwise.
ir::Tensor Remembering(const ir::Tensor& tensor) {
  constexpr size_t kMostKept = 8;
  struct Read {
    std::vector<Expr> index;
    Expr element;
  };
  struct Known {
    ir::Tensor tensor;
    std::vector<Read> reads;
  };
  const auto known = std::make_shared<Known>(Known{tensor, {}});
  return ir::Tensor(tensor.dtype(), tensor.shape(), [known](const std::vector<Expr>& index) {
    for (const Read& read : known->reads) {
      if (IsSameIndex(read.index, index)) return read.element;
    }
    Expr element = known->tensor(index);
    if (known->reads.size() == kMostKept) known->reads.erase(known->reads.begin());
    known->reads.push_back({index, element});
    return element;
  });
}

}  // namespace

WorkloadProgram::WorkloadProgram(const Workload& w, ir::ProgramBuilder& b, const std::vector<Shape>& packed,
                                 const std::vector<DType>& types)
    : w_(w), b_(b) {
  for (size_t i = 0; i < w.inputs.size(); ++i) {
    const TensorType& type = w.inputs[i].type;
    const bool is_packed = i < packed.size() && !packed[i].empty();
    const DType dtype = is_packed && !types.empty() ? types[i] : type.dtype;
    buffers_.push_back(b.Input(absl::StrCat("in", i), dtype, is_packed ? packed[i] : type.PhysicalShape()));
    values_.push_back(is_packed ? ir::Tensor() : ir::Tensor::OfBuffer(buffers_.back(), type.perm));
  }
  values_.resize(w.inputs.size() + w.calls.size());
}

absl::Status WorkloadProgram::Compute(int first, int last) {
  for (int i = first; i < last; ++i) {
    const Workload::Call& call = w_.calls[i];
    const OpDef* op = FindOp(call.op);
    if (op == nullptr || !op->compute)
      return absl::UnimplementedError(absl::StrCat("operator '", call.op, "' has no tensor expression"));
    std::vector<ir::Tensor> inputs;
    for (int arg : call.args) inputs.push_back(arg < 0 ? ir::Tensor() : values_[arg]);
    TEMPER_ASSIGN_OR_RETURN(const ir::Tensor result, op->compute(b_, call.attrs, inputs, call.type));
    values_[w_.inputs.size() + i] = Remembering(result);
  }
  return absl::OkStatus();
}

void WorkloadProgram::MarkOut() {
  const TensorType& type = w_.output();
  b_.MarkOutput(b_.Compute("out", type.dtype, type.PhysicalShape(), [&](const std::vector<Expr>& physical) {
    std::vector<Expr> logical = physical;
    for (size_t i = 0; i < type.perm.size(); ++i) logical[static_cast<size_t>(type.perm[i])] = physical[i];
    return result()(logical);
  }));
}

bool AnchorReadsElementwise(const Workload& w) {
  const std::vector<int>& args = w.calls[w.anchor].args;
  const int operand = args[0], inputs = static_cast<int>(w.inputs.size());
  const auto packed = [&](int arg) {
    const bool constant = arg >= 0 && arg < inputs && w.inputs[static_cast<size_t>(arg)].constant;
    return constant && std::find(args.begin() + 1, args.end(), arg) != args.end();
  };
  const auto anchor = w.calls.begin() + w.anchor;
  return (w.anchor == 0 ? operand < inputs : operand == inputs + w.anchor - 1) &&
         std::all_of(w.calls.begin(), anchor,
                     [&](const Workload::Call& call) {
                       const OpDef* op = FindOp(call.op);
                       return op != nullptr && op->pattern == OpPattern::kElementwise &&
                              std::none_of(call.args.begin(), call.args.end(), [&](int arg) { return arg == args[1]; });
                     }) &&
         std::none_of(anchor + 1, w.calls.end(), [&](const Workload::Call& call) {
           return std::any_of(call.args.begin(), call.args.end(), packed);
         });
}

int64_t VectorLength(int64_t extent, int64_t lanes, int64_t most) {
  const int64_t vectors = CeilDiv(extent, lanes);
  int64_t run = most;
  while (run > 1 && 16 * CeilDiv(vectors, run) * run > 17 * vectors) run /= 2;
  return run * lanes;
}

absl::StatusOr<ir::Func> Finished(const Schedule& s) {
  TEMPER_RETURN_IF_ERROR(s.status());
  return s.func();
}

absl::StatusOr<ir::Func> LowerSchedule(const Schedule& s) {
  TEMPER_ASSIGN_OR_RETURN(const ir::Func func, Finished(s));
  return Lower(func);
}

void ScheduleElementwise(Schedule& s, const std::string& block, const CpuTarget& t) {
  std::vector<Loop> loops = s.Loops(block);
  if (loops.empty()) return;
  Loop inner = loops.back();
  loops.pop_back();
  if (s.Extent(inner) >= t.lanes()) {
    auto [outer, lane] = s.Split(inner, t.lanes());
    s.Vectorize(lane);
    s.Partition(outer);
    inner = outer;
  }
  if (loops.empty()) {
    s.Parallel(inner);
    return;
  }
  s.Parallel(FuseAll(s, loops));
}

absl::StatusOr<ir::Func> BuildPack(const std::string& name, const Workload::Operand& operand, Shape packed_shape,
                                   const std::function<Expr(const ir::Tensor&, const std::vector<Expr>&)>& element,
                                   const CpuTarget& host) {
  ir::ProgramBuilder b(name);
  ir::Buffer in = b.Input("in", operand.type.dtype, operand.type.PhysicalShape());
  ir::Tensor logical = ir::Tensor::OfBuffer(in, operand.type.perm);
  const DType packed = element(logical, std::vector<Expr>(packed_shape.size(), Expr(0)))->dtype;
  ir::Buffer out = b.Compute("packed", packed, std::move(packed_shape),
                             [&](const std::vector<Expr>& index) { return element(logical, index); });
  b.MarkOutput(out);
  TEMPER_ASSIGN_OR_RETURN(ir::Func func, b.Finish());
  Schedule s(std::move(func));
  ScheduleElementwise(s, "packed", host);
  return LowerSchedule(s);
}

}  // namespace temper
