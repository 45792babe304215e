#include <algorithm>
#include <filesystem>
#include <iostream>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "cli/command.h"
#include "compiler/frontend/onnx/importer.h"
#include "compiler/graph/pipeline.h"

namespace temper {
namespace {

// A number, or a name: it begins with a letter, or as exporters' do with a line.
std::optional<InputDim> ParseInputDim(const std::string& text) {
  int64_t length = 0;
  if (absl::SimpleAtoi(text, &length)) return length >= 0 ? std::optional<InputDim>(length) : std::nullopt;
  const bool name = !text.empty() && (absl::ascii_isalpha(static_cast<unsigned char>(text[0])) || text[0] == '_');
  return name ? std::optional<InputDim>(text) : std::nullopt;
}

absl::StatusOr<std::pair<std::string, std::vector<InputDim>>> ParseShape(const std::string& text) {
  const size_t equals = text.rfind('=');
  std::vector<InputDim> shape;
  bool ok = equals != std::string::npos && equals > 0;
  if (ok) {
    for (const std::string& part : std::vector<std::string>(absl::StrSplit(text.substr(equals + 1), ','))) {
      const std::optional<InputDim> dim = ParseInputDim(part);
      ok = ok && dim.has_value();
      if (dim.has_value()) shape.push_back(*dim);
    }
  }
  if (!ok) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--shape ", text, ": expected NAME=1,3,224,224, or NAME=1,3,h,w with --dim h=224 or --dim h=64..224"));
  }
  return std::make_pair(text.substr(0, equals), shape);
}

// "8", or "1..8".
std::optional<DimLength> ParseLength(std::string_view text) {
  const std::vector<std::string> ends =
      absl::StrSplit(absl::string_view(text.data(), text.size()), absl::MaxSplits("..", 1));
  int64_t least = 0, most = 0;
  const bool ok =
      absl::SimpleAtoi(ends.front(), &least) && absl::SimpleAtoi(ends.back(), &most) && least >= 0 && most >= least;
  return ok ? std::optional(DimLength(least, most)) : std::nullopt;
}

std::string Text(const DimLength& length) {
  return length.least == length.most ? absl::StrCat(length.most) : absl::StrCat(length.least, "..", length.most);
}

// NAME=1 or NAME=1,2..8.
absl::StatusOr<std::pair<std::string, std::vector<DimLength>>> ParseLengths(const std::string& text) {
  const size_t equals = text.rfind('=');
  std::vector<DimLength> lengths;
  bool ok = equals != std::string::npos && equals > 0;
  if (ok) {
    for (const std::string& part : std::vector<std::string>(absl::StrSplit(text.substr(equals + 1), ','))) {
      const std::optional<DimLength> length = ParseLength(part);
      ok = ok && length.has_value();
      if (length.has_value()) lengths.push_back(*length);
    }
  }
  if (!ok) return absl::InvalidArgumentError(absl::StrCat("--dim ", text, ": expected NAME=1, NAME=1,8 or NAME=1..8"));
  return std::make_pair(text.substr(0, equals), lengths);
}

absl::StatusOr<std::pair<std::string, DimLength>> ParseDim(const std::string& text) {
  TEMPER_ASSIGN_OR_RETURN(const auto said, ParseLengths(text));
  if (said.second.size() == 1) return std::make_pair(said.first, said.second.front());
  return absl::InvalidArgumentError(
      absl::StrCat("--dim ", text, ": this command takes one length; compile, lock, tune, bench and run take several"));
}

absl::StatusOr<std::pair<std::string, std::vector<std::string>>> ParseValue(const std::string& text) {
  const size_t equals = text.rfind('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size())
    return absl::InvalidArgumentError(absl::StrCat("--value ", text, ": expected NAME=1, NAME=true or NAME=1,2,3"));
  const std::vector<std::string> numbers = absl::StrSplit(text.substr(equals + 1), ',');
  return std::make_pair(text.substr(0, equals), numbers);
}

// What the option says of each name. Each is said once, or alike.
template <typename T>
absl::Status ParseAll(const char* option, const std::vector<std::string>& texts,
                      absl::StatusOr<std::pair<std::string, T>> (*parse)(const std::string&),
                      std::map<std::string, T>& to) {
  for (const std::string& text : texts) {
    TEMPER_ASSIGN_OR_RETURN(auto said, parse(text));
    const auto [place, is_new] = to.insert(said);
    if (!is_new && !(place->second == said.second))
      return absl::InvalidArgumentError(absl::StrCat(option, " is given twice for ", said.first));
  }
  return absl::OkStatus();
}

CLI::Validator NumberThat(bool (*fits)(double), const char* what) {
  return CLI::Validator(
      [fits, what](const std::string& text) {
        double value = 0;
        return absl::SimpleAtod(text, &value) && fits(value) ? std::string() : absl::StrCat(text, " is not ", what);
      },
      "");
}

}  // namespace

CLI::Validator AboveZero() {
  return NumberThat([](double value) { return value > 0; }, "a number above 0");
}
CLI::Validator ZeroOrMore() {
  return NumberThat([](double value) { return value >= 0; }, "a number from 0 up");
}

absl::StatusOr<double> ParseShare(const char* option, const std::string& text) {
  const bool percent = text.ends_with('%');
  double number = 0;
  const bool sound = absl::SimpleAtod(percent ? text.substr(0, text.size() - 1) : text, &number);
  const double share = percent ? number / 100 : number;
  if (sound && share >= 0 && share <= 1) return share;
  return absl::InvalidArgumentError(absl::StrCat(option, " ", text, ": expected a share such as 0.5% or 0.005"));
}

void AddModelOptions(CLI::App* command, ModelOptions* options, const char* what) {
  command->add_option("model", options->path, what)->required();
  command
      ->add_option("--shape", options->shapes,
                   "fix a dynamic input: NAME=1,3,224,224 (may be repeated); a name in place of a number is for --dim: "
                   "NAME=1,3,h,w")
      ->allow_extra_args(false);  // what follows it may be the model

  command
      ->add_option(
          "--dim", options->dims,
          "fix a dimension wherever the model's inputs, or --shape, have it by this name: NAME=1 (may be repeated); "
          "compile, lock, tune, bench and run take several lengths, NAME=1,8: a variant for each; NAME=1..8: any of "
          "these")
      ->allow_extra_args(false);
  command
      ->add_option("--value", options->values,
                   "make an input a constant: NAME=16000, NAME=true, NAME=1,2,3 (may be repeated)")
      ->allow_extra_args(false);
  command
      ->add_option("--winograd", options->winograd,
                   "on (default) or off; off computes 3x3 convolutions by the direct algorithm only, which rounds less")
      ->check(CLI::IsMember({"on", "off"}));
  command
      ->add_option(
          "--tf32", options->tf32,
          "off (default) or on; on lets tensor cores multiply f32 rounded to TF32 (10 bits of mantissa), where "
          "the target has them: cuda from sm_80 on")
      ->check(CLI::IsMember({"on", "off"}));
  command
      ->add_option("--bf16", options->bf16,
                   "off (default) or on; on lets CPUs multiply f32 rounded to bf16 (7 bits of mantissa), where they "
                   "have instructions for it: amx-bf16, avx512bf16")
      ->check(CLI::IsMember({"on", "off"}));
  command->add_flag("--print-passes", options->print_passes, "print the graph before the first and after each pass");
}

bool IsPackage(const std::string& path) { return std::filesystem::is_directory(path); }

std::string ModelName(const std::string& path) { return std::filesystem::path(path).stem().string(); }

std::string Quoted(const std::string& argument) {
  constexpr char kPlain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=,@%+";
  const bool plain = !argument.empty() && argument.find_first_not_of(kPlain) == std::string::npos;
  return plain ? argument : absl::StrCat("'", absl::StrReplaceAll(argument, {{"'", "'\\''"}}), "'");
}

std::string ModelFlags(const ModelOptions& options) {
  std::string flags;
  for (const std::string& shape : options.shapes) absl::StrAppend(&flags, " --shape ", Quoted(shape));
  for (const std::string& dim : options.dims) absl::StrAppend(&flags, " --dim ", Quoted(dim));
  for (const std::string& value : options.values) absl::StrAppend(&flags, " --value ", Quoted(value));
  if (options.winograd == "off") flags += " --winograd off";
  if (options.tf32 == "on") flags += " --tf32 on";
  if (options.bf16 == "on") flags += " --bf16 on";
  return flags;
}

absl::StatusOr<std::vector<ModelVariant>> VariantsOf(const ModelOptions& options) {
  constexpr size_t kMostVariants = 64;
  std::map<std::string, std::vector<DimLength>> dims;
  TEMPER_RETURN_IF_ERROR(ParseAll("--dim", options.dims, ParseLengths, dims));
  std::vector<ModelVariant> variants = {{"", options}};
  variants.front().options.dims.clear();
  for (const auto& [name, lengths] : dims) {
    if (std::ranges::any_of(lengths, [&](const DimLength& l) { return std::ranges::count(lengths, l) > 1; }))
      return absl::InvalidArgumentError(absl::StrCat("--dim ", name, " has one length twice"));
    if (lengths.size() * variants.size() > kMostVariants)
      return absl::InvalidArgumentError(absl::StrCat("--dim asks for more than ", kMostVariants, " variants"));
    std::vector<ModelVariant> longer;
    for (const ModelVariant& before : variants) {
      for (const DimLength& length : lengths) {
        ModelVariant& v = longer.emplace_back(before);
        const std::string dim = absl::StrCat(name, "=", Text(length));
        if (lengths.size() > 1) absl::StrAppend(&v.name, v.name.empty() ? "" : " ", dim);
        v.options.dims.push_back(dim);
      }
    }
    variants = std::move(longer);
  }
  return variants;
}

absl::StatusOr<Graph> ImportModel(const ModelOptions& options) {
  ImportOptions import;
  TEMPER_RETURN_IF_ERROR(ParseAll("--shape", options.shapes, ParseShape, import.shapes));
  TEMPER_RETURN_IF_ERROR(ParseAll("--dim", options.dims, ParseDim, import.dims));
  TEMPER_RETURN_IF_ERROR(ParseAll("--value", options.values, ParseValue, import.values));
  TEMPER_ASSIGN_OR_RETURN(Graph graph, ImportOnnx(options.path, import));
  graph.name = ModelName(options.path);
  return graph;
}

absl::Status OptimizeModel(const ModelOptions& options, const Target& target, Graph& graph) {
  PipelineOptions pipeline;
  pipeline.winograd = options.winograd != "off";
  pipeline.tf32 = options.tf32 == "on";
  pipeline.bf16 = options.bf16 == "on";
  pipeline.print = options.print_passes ? &std::cout : nullptr;
  return Optimize(graph, target, pipeline);
}

absl::StatusOr<Graph> LoadModel(const ModelOptions& options, const Target& target) {
  TEMPER_ASSIGN_OR_RETURN(Graph graph, ImportModel(options));
  TEMPER_RETURN_IF_ERROR(OptimizeModel(options, target, graph));
  return graph;
}

}  // namespace temper
