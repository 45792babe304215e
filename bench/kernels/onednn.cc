#include "bench/kernels/onednn.h"

#include <omp.h>
#include <sched.h>

#include <algorithm>
#include <cstring>
#include <oneapi/dnnl/dnnl.hpp>

#include "absl/strings/str_cat.h"
#include "base/statistics.h"
#include "compiler/timing/timing.h"
#include "measure_worker/compare.h"
#include "measure_worker/sampling.h"

namespace temper::bench {
namespace {

using dnnl::memory;
constexpr memory::data_type kF32 = memory::data_type::f32;

const dnnl::engine& Engine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

memory::desc Any(const memory::dims& dims) { return {dims, kF32, memory::format_tag::any}; }

// Logical axes and the strides at which the tensor's physical order has them.
struct Layout {
  memory::dims dims, strides;
  explicit Layout(const TensorType& t) : dims(t.shape), strides(t.shape.size(), 1) {
    int64_t stride = 1;
    for (size_t p = t.shape.size(); p-- > 0;) {
      const size_t axis = t.perm.empty() ? p : static_cast<size_t>(t.perm[p]);
      strides[axis] = stride;
      stride *= dims[axis];
    }
  }
  memory::desc desc() const { return {dims, kF32, strides}; }
  void SwapLast() {
    std::swap(dims[dims.size() - 1], dims[dims.size() - 2]);
    std::swap(strides[dims.size() - 1], strides[dims.size() - 2]);
  }
  // Leading axes of extent one, up to `rank`.
  void Widen(size_t rank) {
    dims.insert(dims.begin(), rank - dims.size(), 1);
    strides.insert(strides.begin(), rank - strides.size(), dims.back());
  }
  // All leading axes as rows of one matrix; only of row-major tensors.
  void Flatten() {
    const int64_t columns = dims.back();
    dims = {NumElements(dims) / columns, columns};
    strides = {columns, 1};
  }
};

// A primitive, the layouts it wants and those of the workload's arrays.
struct Plan {
  dnnl::primitive primitive;
  std::string name;
  memory::desc src, weights, dst;
  memory::desc plain_src, plain_weights, plain_dst;
};

template <typename Primitive>
Plan PlanOf(const typename Primitive::desc& desc, const Layout& src, const Layout& weights, const Layout& dst) {
  const typename Primitive::primitive_desc pd(desc, Engine());
  return {Primitive(pd), pd.impl_info_str(), pd.src_desc(),  pd.weights_desc(),
          pd.dst_desc(), src.desc(),         weights.desc(), dst.desc()};
}

std::vector<Plan> PlanConvolution(const Workload& w) {
  const Workload::Call& call = w.calls[0];
  const Layout src(w.TypeOf(call.args[0])), dst(call.type);
  Layout weights(w.TypeOf(call.args[1]));
  if (const int64_t group = call.attrs.Int("group", 1); group > 1) {
    weights.strides.insert(weights.strides.begin(), weights.dims[0] / group * weights.strides[0]);
    weights.dims[0] /= group;
    weights.dims.insert(weights.dims.begin(), group);
  }
  const std::vector<int64_t> pads = call.attrs.Ints("pads", {0, 0, 0, 0});
  memory::dims dilations = call.attrs.Ints("dilations", {1, 1});
  for (int64_t& d : dilations) --d;  // oneDNN counts the gaps
  return {PlanOf<dnnl::convolution_forward>({dnnl::prop_kind::forward_inference,
                                             dnnl::algorithm::convolution_direct,
                                             Any(src.dims),
                                             Any(weights.dims),
                                             Any(dst.dims),
                                             call.attrs.Ints("strides", {1, 1}),
                                             dilations,
                                             {pads[0], pads[1]},
                                             {pads[2], pads[3]}},
                                            src, weights, dst)};
}

std::vector<Plan> PlanMatmul(const Workload& w) {
  const Workload::Call& call = w.calls[0];
  const TensorType &a_type = w.TypeOf(call.args[0]), &b_type = w.TypeOf(call.args[1]);
  Layout a(a_type), b(b_type), dst(call.type);
  if (call.attrs.Int("trans_a", 0) != 0) a.SwapLast();
  if (call.attrs.Int("trans_b", 0) != 0) b.SwapLast();
  const bool dense = w.inputs[static_cast<size_t>(call.args[1])].constant && b_type.shape.size() == 2 &&
                     a_type.perm.empty() && call.type.perm.empty() && call.attrs.Int("trans_a", 0) == 0;
  if (!dense) {
    a.Widen(dst.dims.size());
    b.Widen(dst.dims.size());
    return {PlanOf<dnnl::matmul>({a.desc(), b.desc(), dst.desc()}, a, b, dst)};
  }
  a.Flatten();
  dst.Flatten();
  std::vector<Plan> plans = {PlanOf<dnnl::matmul>({Any(a.dims), Any(b.dims), Any(dst.dims)}, a, b, dst)};
  b.SwapLast();
  plans.push_back(PlanOf<dnnl::inner_product_forward>(
      {dnnl::prop_kind::forward_inference, Any(a.dims), Any(b.dims), Any(dst.dims)}, a, b, dst));
  return plans;
}

class OneDnnProgram : public worker::Program {
 public:
  OneDnnProgram(Plan plan, std::shared_ptr<worker::WorkloadState> state)
      : plan_(std::move(plan)), state_(std::move(state)), stream_(Engine()) {}

  absl::Status SetUp(const worker::CachePlan& cache) {
    const Workload& w = state_->workload;
    const size_t src = static_cast<size_t>(w.calls[0].args[0]), weights = static_cast<size_t>(w.calls[0].args[1]);
    const int64_t bytes = static_cast<int64_t>(plan_.weights.get_size());
    const int64_t copies = w.inputs[weights].constant ? worker::CountCopies(cache, bytes) : 1;
    TEMPER_ASSIGN_OR_RETURN(arena_,
                            worker::Arena::Make(Room(plan_.src) + Room(plan_.dst) + copies * Room(plan_.weights)));
    source_ = Hold(*state_->operands[src], plan_.plain_src, plan_.src);
    plain_output_ = memory(plan_.plain_dst, Engine(), state_->output->address(0));
    output_ = Place(plan_.dst);
    for (int64_t c = 0; c < copies; ++c) {
      weights_.push_back(Hold(*state_->operands[weights], plan_.plain_weights, plan_.weights));
      args_.push_back(
          {{DNNL_ARG_SRC, source_.get()}, {DNNL_ARG_WEIGHTS, weights_.back().get()}, {DNNL_ARG_DST, output_.get()}});
    }
    return absl::OkStatus();
  }

  absl::StatusOr<double> Verify() override {
    constexpr uint8_t kNan = 0xff;
    TEMPER_RETURN_IF_ERROR(state_->output->Fill(kNan));
    std::memset(output_.get_data_handle(), kNan, plan_.dst.get_size());
    const int64_t start = MonotonicNs();
    Call(0);
    const int64_t ns = MonotonicNs() - start;
    TEMPER_RETURN_IF_ERROR(CheckAfterwards());
    return static_cast<double>(ns) * 1e-9;
  }

  double Time(int64_t calls) override {
    const int64_t start = MonotonicNs();
    for (int64_t i = 0; i < calls; ++i) {
      Call(next_copy_);
      if (++next_copy_ == args_.size()) next_copy_ = 0;
    }
    return static_cast<double>(std::max<int64_t>(MonotonicNs() - start, 1)) * 1e-9;
  }

  absl::Status CheckAfterwards() override {
    dnnl::reorder(output_, plain_output_).execute(stream_, output_, plain_output_);
    stream_.wait();
    if (!ok_) return absl::InternalError(absl::StrCat(plan_.name, " failed"));
    return worker::CheckOutput(state_->output->address(0), state_->reference);
  }

 private:
  // By the C interface: the C++ one makes a map and a vector of the arguments each time.
  void Call(size_t copy) {
    const auto& args = args_[copy];
    ok_ &= dnnl_primitive_execute(plan_.primitive.get(), stream_.get(), static_cast<int>(args.size()), args.data()) ==
           dnnl_success;
  }

  static int64_t Room(const memory::desc& desc) { return worker::RoomOf(static_cast<int64_t>(desc.get_size())); }
  memory Place(const memory::desc& desc) {
    return memory(desc, Engine(), arena_.Place(static_cast<int64_t>(desc.get_size())));
  }

  // A copy of the array, in the wanted layout.
  memory Hold(const worker::Block& array, const memory::desc& plain, const memory::desc& wanted) {
    memory as_is(plain, Engine(), array.address(0)), copy = Place(wanted);
    dnnl::reorder(as_is, copy).execute(stream_, as_is, copy);
    stream_.wait();
    return copy;
  }

  const Plan plan_;
  const std::shared_ptr<worker::WorkloadState> state_;
  dnnl::stream stream_;
  worker::Arena arena_;  // as ours
  std::vector<memory> weights_;
  memory source_, output_, plain_output_;
  std::vector<std::vector<dnnl_exec_arg_t>> args_;  // by copy of the weights
  size_t next_copy_ = 0;
  bool ok_ = true;
};

absl::StatusOr<Contender> MakeContender(Plan plan, const Bench& bench,
                                        const std::shared_ptr<worker::WorkloadState>& state) {
  Contender c;
  c.name = "onednn";
  c.what = plan.name;
  auto program = std::make_unique<OneDnnProgram>(std::move(plan), state);
  TEMPER_RETURN_IF_ERROR(program->SetUp(bench.cache));
  if (absl::Status status = program->Verify().status(); !status.ok())
    return absl::Status(status.code(), absl::StrCat("oneDNN's ", c.what, ": ", status.message()));
  c.error = worker::OutputError(state->output->address(0), state->reference);
  c.program = std::move(program);
  return c;
}

}  // namespace

absl::Status SetUpOneDnn(const CpuTarget& t) {
  const bool avx512 = t.vector_bits >= 512, avx2 = t.vector_bits >= 256;
  const dnnl::cpu_isa isa = avx512 ? dnnl::cpu_isa::all : avx2 ? dnnl::cpu_isa::avx2 : dnnl::cpu_isa::sse41;
  if (dnnl::set_max_cpu_isa(isa) != dnnl::status::success)
    return absl::FailedPreconditionError("oneDNN does not let its instructions be limited");
  omp_set_num_threads(t.threads);
  cpu_set_t mask;
  if (t.threads == 1 || sched_getaffinity(0, sizeof mask, &mask) != 0 || CPU_COUNT(&mask) != t.threads)
    return absl::OkStatus();
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &mask)) cpus.push_back(cpu);
  }
#pragma omp parallel
  {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpus[static_cast<size_t>(omp_get_thread_num())], &one);
    sched_setaffinity(0, sizeof one, &one);
  }
  return absl::OkStatus();
}

absl::StatusOr<Contender> OneDnnKernel(const Bench& bench, const std::shared_ptr<worker::WorkloadState>& state) try {
  const Workload& w = state->workload;
  std::vector<Plan> plans = w.calls[0].op == "conv2d" ? PlanConvolution(w) : PlanMatmul(w);
  constexpr int kTrials = 3;
  absl::StatusOr<Contender> best = absl::UnimplementedError("oneDNN has nothing for this shape");
  double best_s = 0;
  for (Plan& plan : plans) {
    TEMPER_ASSIGN_OR_RETURN(Contender c, MakeContender(std::move(plan), bench, state));
    if (plans.size() == 1) return c;
    for (int i = 0; i < kTrials; ++i) TakeSample(c);
    const double s = Median(c.samples_s);
    c.samples_s.clear();
    if (best.ok() && s >= best_s) continue;
    best = std::move(c);
    best_s = s;
  }
  return best;
} catch (const dnnl::error& e) {
  return absl::UnimplementedError(absl::StrCat("oneDNN: ", e.what()));
}

}  // namespace temper::bench
