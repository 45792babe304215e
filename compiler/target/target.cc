#include "compiler/target/target.h"

#include <algorithm>
#include <cctype>

#include "compiler/target/table.h"

namespace temper {
namespace {

absl::Status UnknownTarget(std::string_view head) {
  std::vector<std::string_view> usages;
  for (const GeneratorDef& g : Generators()) usages.push_back(g.usage);
  return absl::InvalidArgumentError(
      Cat({"unknown target '", Shown(head), "'; use 'host', ", Join(usages, ", "), ", with NAME of: ", CpuNames()}));
}

absl::Status SetOption(const GeneratorDef& generator, const GivenOption& given, Device& device) {
  const auto option = std::ranges::find(generator.options, given.key, &DeviceOption::key);
  if (option == generator.options.end()) {
    std::string known;
    for (const DeviceOption& o : generator.options) known.append(" -").append(o.key);
    return absl::InvalidArgumentError(
        Cat({"bad target option -", Shown(given.key), "; options of ", generator.name, ":", known}));
  }
  if (option->set == nullptr) return absl::OkStatus();
  const absl::Status set = option->set(device, given.value);
  if (set.ok()) return absl::OkStatus();
  return absl::Status(
      set.code(), Cat({"bad target option -", given.key, "=", Shown(given.value), ": ", std::string(set.message())}));
}

}  // namespace

std::string_view Name(CpuArch arch) { return arch == CpuArch::kArm ? "aarch64" : "x86-64"; }

CpuArch HostArch() {
#if defined(__aarch64__)
  return CpuArch::kArm;
#else
  return CpuArch::kX86;
#endif
}

bool CpuTarget::Has(std::string_view feature) const { return std::ranges::find(features, feature) != features.end(); }

const std::string& Target::name() const {
  const std::string& own = cpu() != nullptr ? cpu()->cpu : gpu()->arch;
  return own.empty() ? generator : own;
}

std::string Cat(std::initializer_list<std::string_view> parts) {
  std::string out;
  for (std::string_view p : parts) out.append(p);
  return out;
}

std::string Shown(std::string_view text) {
  constexpr size_t kMost = 64;
  std::string out(text.substr(0, kMost));
  for (char& c : out) {
    if (!std::isprint(static_cast<unsigned char>(c))) c = '?';
  }
  return text.size() > kMost ? out + "..." : out;
}

std::string Text(const Target& t) {
  std::string text = t.generator;
  const GeneratorDef* generator = FindGenerator(t.generator);
  if (generator == nullptr) return text;
  for (const DeviceOption& o : generator->options) text.append(Cat({" -", o.key, "=", o.get(t.device)}));
  return text;
}

absl::StatusOr<Target> ParseTarget(std::string_view text) {
  const std::vector<std::string_view> words = Split(text, ' ');
  if (words.empty()) return absl::InvalidArgumentError("empty target; use 'host' or 'llvm:NAME'");
  std::vector<GivenOption> given;
  for (size_t i = 1; i < words.size(); ++i) {
    const size_t eq = words[i].find('=');
    if (words[i][0] != '-' || eq == std::string_view::npos) {
      return absl::InvalidArgumentError(Cat({"bad target option '", Shown(words[i]), "'; options are -name=value"}));
    }
    given.push_back({words[i].substr(1, eq - 1), words[i].substr(eq + 1)});
  }
  const size_t colon = words[0].find(':');
  std::string_view head = words[0].substr(0, colon);
  const std::string_view name = colon == std::string_view::npos ? "" : words[0].substr(colon + 1);
  if (words[0] == "host") {
    if (std::ranges::find(given, "mcpu", &GivenOption::key) != given.end())
      return absl::InvalidArgumentError("target 'host' takes no -mcpu; say 'llvm -mcpu=NAME'");
    head = "llvm";
  }
  const GeneratorDef* generator = FindGenerator(head);
  if (generator == nullptr || (colon != std::string_view::npos && name.empty())) return UnknownTarget(words[0]);
  TEMPER_ASSIGN_OR_RETURN(Device device, generator->make(name, given));
  for (const GivenOption& option : given) TEMPER_RETURN_IF_ERROR(SetOption(*generator, option, device));
  return Target{std::string(generator->name), std::move(device)};
}

absl::Status CheckRunsHere(const Target& t) {
  const CpuTarget* cpu = t.cpu();
  if (cpu == nullptr || t.generator != "llvm") {
    return absl::FailedPreconditionError(Cat({"this machine's CPU runs no code for ", t.generator, " targets"}));
  }
  const Target host = HostTarget();
  if (cpu->arch() != HostArch()) {
    return absl::FailedPreconditionError(Cat({"target ", t.name(), " is one of ", Name(cpu->arch()), ", this machine (",
                                              host.name(), ") of ", Name(HostArch())}));
  }
  std::vector<std::string> missing;
  for (const std::string& f : cpu->features) {
    if (!host.cpu()->Has(f)) missing.push_back(f);
  }
  if (missing.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      Cat({"this machine (", host.name(), ") lacks ", Join(missing, ", "), " of target ", t.name()}));
}

}  // namespace temper
