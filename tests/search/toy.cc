#include "tests/search/toy.h"

#include <algorithm>
#include <cmath>

#include "base/hash.h"
#include "compiler/ops/templates/cpu_template.h"

namespace temper {
namespace {

constexpr double kM = 784, kN = 256, kK = 1152;

std::string Spaces(const Workload& w) { return w.calls[0].attrs.String("spaces", ""); }

ConfigSpace GemmSpace() {
  ConfigSpace space;
  space.Add("mr", {1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14});
  space.Add("nr", {8, 16, 24, 32, 48, 64});
  space.Add("kb", {16, 32, 64, 96, 128, 192, 288, 384, 576, 1152});
  space.Add("mc", {28, 56, 112, 196, 392, 784});
  space.Add("nc", {64, 128, 256});
  space.Add("unroll", {1, 2, 4, 8});
  space.Add("order", {0, 1, 2});
  space.Require("the register tile spills", [](const Config& c) { return c["mr"] * c["nr"] / 8 <= 28; });
  return space;
}

CpuFootprint GemmFootprint(const Config& c) {
  const double mr = c["mr"], nr = c["nr"], kb = c["kb"], mc = c["mc"], nc = c["nc"];
  CpuFootprint f;
  f.flops = 2 * kM * kN * kK;
  f.padded_flops = 2 * std::ceil(kM / mr) * mr * std::ceil(kN / nr) * nr * kK;
  f.vector_lanes = 8;
  f.tile_rows = mr;
  f.tile_columns = nr;
  f.tile_registers = mr * nr / 8 + nr / 8 + 1;
  f.reduction = kb;
  f.loads_per_fma = 1 / mr + 8 / nr;
  f.l1_bytes = 4 * kb * (mr + nr);
  f.l2_bytes = 4 * kb * (mc + nc);
  f.l2_traffic = 4 * kM * kN * kK * (1 / mr + 1 / nr) / 8;
  f.memory_traffic = 4 * kM * kN * kK * (1 / mc + 1 / nc);
  f.compulsory_bytes = 4 * (kM * kK + kK * kN + kM * kN);
  f.parallel_chunks = std::ceil(kM / mc) * (kN / nc);
  f.chunk_imbalance = 1;
  f.code_ops = mr * nr / 8 * static_cast<double>(c["unroll"]);
  return f;
}

// What no footprint tells: odd tiles suffer, one order of loops is better with long reductions, unrolling by 4 pays.
double GemmResidual(const Config& c) {
  double slower = 0;
  if (c["mr"] % 2 == 1) slower += 0.25;
  if (c["order"] == 1) slower += c["kb"] >= 192 ? -0.2 : 0.3;
  if (c["order"] == 2) slower += 0.15;
  slower += 0.12 * std::abs(std::log2(static_cast<double>(c["unroll"])) - 2);
  if (c["kb"] * (c["mc"] + c["nc"]) * 4 > 400'000) slower += 0.4;
  if (c["nr"] == 48) slower -= 0.2;
  const double noise = static_cast<double>(StableHash(Text(c)) % 1000) / 1000;
  return std::exp(slower + 0.04 * noise);
}

// Machines without rhyme or reason: each value of a knob, and each pair of them, costs what a hash says.
double OddResidual(const Config& c, int machine) {
  const auto odd = [&](const std::string& text) {
    return static_cast<double>(StableHash(text + std::to_string(machine)) % 1000) / 1000;
  };
  const double strength = machine % 2 == 1 ? 0.25 : 0.6;
  double slower = 0;
  std::vector<std::string> texts;
  for (const auto& [name, value] : c.values()) {
    texts.push_back(name + std::to_string(value));
    slower += strength * odd(texts.back());
    for (size_t i = 0; i + 1 < texts.size(); ++i) slower += 0.5 * strength * odd(texts.back() + texts[i]);
  }
  return std::exp(slower);
}

ConfigSpace SmallSpace() {
  ConfigSpace space;
  space.Add("a", {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14});
  space.Add("b", {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20});
  space.Require("every third is illegal", [](const Config& c) { return (c["a"] + c["b"]) % 3 != 0; });
  return space;
}

CpuFootprint PlainFootprint(double seconds_like) {
  CpuFootprint f;
  f.flops = f.padded_flops = 1e9 * seconds_like;
  f.vector_lanes = 8;
  f.tile_rows = 6;
  f.tile_columns = 16;
  f.reduction = 64;
  return f;
}

ConfigSpace NeedleSpace() {
  ConfigSpace space;
  std::vector<int64_t> values(300);
  for (int i = 0; i < 300; ++i) values[i] = i;
  space.Add("x", values);
  values.resize(100);
  space.Add("y", values);
  space.Require("only one fits", [](const Config& c) { return c["x"] == 123 && c["y"] == 45; });
  return space;
}

ConfigSpace PointSpace() {
  ConfigSpace space;
  space.Add("only", {7});
  return space;
}

ConfigSpace VoidSpace() {
  ConfigSpace space;
  space.Add("a", {1, 2});
  space.Require("nothing fits", [](const Config&) { return false; });
  return space;
}

template <ConfigSpace (*make)(), CpuFootprint (*footprint)(const Config&)>
void Register(std::string_view name, std::vector<std::string> spaces) {
  CpuTemplate def;
  def.name = name;
  def.version = 1;
  def.matches = [spaces](const Workload& w) {
    return w.calls[0].op == "toy" && std::find(spaces.begin(), spaces.end(), Spaces(w)) != spaces.end();
  };
  def.space = [](const Workload&, const CpuTarget&) { return make(); };
  def.build = [](const Workload&, const Config&, const CpuTarget&) -> absl::StatusOr<Kernel> {
    return absl::UnimplementedError("a toy");
  };
  def.footprint = [](const Workload&, const Config& c, const CpuTarget&) { return footprint(c); };
  RegisterTemplate(ForCpu(std::move(def)));
}

CpuFootprint Constant(const Config&) { return PlainFootprint(1); }
CpuFootprint SmallFootprint(const Config& c) {
  return PlainFootprint(0.02 * static_cast<double>(20 + c["a"] + c["b"]));
}
ConfigSpace Knobless() { return {}; }

}  // namespace

void RegisterToys() {
  OpDef op;
  op.name = "toy";
  op.pattern = OpPattern::kOpaque;
  op.min_inputs = op.max_inputs = 1;
  op.infer = [](const Attrs&, std::span<const TensorType> inputs) -> absl::StatusOr<TensorType> { return inputs[0]; };
  RegisterOp(std::move(op));
  Register<VoidSpace, Constant>("toy.void", {"void"});
  Register<NeedleSpace, Constant>("toy.needle", {"needle"});
  Register<Knobless, Constant>("toy.knobless", {"knobless"});
  Register<PointSpace, Constant>("toy.point", {"point"});
  Register<SmallSpace, SmallFootprint>("toy.small", {"small", "two"});
  Register<GemmSpace, GemmFootprint>("toy.gemm", {"gemm", "two"});
}

Workload ToyWorkload(const std::string& spaces) {
  Workload w;
  w.inputs.push_back({{DType::kF32, {4}, {}}, false});
  Workload::Call call;
  call.op = "toy";
  call.attrs.Set("spaces", spaces);
  call.args = {0};
  call.type = {DType::kF32, {4}, {}};
  w.calls.push_back(call);
  return w;
}

TunerContext ToyContext(const std::string& spaces, uint64_t seed) {
  const CpuTarget haswell{.cpu = "haswell", .vector_bits = 256, .vector_registers = 32};
  return {ToyWorkload(spaces), Target{.device = haswell}, seed};
}

double ToyCost(const TunerContext& context, const Proposal& candidate, int machine) {
  const TemplateDef* def = FindTemplate(candidate.template_name);
  const double draft_s = def->footprint(context.workload, candidate.config, context.target).draft_s;
  if (machine == kTrueToDraft) return draft_s;
  if (candidate.template_name == "toy.gemm")
    return draft_s * (machine == 0 ? GemmResidual(candidate.config) : OddResidual(candidate.config, machine));
  return Spaces(context.workload) == "two" ? 0.3 * draft_s : draft_s;
}

}  // namespace temper
