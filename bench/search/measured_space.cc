#include "bench/search/measured_space.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "bench/search/text_file.h"
#include "compiler/target/target.h"
#include "tuner_server/search/ranking.h"

namespace temper {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr const char* kOp = "measured_space";

// Python's NaN and Infinity, which JSON lacks, become null.
std::string AsJson(std::string_view text) {
  std::string json;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"' && (i == 0 || text[i - 1] != '\\')) quoted = !quoted;
    const std::string_view left = text.substr(i);
    const std::string_view word = quoted                          ? ""
                                  : left.starts_with("NaN")       ? "NaN"
                                  : left.starts_with("Infinity")  ? "Infinity"
                                  : left.starts_with("-Infinity") ? "-Infinity"
                                                                  : "";
    json += word.empty() ? text.substr(i, 1) : "null";
    i += word.empty() ? 0 : word.size() - 1;
  }
  return json;
}

nlohmann::json Document(std::string text) {
  text = AsJson(text);
  // Samples are most of a file, and nobody asks for them here.
  const auto wanted = [](int, nlohmann::json::parse_event_t event, const nlohmann::json& parsed) {
    return event != nlohmann::json::parse_event_t::key || parsed != "times";
  };
  if (!nlohmann::json::accept(text)) {
    const size_t end = text.find_last_not_of(" \t\r\n,");
    const std::string closed = absl::StrCat(text.substr(0, end == std::string::npos ? 0 : end + 1), "}}");
    if (nlohmann::json::accept(closed)) text = closed;
  }
  return nlohmann::json::parse(text, wanted);
}

// A knob, and its values as the file has them.
struct NamedValues {
  std::string name;
  std::vector<nlohmann::json> values;
};

absl::StatusOr<Knob> KnobOf(const NamedValues& named) {
  if (named.values.empty()) return absl::InvalidArgumentError(absl::StrCat("knob '", named.name, "' has no values"));
  Knob knob{named.name, {}};
  const bool whole = std::ranges::all_of(named.values, [](const auto& v) { return v.is_number_integer(); });
  for (size_t i = 0; i < named.values.size(); ++i) {
    knob.values.push_back(whole ? named.values[i].template get<int64_t>() : static_cast<int64_t>(i));
    if (std::find(named.values.begin(), named.values.begin() + static_cast<std::ptrdiff_t>(i), named.values[i]) !=
        named.values.begin() + static_cast<std::ptrdiff_t>(i))
      return absl::InvalidArgumentError(absl::StrCat("knob '", named.name, "' has a value twice"));
  }
  return knob;
}

double CostOf(const nlohmann::json& entry) {
  const auto time = entry.find("time");
  if (time == entry.end() || !time->is_number()) return kNever;
  const double ms = time->get<double>();
  return std::isfinite(ms) && ms > 0 ? ms * 1e-3 : kNever;
}

absl::StatusOr<MeasuredSpace> Parse(std::string name, std::string text) {
  const nlohmann::json document = Document(std::move(text));
  MeasuredSpace space;
  space.name = std::move(name);
  std::vector<NamedValues> named;
  for (const nlohmann::json& key : document.at("tune_params_keys")) {
    NamedValues& knob = named.emplace_back(key.get<std::string>());
    for (const nlohmann::json& value : document.at("tune_params").at(knob.name)) knob.values.push_back(value);
    TEMPER_ASSIGN_OR_RETURN(space.knobs.emplace_back(), KnobOf(knob));
  }
  if (document.contains("device_name")) space.device = document["device_name"].get<std::string>();
  if (document.contains("kernel_name")) space.kernel = document["kernel_name"].get<std::string>();
  if (const auto size = document.find("problem_size"); size != document.end() && size->is_array()) {
    for (const nlohmann::json& side : *size) space.problem_size.push_back(side.get<int64_t>());
  }
  space.best_s = kNever;
  for (const auto& [key, entry] : document.at("cache").items()) {
    int64_t index = 0;
    for (const NamedValues& knob : named) {
      const auto found = std::find(knob.values.begin(), knob.values.end(), entry.at(knob.name));
      if (found == knob.values.end())
        return absl::InvalidArgumentError(absl::StrCat("config ", key, ": no such value of knob '", knob.name, "'"));
      const int64_t radix = static_cast<int64_t>(knob.values.size());
      if (__builtin_mul_overflow(index, radix, &index))
        return absl::InvalidArgumentError("the product of the knobs has no 63-bit size");
      index += found - knob.values.begin();
    }
    const double cost_s = CostOf(entry);
    if (!space.cost_s.emplace(index, cost_s).second)
      return absl::InvalidArgumentError(absl::StrCat("config ", key, " is there twice"));
    space.best_s = std::min(space.best_s, cost_s);
  }
  if (std::isinf(space.best_s)) return absl::InvalidArgumentError("no config has a time");
  return space;
}

// What is known of a config of such a space: nothing.
const FootprintSchema& NothingKnown() {
  static const FootprintSchema schema{"measured", 1, {}};
  return schema;
}

}  // namespace

ConfigSpace MeasuredSpace::Configs() const {
  ConfigSpace space;
  for (const Knob& knob : knobs) space.Add(knob.name, knob.values);
  space.Require("it was not measured", [this](const Config& c) { return cost_s.contains(IndexOf(c)); });
  return space;
}

int64_t MeasuredSpace::IndexOf(const Config& c) const {
  int64_t index = 0;
  for (size_t i = 0; i < knobs.size(); ++i) {
    const std::vector<int64_t>& values = knobs[i].values;
    index = index * static_cast<int64_t>(values.size()) +
            (std::find(values.begin(), values.end(), c.values()[i].second) - values.begin());
  }
  return index;
}

absl::StatusOr<MeasuredSpace> ParseMeasuredSpace(std::string name, std::string text) {
  try {
    return Parse(std::move(name), std::move(text));
  } catch (const nlohmann::json::exception& e) {
    return absl::InvalidArgumentError(absl::StrCat("no cache file of Kernel Tuner: ", e.what()));
  }
}

absl::StatusOr<MeasuredSpace> ReadMeasuredSpace(const std::string& path) {
  TEMPER_ASSIGN_OR_RETURN(std::string text, ReadTextFile(path));
  const std::string name = std::filesystem::path(path).filename().string();
  absl::StatusOr<MeasuredSpace> space = ParseMeasuredSpace(name.substr(0, name.find(".json")), std::move(text));
  if (!space.ok()) return absl::InvalidArgumentError(absl::StrCat(path, ": ", std::string(space.status().message())));
  return space;
}

namespace {

TunerContext Register(std::shared_ptr<const MeasuredSpace> space, TemplateDef def, Target target) {
  if (FindOp(kOp) == nullptr) {
    OpDef op;
    op.name = kOp;
    op.pattern = OpPattern::kOpaque;
    op.min_inputs = op.max_inputs = 1;
    op.infer = [](const Attrs&, std::span<const TensorType> inputs) -> absl::StatusOr<TensorType> { return inputs[0]; };
    RegisterOp(std::move(op));
  }
  def.name = space->name;
  def.version = 1;
  def.matches = [space](const Workload& w, const Target&) {
    return w.calls[0].op == kOp && w.calls[0].attrs.String("space", "") == space->name;
  };
  def.space = [space](const Workload&, const Target&) { return space->Configs(); };
  def.build = [](const Workload&, const Config&, const Target&) -> absl::StatusOr<Kernel> {
    return absl::UnimplementedError("measured elsewhere");
  };
  RegisterTemplate(std::move(def));

  TunerContext context;
  context.target = std::move(target);
  const TensorType any{DType::kF32, {1}, {}};
  context.workload.inputs.push_back({any, false});
  Workload::Call call;
  call.op = kOp;
  call.attrs.Set("space", space->name);
  call.args = {0};
  call.type = any;
  context.workload.calls.push_back(call);
  return context;
}

}  // namespace

TunerContext RegisterMeasuredSpace(std::shared_ptr<const MeasuredSpace> space) {
  TemplateDef def;
  def.schema = &NothingKnown();
  def.footprint = [](const Workload&, const Config&, const Target&) { return Footprint{&NothingKnown(), {}, 1}; };
  Target target;
  target.device = CpuTarget{};
  return Register(std::move(space), std::move(def), std::move(target));
}

TunerContext RegisterMeasuredSpace(std::shared_ptr<const MeasuredSpace> space, MeasuredFootprint footprint) {
  TemplateDef def;
  def.schema = &GpuSchema();
  def.footprint = [of = std::move(footprint.of)](const Workload&, const Config& c, const Target& t) {
    return UnderGpuSchema(of(c), *t.gpu());
  };
  return Register(std::move(space), std::move(def), std::move(footprint.target));
}

absl::StatusOr<std::vector<Config>> FirstByDraft(const TunerContext& context, size_t count) {
  TEMPER_ASSIGN_OR_RETURN(const std::shared_ptr<const TaskSpace> task, TaskSpace::Make(context));
  Rng rng(context.seed);
  constexpr RankingLimits kAll = {.product = 1 << 24, .legal = 1 << 20, .sample = 512};
  std::vector<Config> first;
  for (const ScoredPoint& p : RankByDraft(*task, 0, rng, kAll).points) {
    if (first.size() == count) break;
    first.push_back(task->At(p.point).config);
  }
  return first;
}

absl::StatusOr<std::vector<double>> SearchMeasuredSpace(const MeasuredSpace& space, const TunerDef& def,
                                                        const TunerContext& context, const std::vector<int>& budgets,
                                                        int batch) {
  TEMPER_ASSIGN_OR_RETURN(const std::unique_ptr<Tuner> tuner, def.make(context));
  std::vector<double> ratios;
  double found_s = kNever;
  int trials = 0;
  for (const int budget : budgets) {
    while (trials < budget) {
      TEMPER_ASSIGN_OR_RETURN(const std::vector<Proposal> proposals, tuner->Propose(std::min(batch, budget - trials)));
      if (proposals.empty()) break;
      std::vector<Observation> results;
      for (const Proposal& p : proposals) {
        const double cost_s = space.cost_s.at(space.IndexOf(p.config));
        results.push_back({p, std::isfinite(cost_s), cost_s});
        found_s = std::min(found_s, cost_s);
      }
      TEMPER_RETURN_IF_ERROR(tuner->Observe(results));
      trials += static_cast<int>(proposals.size());
    }
    ratios.push_back(found_s / space.best_s);
  }
  return ratios;
}

}  // namespace temper
