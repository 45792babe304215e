// What ptxas makes of kernels' main loops, without a GPU: NVRTC compiles configs of a template, nvdisasm takes the code
// apart, and the loop with most tensor instructions (HMMA; HGMMA of teams) is counted. pip install nvidia-cuda-nvdisasm
// has nvdisasm.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "base/rng.h"
#include "base/temporary_directory.h"
#include "compiler/codegen/codegen.h"
#include "compiler/codegen/cuda/code.h"
#include "compiler/ops/template.h"

namespace temper {
namespace {

struct Options {
  std::string workload, target = "cuda:sm_90", name = "gpu.mma", nvdisasm = "nvdisasm";
  std::string config;  // to show; empty: the one with the best draft
  int configs = 0;     // drawn beside it
};

struct Instruction {
  int64_t at;
  std::string opcode;                // "HMMA", "LDSM"
  std::optional<int64_t> branch_to;  // backwards or not
};

absl::StatusOr<std::string> Disassemble(const std::string& cubin, const Options& options) {
  TEMPER_ASSIGN_OR_RETURN(const TemporaryDirectory folder, TemporaryDirectory::Make());
  const std::string path = folder.path() + "/kernel.cubin";
  std::ofstream(path, std::ios::binary) << cubin;
  FILE* pipe = popen(absl::StrCat("'", options.nvdisasm, "' -c -plr '", path, "' 2>/dev/null").c_str(), "r");
  if (pipe == nullptr) return absl::UnavailableError("no shell");
  std::string text;
  char part[4096];
  for (size_t n; (n = fread(part, 1, sizeof(part), pipe)) > 0;) text.append(part, n);
  if (pclose(pipe) != 0 || text.empty())
    return absl::UnavailableError(absl::StrCat(options.nvdisasm, " does not take the code apart"));
  return text;
}

// Lines are "        /*0a90*/              @!P0 BRA `(.L_x_3) ;", and labels ".L_x_3:".
std::vector<Instruction> InstructionsOf(const std::string& text) {
  std::map<std::string, int64_t> labels;
  std::vector<std::string> waiting;
  std::vector<std::pair<Instruction, std::string>> found;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(".L_") && line.find(':') != line.npos) waiting.push_back(line.substr(0, line.find(':')));
    const size_t begin = line.find("/*"), end = line.find("*/");
    if (begin == line.npos || line.find(';') == line.npos || line.find_first_not_of(" \t") != begin) continue;
    Instruction instruction{std::stoll(line.substr(begin + 2, end - begin - 2), nullptr, 16), "", std::nullopt};
    std::istringstream words(line.substr(end + 2));
    words >> instruction.opcode;
    if (instruction.opcode.starts_with("@")) words >> instruction.opcode;
    for (const std::string& label : waiting) labels[label] = instruction.at;
    waiting.clear();
    const size_t to = line.find("`(");
    std::string label = to == line.npos ? "" : line.substr(to + 2, line.find(')', to) - to - 2);
    if (!instruction.opcode.starts_with("BRA")) label.clear();
    found.emplace_back(std::move(instruction), label);
  }
  std::vector<Instruction> instructions;
  for (auto& [instruction, label] : found) {
    if (const auto at = labels.find(label); at != labels.end()) instruction.branch_to = at->second;
    instructions.push_back(std::move(instruction));
  }
  return instructions;
}

int TensorInstructions(std::map<std::string, int>& counts) { return counts["HMMA"] + counts["HGMMA"]; }

// Of the loops, the shortest of those with most tensor instructions, by opcode without its suffixes.
std::map<std::string, int> MainLoop(const std::vector<Instruction>& instructions) {
  std::map<std::string, int> best;
  int64_t best_length = 0;
  for (const Instruction& branch : instructions) {
    if (!branch.branch_to.has_value() || *branch.branch_to >= branch.at) continue;
    std::map<std::string, int> counts;
    for (const Instruction& i : instructions) {
      if (i.at >= *branch.branch_to && i.at <= branch.at) ++counts[i.opcode.substr(0, i.opcode.find('.'))];
    }
    const int64_t length = branch.at - *branch.branch_to;
    const int more = TensorInstructions(counts) - TensorInstructions(best);
    const bool better = more > 0 || (more == 0 && length < best_length);
    if (!best_length || better) best = counts, best_length = length;
  }
  return best;
}

absl::Status Show(const Workload& w, const Config& config, const Target& target, const Options& options) {
  TEMPER_ASSIGN_OR_RETURN(const Kernel kernel, BuildKernel(w, options.name, config, target));
  TEMPER_ASSIGN_OR_RETURN(const Artifact artifact, CompileKernels({{"k", kernel.main}}, target));
  TEMPER_ASSIGN_OR_RETURN(const CudaCode code, ReadCudaCode(artifact.code));
  TEMPER_ASSIGN_OR_RETURN(const std::string text, Disassemble(code.images.front().bytes, options));
  const std::vector<Instruction> instructions = InstructionsOf(text);
  const auto local = std::ranges::count_if(
      instructions, [](const Instruction& i) { return i.opcode.starts_with("LDL") || i.opcode.starts_with("STL"); });
  std::map<std::string, int> loop = MainLoop(instructions);
  int all = 0;
  std::string counts;
  for (const auto& [opcode, count] : loop) {
    all += count;
    if (count > 0) absl::StrAppend(&counts, " ", opcode, ":", count);
  }
  const CudaKernel::Launch& launch = code.Find("k")->launches.front();
  const Footprint said = FindTemplate(options.name)->footprint(w, config, target);
  std::printf(
      "%5.1f %% tensor instructions, %d in the loop, %ld local, %ld registers (%.0f predicted), draft %.1f us  %s\n"
      "     %s\n",
      all == 0 ? 0.0 : 100.0 * TensorInstructions(loop) / all, all, static_cast<long>(local),
      static_cast<long>(launch.registers), said["registers"], 1e6 * said.draft_s, Text(config).c_str(), counts.c_str());
  return absl::OkStatus();
}

absl::Status Run(const Options& options) {
  TEMPER_ASSIGN_OR_RETURN(const Workload w, ParseWorkload(options.workload));
  TEMPER_ASSIGN_OR_RETURN(const Target target, ParseTarget(options.target));
  const TemplateDef* def = FindTemplate(options.name);
  if (def == nullptr || !def->matches(w, target))
    return absl::InvalidArgumentError(absl::StrCat(options.name, " does not fit the workload on the target"));
  const std::vector<Config> all = def->space(w, target).Enumerate(1 << 16);
  if (all.empty()) return absl::NotFoundError(absl::StrCat(options.name, " has no config for the workload"));
  const auto drafted = [&](const Config& c) { return def->footprint(w, c, target).draft_s; };
  Config shown = *std::ranges::min_element(all, {}, drafted);
  if (!options.config.empty()) {
    TEMPER_ASSIGN_OR_RETURN(shown, ParseConfig(options.config));
  }
  TEMPER_RETURN_IF_ERROR(Show(w, shown, target, options));
  Rng rng(1);
  for (int i = 0; i < options.configs; ++i)
    TEMPER_RETURN_IF_ERROR(
        Show(w, all[static_cast<size_t>(rng.Below(static_cast<int64_t>(all.size())))], target, options));
  return absl::OkStatus();
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  temper::Options options;
  CLI::App app("the machine code of kernels' main loops, for NVIDIA's GPUs");
  app.add_option("workload", options.workload, "its text")->required();
  app.add_option("--target", options.target, "whose code")->capture_default_str();
  app.add_option("--template", options.name, "by which the kernels are made")->capture_default_str();
  app.add_option("--nvdisasm", options.nvdisasm, "the program")->capture_default_str();
  app.add_option("--config", options.config, "as records have it, instead of the one with the best draft");
  app.add_option("--configs", options.configs, "random ones beside it")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = temper::Run(options);
  if (!status.ok()) std::fprintf(stderr, "bench_sass: %s\n", std::string(status.message()).c_str());
  return status.ok() ? 0 : 1;
}
