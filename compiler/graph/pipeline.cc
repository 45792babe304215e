#include "compiler/graph/pipeline.h"

#include <algorithm>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "compiler/graph/passes/passes.h"

namespace temper {
namespace {

// A pass that does the same for every target.
template <absl::Status (*pass)(Graph&)>
absl::Status Always(Graph& g, const Target&) {
  return pass(g);
}

constexpr PassDef kPasses[] = {
    {"widen", passes::WidenFloats},
    {"integers", passes::MultiplyIntegers},
    {"fold-constants", Always<passes::FoldConstants>},
    {"cse", Always<passes::EliminateCommonSubexpressions>},
    {"dead-code", Always<passes::RemoveDeadCode>},
    {"simplify", Always<passes::Simplify>},
    {"merge", passes::MergeContractions},
    {"neighbours", passes::NeighboursAsChannels},
    {"layout", Always<passes::ChooseLayouts>},
    {"fuse", passes::Fuse},
    {"alternatives", passes::ProposeAlternatives},
};

absl::Status RunPass(const PassDef& pass, Graph& g, const Target& t) {
  absl::Status status = pass.run(g, t);
  if (status.ok()) status = Verify(g);
  if (!status.ok())
    return absl::Status(status.code(),
                        absl::StrCat("pass ", std::string(pass.name), ": ", std::string(status.message())));
  return absl::OkStatus();
}

// Other filters have no choice, and keep the records they share with models that allow it.
void ForbidWinograd(Graph& g) {
  for (Node& node : g.nodes) {
    if (node.op != "conv2d") continue;
    const Shape& filter = g.values[static_cast<size_t>(node.inputs[1])].type.shape;
    if (filter[2] == 3 && filter[3] == 3) node.attrs.Set("winograd", int64_t{0});
  }
}

// Of operators that take the attribute. Where none of its products could be rounded so, a node keeps the records it
// shares with models that do not allow it.
void AllowRounding(Graph& g, const char* attribute) {
  for (Node& node : g.nodes) {
    const OpDef& op = *FindOp(node.op);
    if (op.types != OpTypes::kContracts) continue;
    const TensorType types[] = {g.values[static_cast<size_t>(node.inputs[0])].type,
                                g.values[static_cast<size_t>(node.inputs[1])].type};
    const Shape& weight = types[1].shape;
    const int64_t groups = node.attrs.Int("group", 1);
    const bool depthwise = groups > 1 && weight[0] == groups && weight[1] == 1;
    Attrs attrs = node.attrs;
    attrs.Set(attribute, int64_t{1});
    if (types[1].dtype == DType::kF32 && !depthwise && op.infer(attrs, types).ok()) node.attrs = std::move(attrs);
  }
}

absl::Status AllowTf32(Graph& g, const Target& t) {
  if (t.gpu() == nullptr || !t.gpu()->tensor_cores) {
    return absl::InvalidArgumentError(
        absl::StrCat("target ", t.name(), " multiplies nothing in TF32; targets of cuda do, from sm_80 on"));
  }
  AllowRounding(g, "tf32");
  return absl::OkStatus();
}

absl::Status AllowBf16(Graph& g, const Target& t) {
  if (t.cpu() == nullptr || (!t.cpu()->Has("amx-bf16") && !t.cpu()->Has("avx512bf16"))) {
    return absl::InvalidArgumentError(
        absl::StrCat("target ", t.name(), " multiplies no f32 in bf16; CPUs with amx-bf16 or avx512bf16 do"));
  }
  AllowRounding(g, "bf16");
  return absl::OkStatus();
}

}  // namespace

std::span<const PassDef> AllPasses() { return kPasses; }

absl::Status Optimize(Graph& g, const Target& t, const PipelineOptions& options) {
  for (const std::string& name : options.disabled) {
    const bool known =
        std::any_of(std::begin(kPasses), std::end(kPasses), [&](const PassDef& p) { return p.name == name; });
    if (!known) return absl::InvalidArgumentError(absl::StrCat("no pass is called '", name, "'"));
  }
  TEMPER_RETURN_IF_ERROR(Verify(g));
  if (!options.winograd) ForbidWinograd(g);
  if (options.tf32) TEMPER_RETURN_IF_ERROR(AllowTf32(g, t));
  if (options.bf16) TEMPER_RETURN_IF_ERROR(AllowBf16(g, t));
  std::string before = options.print != nullptr ? Text(g) : "";
  if (options.print != nullptr) *options.print << "== before passes\n" << before;
  for (const PassDef& pass : kPasses) {
    if (options.disabled.contains(std::string(pass.name))) continue;
    const size_t nodes = g.nodes.size();
    TEMPER_RETURN_IF_ERROR(RunPass(pass, g, t));
    spdlog::debug("pass {}: {} nodes -> {} nodes, {} groups", pass.name, nodes, g.nodes.size(), g.groups.size());
    if (options.print == nullptr) continue;
    std::string after = Text(g);
    if (after == before) continue;
    *options.print << "== after " << pass.name << "\n" << after;
    before = std::move(after);
  }
  if (options.disabled.contains("fuse")) passes::GroupEachNode(g);
  return Verify(g);
}

}  // namespace temper
