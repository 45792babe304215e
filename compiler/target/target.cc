#include "compiler/target/target.h"

#include <algorithm>
#include <charconv>
#include <initializer_list>

#include "compiler/target/table.h"

namespace temper {
namespace {

std::string Cat(std::initializer_list<std::string_view> parts) {
  std::string out;
  for (std::string_view p : parts) out.append(p);
  return out;
}

template <typename Range>
std::string Join(const Range& words, std::string_view separator) {
  std::string out;
  for (const auto& w : words) out.append(out.empty() ? "" : separator).append(w);
  return out;
}

Target OfNamed(const NamedCpu& c) {
  Target t;
  t.cpu = c.cpu;
  t.features = SplitFeatures(c.features);
  t.l1_bytes = c.l1_bytes;
  t.l2_bytes = c.l2_bytes;
  t.l3_bytes = c.l3_bytes;
  DeriveVectors(t);
  return t;
}

absl::Status SetFeatures(Target& t, std::string_view list) {
  t.features = SplitFeatures(list);
  for (const std::string& f : t.features) {
    if (!std::ranges::binary_search(KnownFeatures(), f)) {
      return absl::InvalidArgumentError(
          Cat({"unknown feature '", f, "' in target; known: ", Join(KnownFeatures(), ", ")}));
    }
  }
  DeriveVectors(t);
  return absl::OkStatus();
}

absl::Status SetNumber(Target& t, std::string_view key, std::string_view value) {
  int64_t n = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), n);
  if (error != std::errc() || end != value.data() + value.size() || n < 0 || n > int64_t{1} << 40) {
    return absl::InvalidArgumentError(Cat({"bad number in target: -", key, "=", value}));
  }
  if (key == "l1" && n > 0) {
    t.l1_bytes = n;
  } else if (key == "l2" && n > 0) {
    t.l2_bytes = n;
  } else if (key == "l3") {
    t.l3_bytes = n;
  } else if (key == "threads" && n > 0 && n <= 4096) {
    t.threads = static_cast<int>(n);
  } else {
    return absl::InvalidArgumentError(
        Cat({"bad target option -", key, "=", value, "; options: -mcpu -mattr -l1 -l2 -l3 -threads"}));
  }
  return absl::OkStatus();
}

struct Option {
  std::string_view key, value;
};

absl::StatusOr<Target> Base(std::string_view head, const std::vector<Option>& options) {
  auto mcpu = std::ranges::find(options, "mcpu", &Option::key);
  const bool has_attr = std::ranges::find(options, "mattr", &Option::key) != options.end();
  if (head == "host" || head == "llvm") {
    if (mcpu == options.end()) return HostTarget();
    if (head == "host") return absl::InvalidArgumentError("target 'host' takes no -mcpu; say 'llvm -mcpu=NAME'");
    if (const NamedCpu* c = FindCpu(mcpu->value)) return OfNamed(*c);
    if (!has_attr || mcpu->value.empty()) {
      return absl::InvalidArgumentError(Cat({"unknown CPU '", mcpu->value, "'; known: ", CpuNames()}));
    }
    Target t;
    t.cpu = mcpu->value;
    return t;
  }
  if (head.starts_with("llvm:")) {
    if (const NamedCpu* c = FindCpu(head.substr(5))) return OfNamed(*c);
    return absl::InvalidArgumentError(Cat({"unknown CPU '", head.substr(5), "'; known: ", CpuNames()}));
  }
  return absl::InvalidArgumentError(
      Cat({"unknown target '", head,
           "'; use 'host', 'llvm -mcpu=... -mattr=...' or 'llvm:NAME' with NAME of: ", CpuNames()}));
}

}  // namespace

bool Target::Has(std::string_view feature) const { return std::ranges::find(features, feature) != features.end(); }

std::string Text(const Target& t) {
  return Cat({t.kind, " -mcpu=", t.cpu, " -mattr=", Join(t.features, ","), " -l1=", std::to_string(t.l1_bytes),
              " -l2=", std::to_string(t.l2_bytes), " -l3=", std::to_string(t.l3_bytes),
              " -threads=", std::to_string(t.threads)});
}

absl::StatusOr<Target> ParseTarget(std::string_view text) {
  const std::vector<std::string_view> words = Split(text, ' ');
  if (words.empty()) return absl::InvalidArgumentError("empty target; use 'host' or 'llvm:NAME'");
  std::vector<Option> options;
  for (size_t i = 1; i < words.size(); ++i) {
    const size_t eq = words[i].find('=');
    if (words[i][0] != '-' || eq == std::string_view::npos) {
      return absl::InvalidArgumentError(Cat({"bad target option '", words[i], "'; options are -name=value"}));
    }
    options.push_back({words[i].substr(1, eq - 1), words[i].substr(eq + 1)});
  }
  TEMPER_ASSIGN_OR_RETURN(Target t, Base(words[0], options));
  for (const Option& o : options) {
    if (o.key == "mcpu") {
      // The base has the table's LLVM name of it already.
    } else if (o.key == "mattr") {
      TEMPER_RETURN_IF_ERROR(SetFeatures(t, o.value));
    } else {
      TEMPER_RETURN_IF_ERROR(SetNumber(t, o.key, o.value));
    }
  }
  return t;
}

absl::Status CheckRunsHere(const Target& t) {
  if (t.kind != "llvm") return absl::OkStatus();
  const Target host = HostTarget();
  std::vector<std::string> missing;
  for (const std::string& f : t.features) {
    if (!host.Has(f)) missing.push_back(f);
  }
  if (missing.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      Cat({"this machine (", host.cpu, ") lacks ", Join(missing, ", "), " of target ", t.cpu}));
}

}  // namespace temper
