#include "tests/server/toys.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "compiler/ops/templates/cpu_template.h"

namespace temper {
namespace {

double SecondsOf(const Workload& w) { return w.calls[0].attrs.Float("seconds", 1e-3); }

ConfigSpace Space(const Workload& w, const CpuTarget&) {
  ConfigSpace space;
  std::vector<int64_t> rows(w.calls[0].attrs.Int("points", 10) / 10), columns(10);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<int64_t>(i);
  for (size_t i = 0; i < columns.size(); ++i) columns[i] = static_cast<int64_t>(i);
  space.Add("row", rows);
  space.Add("column", columns);
  return space;
}

CpuFootprint FootprintOf(const Workload& w, const Config& c, const CpuTarget&) {
  CpuFootprint f;
  f.flops = f.padded_flops = 1e9 * SecondsOf(w) * (1 + static_cast<double>(c["column"]) / 10);
  f.vector_lanes = 8;
  f.tile_rows = 6;
  f.tile_columns = 16;
  f.reduction = 64;
  return f;
}

class Toys : public ::testing::Environment {
 public:
  void SetUp() override;
};
[[maybe_unused]] const ::testing::Environment* const kToys = ::testing::AddGlobalTestEnvironment(new Toys);

void Toys::SetUp() {
  OpDef op;
  op.name = "toy";
  op.pattern = OpPattern::kAnchor;
  op.min_inputs = op.max_inputs = 1;
  op.infer = [](const Attrs&, std::span<const TensorType> inputs) -> absl::StatusOr<TensorType> { return inputs[0]; };
  op.flops = [](const Attrs& attrs, std::span<const TensorType>, const TensorType&) {
    return 1e9 * attrs.Float("seconds", 1e-3);
  };
  RegisterOp(std::move(op));
  CpuTemplate def;
  def.name = "toy.grid";
  def.version = 3;
  def.matches = [](const Workload& w) { return w.calls[0].op == "toy"; };
  def.space = Space;
  def.build = [](const Workload&, const Config&, const CpuTarget&) -> absl::StatusOr<Kernel> {
    return absl::UnimplementedError("a toy");
  };
  def.footprint = FootprintOf;
  RegisterTemplate(ForCpu(std::move(def)));
}

}  // namespace

Workload ToyWorkload(const std::string& name, int points, double seconds) {
  Workload w;
  w.inputs.push_back({{DType::kF32, {4}, {}}, false});
  Workload::Call call;
  call.op = "toy";
  call.attrs.Set("name", name);
  call.attrs.Set("points", int64_t{points});
  call.attrs.Set("seconds", seconds);
  call.args = {0};
  call.type = {DType::kF32, {4}, {}};
  w.calls.push_back(call);
  return w;
}

double ToyCost(const Workload& w, const std::string& config) {
  const double unknown = static_cast<double>(StableHash(absl::StrCat(Text(w), config)) % 1000) / 1000;
  const absl::StatusOr<Config> parsed = ParseConfig(config);
  return SecondsOf(w) * (1 + static_cast<double>((*parsed)["column"]) / 10) * (0.2 + unknown);
}

std::string ToyTarget() {
  return Text(Target{.device = CpuTarget{.cpu = "x86-64-v3", .features = {"avx2", "fma"}, .vector_bits = 256}});
}

}  // namespace temper
