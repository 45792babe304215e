// An operator of one's own, outside Temper's tree: squared ReLU, y = max(x, 0)^2, summed over the last axis. It brings
// its type rule, its tensor expression, a reference to be verified against, and a template with a schedule and knobs.
// Registered, it is built and verified like any other. It needs no more than the operator API, <temper/operator.h>.
#include <algorithm>
#include <cstdio>
#include <temper/operator.h>

namespace temper {
namespace {

using ir::Expr;

Expr SquaredRelu(const Expr& x) {
  Expr positive = ir::Max(x, ir::Float(0));
  return positive * positive;
}

OpDef SquaredReluSum() {
  OpDef op;
  op.name = "squared_relu_sum";
  op.pattern = OpPattern::kReduction;
  op.min_inputs = op.max_inputs = 1;
  op.infer = [](const Attrs&, std::span<const TensorType> in) -> absl::StatusOr<TensorType> {
    if (in[0].shape.size() != 2) return absl::InvalidArgumentError("takes a matrix");
    return TensorType{in[0].dtype, {in[0].shape[0]}, {}};
  };
  op.compute = [](ir::ProgramBuilder& b, const Attrs&, std::span<const ir::Tensor> in,
                  const TensorType& out) -> absl::StatusOr<ir::Tensor> {
    const ir::Tensor x = in[0];
    auto term = [x](const std::vector<Expr>& i, const std::vector<Expr>& r) { return SquaredRelu(x({i[0], r[0]})); };
    ir::Buffer sum = b.Reduce("sum", out.dtype, out.shape, {x.shape()[1]}, ir::Combiner::kSum, term);
    return ir::Tensor::OfBuffer(sum);
  };
  op.reference = [](const Attrs&, std::span<const NDArray> in, const TensorType& out) -> absl::StatusOr<NDArray> {
    NDArray result(out.dtype, out.shape);
    const int64_t columns = in[0].shape()[1];
    for (int64_t i = 0; i < result.size(); ++i) {
      double sum = 0;
      for (int64_t k = 0; k < columns; ++k) {
        const double positive = std::max(0.0, in[0].At(i * columns + k));
        sum += positive * positive;
      }
      result.Set(i, sum);
    }
    return result;
  };
  op.flops = [](const Attrs&, std::span<const TensorType> in, const TensorType&) {
    return 3.0 * static_cast<double>(NumElements(in[0].shape));
  };
  return op;
}

// Rows in parallel; along a row, `vectors` vectors of partial sums. The schedule is the list of its rewrites.
absl::StatusOr<Kernel> Build(const Workload& w, const Config& c, const CpuTarget& t) {
  ir::ProgramBuilder b("squared_relu_sum");
  ir::Buffer x = b.Input("x", DType::kF32, w.inputs[0].type.shape);
  ir::Buffer sum = b.Reduce("sum", DType::kF32, w.output().shape, {w.inputs[0].type.shape[1]}, ir::Combiner::kSum,
                            [&](const std::vector<Expr>& i, const std::vector<Expr>& r) {
                              return SquaredRelu(ir::Load(x, {i[0], r[0]}));
                            });
  b.MarkOutput(sum);
  TEMPER_ASSIGN_OR_RETURN(ir::Func func, b.Finish());
  Schedule s(std::move(func));
  std::vector<Loop> loops = s.Loops("sum");
  auto [rest, lanes] = s.Split(loops[1], c["vectors"] * t.lanes());
  auto [partial, total] = s.Rfactor("sum", lanes);
  Loop row = s.Loops(total).front();
  s.ComputeAt(partial, row);
  s.SetScope(partial, ir::Scope::kRegister);
  s.Parallel(row);
  std::vector<Loop> inside = s.Loops(partial);  // row, its own row of one, lanes, rest
  if (!s.status().ok()) return s.status();
  Loop lane = inside[inside.size() - 2], steps = inside.back();
  s.Reorder({steps, lane});
  const std::string init = s.DecomposeReduction(partial, steps);
  s.Vectorize(lane);
  s.Vectorize(s.Loops(init).back());
  s.DecomposeReduction(total, s.Loops(total).back());
  s.Vectorize(s.Loops(total).back());
  TEMPER_RETURN_IF_ERROR(s.status());
  Kernel kernel;
  TEMPER_ASSIGN_OR_RETURN(kernel.main, Lower(s.func()));
  kernel.packs.resize(w.inputs.size());
  return kernel;
}

CpuTemplate Rows() {
  return {"squared_relu_sum.rows",
          1,
          [](const Workload& w) { return w.calls.size() == 1 && w.calls[0].op == "squared_relu_sum"; },
          [](const Workload& w, const CpuTarget& t) {
            ConfigSpace space;
            space.Add("vectors", {1, 2, 4, 8});
            space.Require("the vectors do not divide a row",
                          [columns = w.inputs[0].type.shape[1], lanes = t.lanes()](const Config& c) {
                            return columns % (c["vectors"] * lanes) == 0;
                          });
            return space;
          },
          Build,
          [](const Workload& w, const Config& c, const CpuTarget& t) {
            CpuFootprint f;
            f.flops = f.padded_flops = Flops(w);
            f.vector_lanes = t.lanes();
            f.tile_columns = static_cast<double>(c["vectors"] * t.lanes());
            f.reduction = static_cast<double>(w.inputs[0].type.shape[1]) / f.tile_columns;
            f.compulsory_bytes = f.memory_traffic = f.l2_traffic = CompulsoryBytes(w);
            f.parallel_chunks = static_cast<double>(w.output().shape[0]);
            return f;
          }};
}

// Builds, runs and checks the operator's configs.
absl::Status Main() {
  RegisterOp(SquaredReluSum());
  RegisterTemplate(ForCpu(Rows()));
  TEMPER_ASSIGN_OR_RETURN(const std::vector<OperatorTrial> trials,
                          TryOperator("(f32[64,1024]) squared_relu_sum(0) -> f32[64]; anchor=0"));
  for (const OperatorTrial& trial : trials) {
    std::printf("%s %s: error %.1e\n", trial.template_name.c_str(), trial.config.c_str(), trial.error);
    if (!(trial.error < 1e-5)) return absl::InternalError("wrong answer");
  }
  if (trials.size() < 2) return absl::InternalError("there are no configs to choose from");
  return absl::OkStatus();
}

}  // namespace
}  // namespace temper

int main() {
  absl::Status status = temper::Main();
  if (!status.ok()) std::fprintf(stderr, "custom_operator: %s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
