#include "compiler/package/package.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/division.h"
#include "base/hash.h"
#include "base/shape_limits.h"
#include "compiler/codegen/compile_cache.h"
#include "compiler/codegen/link.h"
#include "compiler/graph/alias.h"
#include "compiler/graph/behind.h"
#include "compiler/graph/ended_steps.h"
#include "compiler/graph/extract.h"
#include "compiler/graph/memory_plan.h"
#include "compiler/ops/default_choice.h"
#include "compiler/package/embedded.h"
#include "compiler/package/prefix.h"
#include "compiler/package/weights.h"
#include "compiler/runtime/plan.h"
#include "compiler/schedule/embed.h"
#include "compiler/schedule/lower.h"
#include "compiler/schedule/skip_behind.h"
#include "include/temper/model.h"

namespace temper {
namespace {

namespace fs = std::filesystem;

// One generated kernel, used by every group whose workload and choice agree.
struct BuiltKernel {
  Workload workload;
  KernelChoice choice;
  Kernel kernel;
  CompiledKernel compiled;
  std::optional<Part> part;  // of a larger value, which it writes
  int in_place = -1;         // the parameter whose bytes its result takes
  std::vector<int> extents;  // that parameters before its result tell, in order: GraphBehind's
  int uses = 0;
};

struct StepSource {
  const Group* group;
  std::string symbol;
  Extracted extracted;
};

// A variant on its way into the plan.
struct Making {
  const Graph& g;
  const std::string& name;
  std::vector<StepSource> steps;
  std::vector<ValueId> in_place;  // per group: the operand whose bytes its result takes, or kNoValue
  GraphBehind behind;
  BufferPlan memory;
  int64_t moved_bytes = 0;  // behind the planned arena: operands of one step that were moved
  PlanVariant out;

  size_t GroupIndex(const Group& group) const { return static_cast<size_t>(&group - g.groups.data()); }
};

const temper_device* DeviceOf(const Target& target) {
  const absl::StatusOr<const CodeGenerator*> generator = GeneratorFor(target);
  return generator.ok() ? (*generator)->device : nullptr;
}

// Of the code that runs on the CPU: kernels for devices are called by this machine's.
CpuArch ArchOf(const Target& target) {
  return DeviceOf(target) == nullptr && target.cpu() != nullptr ? target.cpu()->arch() : HostArch();
}

absl::Status CheckRuntime(const Target& target) {
  const CpuArch arch = ArchOf(target);
  if (!RuntimeObject(arch).empty()) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat("target ", target.name(), " is one of ", std::string(Name(arch)),
                                               ", for which this build of Temper has no runtime (docs/builds.md)"));
}

class PackageWriter {
 public:
  PackageWriter(std::span<const PackageVariant> variants, const Target& t, const ChooseFn& choose, CompileCache& cache,
                const PackageOptions& options)
      : target_(t),
        choose_(choose),
        cache_(cache),
        prefix_(options.prefix),
        lock_(options.lock),
        device_(DeviceOf(t)),
        weights_(cache, Alignment()) {
    for (const PackageVariant& v : variants) variants_.push_back({v.graph, v.name, {}, {}, {}, {}, 0, {}});
  }

  absl::StatusOr<PackageReport> Write(const std::string& dir) {
    for (Making& v : variants_) TEMPER_RETURN_IF_ERROR(CollectKernels(v));
    TEMPER_RETURN_IF_ERROR(CompileKernels());
    for (Making& v : variants_) {
      TEMPER_ASSIGN_OR_RETURN(v.memory, PlanMemory(v.g, {ScratchBytes(v), v.in_place, ExtentsRead(v), Alignment()}));
      TEMPER_RETURN_IF_ERROR(MakeSteps(v));
      v.out.arena_bytes = v.memory.arena_bytes + v.moved_bytes;
      out_.variants.push_back(v.out);
    }
    if (OnDevice()) out_.device = target_.generator;
    out_.scratch_threads = target_.threads();
    out_.weight_bytes = weights_.bytes();
    if (target_.cpu() != nullptr) out_.cpu_features = FeaturesInUse();
    out_.caller_alignment = CallerAlignment();
    TEMPER_ASSIGN_OR_RETURN(out_.weight_hash, weights_.Write(dir + "/weights.bin"));
    TEMPER_ASSIGN_OR_RETURN(std::string plan_object, CompilePlan(out_, ArchOf(target_)));
    objects_.push_back(std::move(plan_object));
    objects_.emplace_back(RuntimeObject(ArchOf(target_)));
    TEMPER_RETURN_IF_ERROR(LinkLibrary(absl::StrCat(dir, "/", LibraryName(prefix_))));
    std::ofstream(dir + "/model.h") << HeaderOf(prefix_);
    TEMPER_ASSIGN_OR_RETURN(const std::string library_hash, HashOfFile(absl::StrCat(dir, "/", LibraryName(prefix_))));
    std::ofstream manifest(dir + "/manifest.json");
    manifest << Manifest(library_hash) << "\n";
    manifest.close();
    if (!manifest)
      return absl::UnavailableError(absl::StrCat("cannot write ", dir, "/manifest.json: is the disk full?"));
    PackageReport report;
    report.arena_bytes = ArenaBytes();
    report.variants = static_cast<int>(variants_.size());
    report.weight_bytes = weights_.bytes();
    for (const auto& [symbol, built] : kernels_) {
      report.kernels += built.uses;
      report.tuned_kernels += built.choice.level == "default" ? 0 : built.uses;
    }
    for (const PlanStep& step : out_.variants.front().steps) {
      PackageStep& told = report.steps.emplace_back();
      if (step.symbol.empty()) continue;
      const BuiltKernel& built = kernels_.at(step.symbol);
      told = {Text(built.workload), built.choice.template_name, Text(built.choice.config)};
    }
    return report;
  }

 private:
  bool OnDevice() const { return device_ != nullptr && device_->allocate != nullptr; }
  int Memory() const { return OnDevice() ? TEMPER_MEMORY_DEVICE : TEMPER_MEMORY_HOST; }
  int64_t Alignment() const { return OnDevice() ? TEMPER_DEVICE_ALIGNMENT : 64; }

  // A process has to ask for the registers of matrix tiles, and may not get them: a package without such kernels needs
  // none.
  std::vector<std::string> FeaturesInUse() const {
    std::set<std::string_view> used;
    for (const auto& [symbol, built] : kernels_) used.insert(FindTemplate(built.choice.template_name)->feature);
    const auto is_of_tiles = [](std::string_view feature) { return feature.starts_with("amx-"); };
    if (std::ranges::any_of(used, is_of_tiles)) used.insert("amx-tile");
    std::vector<std::string> features = target_.cpu()->features;
    std::erase_if(features, [&](const std::string& f) { return is_of_tiles(f) && !used.contains(f); });
    return features;
  }

  // NumPy's arrays and what malloc gives begin at multiples of 16, and some kernels take memory as it lies.
  int64_t CallerAlignment() const { return target_.cpu() != nullptr && target_.cpu()->TakesUnaligned() ? 16 : 64; }

  absl::Status CollectKernels(Making& v) {
    v.behind = BehindOf(v.g);
    KeepExtents(v);
    TEMPER_ASSIGN_OR_RETURN(std::vector<WholeKernel> whole, BuildWhole(v));
    if (!v.g.input_extents.empty() && device_ == nullptr) {
      std::vector<ir::Func> schedules(v.g.groups.size());
      for (const WholeKernel& w : whole) schedules[v.GroupIndex(*w.group)] = w.built->kernel.scheduled;
      v.behind = BehindOf(v.g, schedules);
    }
    const std::vector<std::optional<Part>> parts = PartsOfConcats(v.g);
    for (WholeKernel& w : whole) {
      const std::optional<Part>& part = parts[static_cast<size_t>(w.extracted.output)];
      std::string text = w.text;
      if (part.has_value()) absl::StrAppend(&text, " part=", part->inner, "/", part->total, "+", part->offset);
      const ExtentFacts facts = ExtentFactsOf(v.g, w.extracted, v.behind);
      // What is known then holds for this schedule.
      if (!facts.extents.empty())
        absl::StrAppend(&text, facts.text, " ", w.built->choice.template_name, " ", Text(w.built->choice.config));
      ValueId& in_place = v.in_place[v.GroupIndex(*w.group)];
      const auto operand = std::ranges::find(w.extracted.inputs, in_place);
      const int in_place_param = in_place == kNoValue ? -1 : static_cast<int>(operand - w.extracted.inputs.begin());
      if (in_place != kNoValue) absl::StrAppend(&text, " in_place=", in_place_param);
      auto [known, is_new] = symbol_of_.try_emplace(text);
      if (is_new) {
        BuiltKernel built = *w.built;
        TEMPER_RETURN_IF_ERROR(LeaveOut(facts, built));
        if (part.has_value()) {
          TEMPER_ASSIGN_OR_RETURN(built.kernel.main,
                                  EmbedOutput(built.kernel.main, part->inner, part->total, part->offset));
        }
        if (in_place_param >= 0 && ReadsWhatItWrites(built.kernel.main, static_cast<size_t>(in_place_param)))
          built.in_place = in_place_param;
        known->second = "k" + HashText(StableHash(text));
        built.part = part;
        kernels_.emplace(known->second, std::move(built));
      }
      BuiltKernel& built = kernels_.at(known->second);
      ++built.uses;
      if (built.in_place < 0) in_place = kNoValue;
      v.steps.push_back({w.group, known->second, std::move(w.extracted)});
    }
    return absl::OkStatus();
  }

  // Kernels may read extents later than the graph says: no result takes their bytes.
  static void KeepExtents(Making& v) {
    v.in_place = InPlaceOperands(v.g);
    const std::vector<ValueId> roots = AliasRoots(v.g);
    const auto root = [&](ValueId id) { return roots[static_cast<size_t>(id)]; };
    for (ValueId& taken : v.in_place) {
      const bool tells = taken != kNoValue && std::ranges::count(v.behind.extents, root(taken), root) > 0;
      if (tells) taken = kNoValue;
    }
  }

  // What is known of a kernel's operands and its result behind extents of inputs.
  struct ExtentFacts {
    std::vector<OperandFacts> operands;
    std::vector<Behind> output;
    std::set<int> extents;  // that they are about
    std::string text;       // different for different ones
  };

  // A group and its kernel, before anything is left out of it; groups alike have the same one.
  struct WholeKernel {
    const Group* group;
    Extracted extracted;
    std::string text;
    std::shared_ptr<const BuiltKernel> built;
  };
  absl::StatusOr<std::vector<WholeKernel>> BuildWhole(const Making& v) const {
    std::vector<WholeKernel> kernels;
    std::map<std::string, std::shared_ptr<const BuiltKernel>> known;
    const Aliases aliases(v.g);
    for (const Group& group : v.g.groups) {
      if (aliases.Have(group)) continue;
      WholeKernel& whole = kernels.emplace_back();
      whole.group = &group;
      TEMPER_ASSIGN_OR_RETURN(whole.extracted, Extract(v.g, group));
      whole.text = Text(whole.extracted.workload);
      const Node& anchor = v.g.nodes[static_cast<size_t>(group.nodes[static_cast<size_t>(group.anchor)])];
      const bool is_open = FindOp(anchor.op)->counted && EndsWithItsLines(v.g, anchor);
      if (is_open) absl::StrAppend(&whole.text, " open");
      const ExtentFacts facts = ExtentFactsOf(v.g, whole.extracted, v.behind);
      std::shared_ptr<const BuiltKernel>& built = known[absl::StrCat(whole.text, facts.text)];
      if (built == nullptr) {
        absl::StatusOr<BuiltKernel> fresh = BuildOne(v, whole.extracted.workload, facts, is_open);
        if (!fresh.ok()) return Annotate(fresh.status(), v.g, group);
        built = std::make_shared<const BuiltKernel>(*std::move(fresh));
      }
      whole.built = built;
    }
    return kernels;
  }

  absl::StatusOr<BuiltKernel> BuildOne(const Making& v, const Workload& w, const ExtentFacts& facts,
                                       bool is_open) const {
    BuiltKernel built;
    TEMPER_ASSIGN_OR_RETURN(built.choice, choose_(w, target_));
    if (built.choice.level == "default") TEMPER_RETURN_IF_ERROR(ChooseForRuns(v, facts, w, built.choice));
    Workload made = w;
    if (is_open) made.calls[0].attrs.Set("open", int64_t{1});
    TEMPER_ASSIGN_OR_RETURN(built.kernel, BuildKernel(made, built.choice.template_name, built.choice.config, target_));
    built.workload = w;
    return built;
  }

  static ExtentFacts ExtentFactsOf(const Graph& g, const Extracted& kernel, const GraphBehind& behind) {
    if (behind.places[static_cast<size_t>(kernel.output)]) return {};  // all of them have to be ones
    ExtentFacts facts{FactsOf(g, kernel, behind), behind.of[static_cast<size_t>(kernel.output)], {}, ""};
    // What is the same for a whole step leaves the step out, if anything: so steps share their kernel.
    const auto of_step = [](const Behind& b) { return ir::AsInt(b.place).has_value(); };
    std::erase_if(facts.output, of_step);
    for (OperandFacts& operand : facts.operands) std::erase_if(operand.behind, of_step);
    const auto note = [&](int extent, const std::string& what) {
      facts.extents.insert(extent);
      absl::StrAppend(&facts.text, " ", what);
    };
    for (const Behind& b : facts.output) note(b.extent, Text(b));
    for (size_t i = 0; i < facts.operands.size(); ++i) {
      const OperandFacts& operand = facts.operands[i];
      for (const Behind& b : operand.behind) note(b.extent, absl::StrCat(i, ":", Text(b)));
      if (operand.limit) note(operand.limit->extent, absl::StrCat(i, ":below", Text(*operand.limit)));
    }
    for (size_t i = 0; !facts.extents.empty() && i < facts.operands.size(); ++i) {
      if (facts.operands[i].counts > 0) absl::StrAppend(&facts.text, " ", i, ":counts", facts.operands[i].counts);
      if (facts.operands[i].number) absl::StrAppend(&facts.text, " ", i, "=", *facts.operands[i].number);
    }
    return facts;
  }

  // How much a run may have of a kernel's rows, which run along its last dimension. nullopt: it has all of them.
  static std::optional<SmallestRun> SmallestRunOf(const GraphBehind& behind, const ExtentFacts& facts) {
    SmallestRun run;
    std::set<int> seen;  // extents
    for (const Behind& b : facts.output) {
      const auto moves = [&](size_t axis) { return ir::UsesVar(b.place, b.index[axis]); };
      const size_t rank = b.index.size();
      if (b.kind == Behind::kMask || rank < 2 || moves(rank - 1) || !seen.insert(b.extent).second) continue;
      const ValueId told_by = behind.extents[static_cast<size_t>(b.extent)];
      const ExtentBound& extent = *behind.limits[static_cast<size_t>(told_by)];
      const double share = static_cast<double>(std::max<int64_t>(1, extent.least)) / static_cast<double>(extent.most);
      const int64_t line = b.shape[rank - 2];
      if (moves(rank - 2) && NumElements(std::span(b.shape).first(rank - 2)) > 1) {
        run.line = line;
        run.of_line = std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(line) * share));
      } else {
        run.share *= share;
      }
    }
    return run.share < 1 || run.line > 0 ? std::optional(run) : std::nullopt;
  }

  // The default config of a kernel of a CPU which may have fewer rows in a run.
  absl::Status ChooseForRuns(const Making& m, const ExtentFacts& facts, const Workload& w, KernelChoice& choice) const {
    if (target_.cpu() == nullptr) return absl::OkStatus();
    const std::optional<SmallestRun> run = SmallestRunOf(m.behind, facts);
    if (!run) return absl::OkStatus();
    TEMPER_ASSIGN_OR_RETURN(const Choice best, DefaultChoiceOfRuns(w, target_, *run));
    choice.template_name = std::string(best.def->name);
    choice.config = best.config;
    return absl::OkStatus();
  }

  // Devices read no extents.
  absl::Status LeaveOut(const ExtentFacts& facts, BuiltKernel& built) const {
    if (device_ != nullptr || built.kernel.scheduled.params.empty()) return absl::OkStatus();
    std::optional<Skipping> skipping = SkipBehind(built.kernel.scheduled, facts.operands, facts.output, facts.extents);
    if (!skipping) return absl::OkStatus();
    built.extents = std::move(skipping->extents);
    TEMPER_ASSIGN_OR_RETURN(built.kernel.main, Lower(skipping->func));
    return absl::OkStatus();
  }

  static absl::Status Annotate(const absl::Status& s, const Graph& g, const Group& group) {
    const Node& node = g.nodes[static_cast<size_t>(group.nodes[static_cast<size_t>(group.anchor)])];
    return absl::Status(s.code(), absl::StrCat("kernel for ", node.op, " '", node.name, "': ", s.message()));
  }

  absl::Status CompileKernels() {
    std::vector<CodegenInput> inputs;
    for (const auto& [symbol, built] : kernels_) inputs.push_back({symbol, built.kernel.main, built.in_place});
    std::vector<absl::StatusOr<std::shared_ptr<const Artifact>>> modules(inputs.size());
    std::atomic<size_t> next{0};
    auto work = [&] {
      for (size_t i; (i = next.fetch_add(1)) < inputs.size();) modules[i] = cache_.Compile(inputs[i], target_);
    };
    std::vector<std::thread> threads;
    for (unsigned i = 1; i < std::max(1u, std::thread::hardware_concurrency()); ++i) threads.emplace_back(work);
    work();
    for (std::thread& thread : threads) thread.join();
    for (const auto& module : modules) {
      TEMPER_RETURN_IF_ERROR(module.status());
      const CompiledKernel& kernel = (*module)->kernels.front();
      kernels_.at(kernel.symbol).compiled = kernel;
      TEMPER_ASSIGN_OR_RETURN(std::string object, HostObject(**module, target_));
      objects_.push_back(std::move(object));
    }
    return absl::OkStatus();
  }

  // Where a value's bytes are, graph inputs and outputs included.
  absl::StatusOr<PlanArg> Locate(const Making& m, ValueId value) {
    TEMPER_ASSIGN_OR_RETURN(PlanArg arg, LocateRoot(m, m.memory.alias_of[static_cast<size_t>(value)]));
    arg.offset += m.memory.start[static_cast<size_t>(value)];
    return arg;
  }

  absl::StatusOr<PlanArg> LocateRoot(const Making& m, ValueId root) {
    const Value& v = m.g.values[static_cast<size_t>(root)];
    for (size_t i = 0; i < m.g.inputs.size(); ++i) {
      if (m.g.inputs[i] == root) return PlanArg{TEMPER_ARG_INPUT, static_cast<int>(i)};
    }
    if (v.is_constant) {
      if (!v.constant.has_value())
        return absl::InvalidArgumentError(absl::StrCat("constant '", v.name, "' has no data"));
      TEMPER_ASSIGN_OR_RETURN(int64_t offset, weights_.Add(*v.constant, v.type, ir::Func{}));
      return PlanArg{TEMPER_ARG_WEIGHT, Memory(), offset};
    }
    if (m.memory.offset[static_cast<size_t>(root)] >= 0)
      return PlanArg{TEMPER_ARG_ARENA, Memory(), m.memory.offset[static_cast<size_t>(root)]};
    for (size_t i = 0; i < m.g.outputs.size(); ++i) {
      if (m.memory.alias_of[static_cast<size_t>(m.g.outputs[i])] == root)
        return PlanArg{TEMPER_ARG_OUTPUT, static_cast<int>(i)};
    }
    return absl::InternalError(absl::StrCat("value '", v.name, "' has no place in memory"));
  }

  absl::Status MakeSteps(Making& m) {
    const auto hidden = m.g.inputs.size() - static_cast<size_t>(m.g.hidden_inputs);
    const std::vector<std::optional<NeededFrom>> ended = EndedSteps(m.g, m.behind, m.in_place);
    for (const StepSource& source : m.steps) {
      const BuiltKernel& built = kernels_.at(source.symbol);
      PlanStep step;
      step.name = m.g.nodes[static_cast<size_t>(source.group->nodes[static_cast<size_t>(source.group->anchor)])].name;
      step.symbol = source.symbol;
      step.workspace_bytes = built.compiled.workspace_bytes;
      step.thread_workspace_bytes = built.compiled.thread_workspace_bytes;
      step.workspace_offset = std::max<int64_t>(0, m.memory.scratch[m.GroupIndex(*source.group)]);
      for (size_t i = 0; i < source.extracted.inputs.size(); ++i) {
        const ValueId value = source.extracted.inputs[i];
        const Value& v = m.g.values[static_cast<size_t>(value)];
        const bool packed = i < built.kernel.packs.size() && !built.kernel.packs[i].params.empty();
        if (packed && v.constant.has_value()) {
          TEMPER_ASSIGN_OR_RETURN(int64_t offset, weights_.Add(*v.constant, v.type, built.kernel.packs[i]));
          step.args.push_back({TEMPER_ARG_WEIGHT, Memory(), offset});
        } else {
          TEMPER_ASSIGN_OR_RETURN(PlanArg arg, Locate(m, value));
          step.args.push_back(arg);
        }
      }
      for (const int extent : built.extents) {
        TEMPER_ASSIGN_OR_RETURN(PlanArg arg, Locate(m, m.behind.extents[static_cast<size_t>(extent)]));
        step.args.push_back(arg);
      }
      TEMPER_ASSIGN_OR_RETURN(PlanArg output, Locate(m, source.extracted.output));
      step.args.push_back(output);
      if (OnDevice()) TEMPER_RETURN_IF_ERROR(Divide(m, built.kernel.main, step));
      if (const std::optional<NeededFrom>& needed = ended[m.GroupIndex(*source.group)]; needed && device_ == nullptr) {
        step.extent = static_cast<int64_t>(hidden) + needed->extent;
        step.least = needed->least;
      }
      m.out.steps.push_back(std::move(step));
    }
    for (ValueId id : m.g.inputs) m.out.inputs.push_back(IoOf(m.g, id));
    m.out.num_given = std::ssize(m.g.inputs) - m.g.hidden_inputs;
    for (const InputExtent& e : m.g.input_extents) {
      PlanIo& io = m.out.inputs[static_cast<size_t>(e.input)];
      io.extents.push_back({e.axis, e.told_by});
      io.unread = device_ == nullptr && m.behind.unread_inputs[static_cast<size_t>(e.input)];
      if (io.least.empty()) io.least = io.shape;
      io.least[static_cast<size_t>(e.axis)] = e.least;
    }
    for (size_t i = 0; i < m.g.outputs.size(); ++i) {
      m.out.outputs.push_back(IoOf(m.g, m.g.outputs[i]));
      TEMPER_ASSIGN_OR_RETURN(PlanArg place, Locate(m, m.g.outputs[i]));
      if (place.kind == TEMPER_ARG_OUTPUT && place.index == static_cast<int>(i)) continue;
      const Value& v = m.g.values[static_cast<size_t>(m.g.outputs[i])];
      PlanStep copy;
      copy.name = absl::StrCat("copy ", v.name);
      copy.args = {place, {TEMPER_ARG_OUTPUT, static_cast<int>(i)}};
      copy.copy_bytes = BytesOf(v.type.dtype, NumElements(v.type.shape));
      m.out.steps.push_back(std::move(copy));
    }
    m.out.num_results = std::ssize(m.g.outputs) - m.g.hidden;
    for (const Extent& e : m.g.extents)
      m.out.outputs[static_cast<size_t>(e.output)].extents.push_back({e.axis, e.told_by});
    return absl::OkStatus();
  }

  // A device's kernels take parts of its memory, which can not begin everywhere: what does not is moved before.
  absl::Status Divide(Making& m, const ir::Func& kernel, PlanStep& step) {
    int64_t moved = 0;
    for (size_t i = 0; i < step.args.size(); ++i) {
      PlanArg& arg = step.args[i];
      arg.bytes = BytesOf(kernel.params[i]->dtype, NumElements(kernel.params[i]->shape));
      if (arg.offset % Alignment() == 0) continue;
      if (i + 1 == step.args.size())
        return absl::UnimplementedError(absl::StrCat("the result of '", step.name, "' begins where no device divides"));
      PlanStep move;
      move.name = absl::StrCat("move to ", step.name);
      move.args = {arg, {TEMPER_ARG_ARENA, Memory(), m.memory.arena_bytes + moved}};
      move.copy_bytes = arg.bytes;
      arg.kind = TEMPER_ARG_ARENA;
      arg.index = Memory();
      arg.offset = m.memory.arena_bytes + moved;
      moved += RoundUp(arg.bytes, Alignment());
      m.out.steps.push_back(std::move(move));
    }
    m.moved_bytes = std::max(m.moved_bytes, moved);
    return absl::OkStatus();
  }

  // Per group: what its kernel needs beside its operands.
  std::vector<int64_t> ScratchBytes(const Making& m) const {
    std::vector<int64_t> bytes(m.g.groups.size(), 0);
    for (const StepSource& source : m.steps) {
      const CompiledKernel& kernel = kernels_.at(source.symbol).compiled;
      bytes[m.GroupIndex(*source.group)] = kernel.workspace_bytes + target_.threads() * kernel.thread_workspace_bytes;
    }
    return bytes;
  }

  // Per group: the extents by which its kernel leaves out.
  std::vector<std::vector<ValueId>> ExtentsRead(const Making& m) const {
    std::vector<std::vector<ValueId>> read(m.g.groups.size());
    for (const StepSource& source : m.steps) {
      for (const int extent : kernels_.at(source.symbol).extents)
        read[m.GroupIndex(*source.group)].push_back(m.behind.extents[static_cast<size_t>(extent)]);
    }
    return read;
  }

  absl::Status LinkLibrary(const std::string& path) {
    Exports exports = ExportsOf(prefix_);
    if (!prefix_.empty() && device_ != nullptr) {
      for (const std::string& name : {absl::StrCat("device_", target_.generator), std::string("device_version")})
        exports.renamed.emplace_back(FunctionName("", name), FunctionName(prefix_, name));
    }
    return LinkSharedLibrary(objects_, path, ArchOf(target_), exports);
  }

  static PlanIo IoOf(const Graph& g, ValueId id) {
    const Value& v = g.values[static_cast<size_t>(id)];
    return {v.name, v.type.dtype, v.type.shape, {}, {}};
  }

  // By offset in weights.bin, whose pieces lie one behind the other.
  std::map<int64_t, int64_t> ConstantBytes() const {
    std::map<int64_t, int64_t> bytes;
    for (const PlanVariant& variant : out_.variants) {
      for (const PlanStep& step : variant.steps) {
        for (const PlanArg& arg : step.args) {
          if (arg.kind == TEMPER_ARG_WEIGHT) bytes[arg.offset] = 0;
        }
      }
    }
    int64_t end = out_.weight_bytes;
    for (auto it = bytes.rbegin(); it != bytes.rend(); ++it) {
      it->second = end - it->first;
      end = it->first;
    }
    return bytes;
  }

  int64_t ArenaBytes() const {
    int64_t most = 0;
    for (const PlanVariant& variant : out_.variants) most = std::max(most, variant.arena_bytes);
    return most;
  }

  static nlohmann::ordered_json ToJson(std::span<const PlanIo> list) {
    nlohmann::ordered_json result = nlohmann::ordered_json::array();
    for (const PlanIo& io : list) {
      result.push_back({{"name", io.name}, {"dtype", std::string(Name(io.dtype))}, {"shape", io.shape}});
      for (const PlanExtent& e : io.extents) result.back()["varies"].push_back(e.axis);
      if (io.least.empty()) continue;
      result.back()["least"] = io.least;
      for (const PlanExtent& e : io.extents) result.back()["ranges"].push_back(e.told_by);
    }
    return result;
  }

  nlohmann::ordered_json KernelsJson() const {
    nlohmann::ordered_json result = nlohmann::ordered_json::array();
    for (const auto& [symbol, built] : kernels_) {
      result.push_back({{"symbol", symbol},
                        {"workload", Text(built.workload)},
                        {"uses", built.uses},
                        {"template", built.choice.template_name},
                        {"template_version", FindTemplate(built.choice.template_name)->version},
                        {"config", Text(built.choice.config)},
                        {"level", built.choice.level},
                        {"record", built.choice.record},
                        {"stale", built.choice.stale}});
      if (!built.extents.empty()) result.back()["told_extent"] = true;
      if (built.part.has_value()) result.back()["part"] = {built.part->inner, built.part->total, built.part->offset};
    }
    return result;
  }

  static nlohmann::ordered_json StepsJson(const PlanVariant& variant, const std::map<int64_t, int64_t>& constants) {
    nlohmann::ordered_json result = nlohmann::ordered_json::array();
    for (const PlanStep& step : variant.steps) {
      result.push_back({{"name", step.name}, {"symbol", step.symbol}});
      if (step.symbol.empty()) result.back()["copy_bytes"] = step.copy_bytes;
      int64_t bytes = 0;
      for (const PlanArg& arg : step.args) bytes += arg.kind == TEMPER_ARG_WEIGHT ? constants.at(arg.offset) : 0;
      result.back()["constant_bytes"] = bytes;
    }
    return result;
  }

  std::string Manifest(const std::string& library_hash) const {
    using nlohmann::ordered_json;
    const auto is_tuned = [](const auto& kernel) { return kernel.second.choice.level != "default"; };
    const std::map<int64_t, int64_t> constants = ConstantBytes();
    ordered_json variants = ordered_json::array();
    for (size_t i = 0; i < out_.variants.size(); ++i) {
      const PlanVariant& v = out_.variants[i];
      variants.push_back({{"name", variants_[i].name},
                          {"inputs", ToJson(std::span(v.inputs).first(static_cast<size_t>(v.num_given)))},
                          {"outputs", ToJson(std::span(v.outputs).first(static_cast<size_t>(v.num_results)))},
                          {"steps", StepsJson(v, constants)}});
    }
    ordered_json m;
    m["version"] = kPackageVersion;
    m["library"] = LibraryName(prefix_);
    m["prefix"] = prefix_;
    m["model"] = variants_.front().g.name;
    m["target"] = Text(target_);
    m["codegen_id"] = CodegenId(target_);
    m["tools"] = CodegenTools(target_);
    m["lock"] = lock_;
    m["files"] = {{LibraryName(prefix_), library_hash}, {"weights.bin", HashText(out_.weight_hash)}};
    m["inputs"] = variants.front()["inputs"];
    m["outputs"] = variants.front()["outputs"];
    m["caller_alignment"] = out_.caller_alignment;
    m["arena_bytes"] = ArenaBytes();
    m["weight_bytes"] = out_.weight_bytes;
    m["tuned"] = std::ranges::any_of(kernels_, is_tuned);
    m["kernels"] = KernelsJson();
    m["steps"] = variants.front()["steps"];
    if (variants.size() > 1) m["variants"] = std::move(variants);
    return m.dump(1, ' ', false, ordered_json::error_handler_t::replace);  // names come from model files
  }

  const Target& target_;
  const ChooseFn& choose_;
  CompileCache& cache_;
  const std::string& prefix_;
  const std::string& lock_;
  const temper_device* const device_;  // null: kernels are the host's code
  std::vector<Making> variants_;
  Plan out_;
  WeightWriter weights_;
  std::map<std::string, std::string> symbol_of_;  // workload and part -> symbol: each is chosen and built once
  std::map<std::string, BuiltKernel> kernels_;    // by symbol
  std::vector<std::string> objects_;
};

absl::Status IoError(const std::string& what, const std::error_code& error) {
  return absl::UnavailableError(absl::StrCat(what, ": ", error.message()));
}

// OK where the values of both lists have the same names, types and ranks.
absl::Status CheckSameIo(const Graph& a, std::span<const ValueId> a_list, const Graph& b,
                         std::span<const ValueId> b_list) {
  bool same = a_list.size() == b_list.size();
  for (size_t i = 0; same && i < a_list.size(); ++i) {
    const Value &x = a.values[static_cast<size_t>(a_list[i])], &y = b.values[static_cast<size_t>(b_list[i])];
    same = x.name == y.name && x.type.dtype == y.type.dtype && x.type.shape.size() == y.type.shape.size();
  }
  if (same) return absl::OkStatus();
  return absl::InvalidArgumentError("the model has other inputs or outputs");
}

// Callers see shapes as temper_tensor, whose rank has a limit.
absl::Status CheckShapes(const Graph& g, std::span<const ValueId> ids) {
  static_assert(kMaxTensorRank == TEMPER_MAX_RANK);
  for (const ValueId id : ids) {
    const Value& v = g.values[static_cast<size_t>(id)];
    if (const absl::Status sound = CheckTensorShape(v.type.shape); !sound.ok())
      return absl::InvalidArgumentError(absl::StrCat("value '", v.name, "': ", std::string(sound.message())));
  }
  return absl::OkStatus();
}

absl::Status CheckVariants(std::span<const PackageVariant> variants) {
  if (variants.empty()) return absl::InvalidArgumentError("a package has one variant at least");
  const auto given = [](const Graph& g) {
    return std::span(g.inputs).first(g.inputs.size() - static_cast<size_t>(g.hidden_inputs));
  };
  const auto results = [](const Graph& g) {
    return std::span(g.outputs).first(g.outputs.size() - static_cast<size_t>(g.hidden));
  };
  for (const PackageVariant& v : variants) {
    TEMPER_RETURN_IF_ERROR(CheckShapes(v.graph, v.graph.inputs));
    TEMPER_RETURN_IF_ERROR(CheckShapes(v.graph, v.graph.outputs));
  }
  const Graph& first = variants.front().graph;
  for (const PackageVariant& v : variants.subspan(1)) {
    absl::Status same = CheckSameIo(first, given(first), v.graph, given(v.graph));
    if (same.ok()) same = CheckSameIo(first, results(first), v.graph, results(v.graph));
    if (!same.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(v.name, ": ", std::string(same.message()), " than for ",
                                                     variants.front().name, ": compile one package each"));
    }
  }
  return absl::OkStatus();
}

// Puts `made` in the place of `dir`, which is absent, empty or an older package.
absl::Status Replace(const fs::path& made, const fs::path& dir) {
  std::error_code error;
  const fs::path old = dir.string() + ".old-" + std::to_string(getpid());
  if (fs::exists(dir, error)) fs::rename(dir, old, error);
  if (error) return IoError(absl::StrCat("cannot replace ", dir.string()), error);
  fs::rename(made, dir, error);
  if (error) return IoError(absl::StrCat("cannot create ", dir.string()), error);
  fs::remove_all(old, error);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<KernelChoice> ChooseDefault(const Workload& w, const Target& t) {
  TEMPER_ASSIGN_OR_RETURN(Choice choice, DefaultChoice(w, t));
  return KernelChoice{std::string(choice.def->name), choice.config};
}

absl::StatusOr<std::string> HashOfFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(absl::StrCat("cannot read ", path));
  std::vector<char> chunk(TEMPER_HASH_CHUNK);
  uint64_t hash = 0;
  while (file) {
    file.read(chunk.data(), static_cast<std::streamsize>(chunk.size()));
    const auto got = static_cast<size_t>(file.gcount());
    if (got > 0) hash = temper_weights_hash_join(hash, temper_weights_hash_chunk(chunk.data(), got));
  }
  return HashText(hash);
}

absl::StatusOr<PackageReport> WritePackage(std::span<const PackageVariant> variants, const Target& t,
                                           const ChooseFn& choose, const std::string& dir,
                                           const PackageOptions& options) {
  TEMPER_RETURN_IF_ERROR(CheckPrefix(options.prefix));
  TEMPER_RETURN_IF_ERROR(CheckVariants(variants));
  TEMPER_RETURN_IF_ERROR(GeneratorFor(t).status());  // before any work
  TEMPER_RETURN_IF_ERROR(CheckRuntime(t));
  std::error_code error;
  const fs::path final_dir = fs::absolute(dir).lexically_normal();
  const fs::path path = final_dir.has_filename() ? final_dir : final_dir.parent_path();
  if (fs::exists(path, error) &&
      !(fs::is_directory(path, error) && (fs::is_empty(path, error) || fs::exists(path / "manifest.json", error)))) {
    return absl::FailedPreconditionError(absl::StrCat(dir, " exists and is not a package: choose another directory"));
  }
  const fs::path partial = path.string() + ".partial-" + std::to_string(getpid());
  fs::remove_all(partial, error);
  fs::create_directories(partial, error);
  if (error) return IoError(absl::StrCat("cannot create ", partial.string()), error);
  CompileCache own;
  absl::StatusOr<PackageReport> report =
      PackageWriter(variants, t, choose, options.cache != nullptr ? *options.cache : own, options)
          .Write(partial.string());
  absl::Status status = report.ok() ? Replace(partial, path) : report.status();
  if (!status.ok()) {
    fs::remove_all(partial, error);
    return status;
  }
  return report;
}

absl::StatusOr<PackageReport> WritePackage(const Graph& g, const Target& t, const ChooseFn& choose,
                                           const std::string& dir, const PackageOptions& options) {
  const PackageVariant only{g, ""};
  return WritePackage({&only, 1}, t, choose, dir, options);
}

}  // namespace temper
