#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/build.h"
#include "cli/command.h"

namespace temper {
namespace {

struct RunOptions {
  ModelOptions model;
  RecordOptions records;
  std::vector<std::string> inputs;  // NAME=FILE
  std::string output_dir;
};

std::string Describe(DType dtype, const Shape& shape) {
  return absl::StrCat(std::string(Name(dtype)), "[", ShapeText(shape), "]");
}

using Arrays = std::map<std::string, NDArray>;

bool IsTaken(const NDArray& array, const LoadedPackage::Io& io) {
  return array.dtype() == io.dtype && io.Takes(array.shape());
}

bool Takes(const LoadedPackage& package, const Arrays& given) {
  return std::ranges::all_of(package.inputs(), [&](const LoadedPackage::Io& io) {
    const auto it = given.find(io.name);
    return it == given.end() || IsTaken(it->second, io);
  });
}

// Chooses the first variant that takes what is given; the first of all if none does.
absl::Status ChooseVariant(const Arrays& given, LoadedPackage& package) {
  for (int i = 0; i < package.variants(); ++i) {
    TEMPER_RETURN_IF_ERROR(package.Choose(i));
    if (Takes(package, given)) return absl::OkStatus();
  }
  return package.Choose(0);
}

// What variants take as this input: "f32[3x4] or f32[5x4]".
absl::StatusOr<std::string> TakenAs(size_t input, LoadedPackage& package) {
  std::vector<std::string> taken;
  for (int i = 0; i < package.variants(); ++i) {
    TEMPER_RETURN_IF_ERROR(package.Choose(i));
    const LoadedPackage::Io& io = package.inputs()[input];
    std::string text = Describe(io.dtype, io.shape);
    if (io.least != io.shape) text = absl::StrCat(Describe(io.dtype, io.least), " to ", text);
    if (std::ranges::find(taken, text) == taken.end()) taken.push_back(std::move(text));
  }
  return absl::StrJoin(taken, " or ");
}

absl::StatusOr<Arrays> ReadInputs(const RunOptions& o, LoadedPackage& package) {
  Arrays given;
  for (const std::string& text : o.inputs) {
    const size_t equals = text.rfind('=');
    if (equals == std::string::npos || equals == 0)
      return absl::InvalidArgumentError(absl::StrCat("--input ", text, ": expected NAME=FILE.npy"));
    TEMPER_ASSIGN_OR_RETURN(given[text.substr(0, equals)], ReadTensorFile(text.substr(equals + 1)));
  }
  TEMPER_RETURN_IF_ERROR(ChooseVariant(given, package));
  std::string names;
  for (size_t i = 0; i < package.inputs().size(); ++i) {
    const LoadedPackage::Io& io = package.inputs()[i];
    absl::StrAppend(&names, names.empty() ? "" : ", ", io.name);
    const auto it = given.find(io.name);
    if (it == given.end() || IsTaken(it->second, io)) continue;
    const std::string is = absl::StrCat("input '", io.name, "' is ", Describe(it->second.dtype(), it->second.shape()));
    TEMPER_ASSIGN_OR_RETURN(const std::string taken, TakenAs(i, package));
    return absl::InvalidArgumentError(absl::StrCat(is, ", the model takes ", taken));
  }
  for (const auto& [name, array] : given) {
    bool known = false;
    for (const LoadedPackage::Io& io : package.inputs()) known = known || io.name == name;
    if (!known)
      return absl::InvalidArgumentError(absl::StrCat("the model has no input '", name, "'; its inputs: ", names));
  }
  for (const LoadedPackage::Io& io : package.inputs()) {
    if (NumElements(io.shape) == 0) given.try_emplace(io.name, io.dtype, io.shape);  // there is nothing to give
    if (!given.contains(io.name))
      return absl::InvalidArgumentError(absl::StrCat("no value for input '", io.name, "' (",
                                                     Describe(io.dtype, io.shape), "): give --input ", io.name,
                                                     "=FILE.npy"));
  }
  return given;
}

// Names that files can not tell apart are numbered, "a_b" and "a_b-2" for a/b and a_b: each output has its own file.
std::vector<std::string> FileNamesOf(const std::vector<LoadedPackage::Io>& outputs) {
  std::vector<std::string> names;
  for (const LoadedPackage::Io& io : outputs) {
    const std::string name = FileNameFor(io.name);
    std::string own = name;
    for (int i = 2; std::ranges::find(names, own) != names.end(); ++i) own = absl::StrCat(name, "-", i);
    names.push_back(std::move(own));
  }
  return names;
}

absl::Status Run(const RunOptions& o) {
  TEMPER_ASSIGN_OR_RETURN(const PackageAtHand at_hand, FindOrBuildPackage(o.model, o.records));
  TEMPER_ASSIGN_OR_RETURN(std::unique_ptr<LoadedPackage> package, LoadPackage(at_hand.dir, o.records.threads));
  TEMPER_ASSIGN_OR_RETURN(auto given, ReadInputs(o, *package));
  std::vector<NDArray> inputs;
  for (const LoadedPackage::Io& io : package->inputs()) inputs.push_back(given.at(io.name));
  TEMPER_ASSIGN_OR_RETURN(const std::vector<NDArray> outputs, package->RunShaped(inputs));
  std::error_code error;
  std::filesystem::create_directories(o.output_dir, error);
  if (error) return absl::UnavailableError(absl::StrCat("cannot create ", o.output_dir, ": ", error.message()));
  const std::vector<std::string> names = FileNamesOf(package->outputs());
  for (size_t i = 0; i < outputs.size(); ++i) {
    const std::string path = absl::StrCat(o.output_dir, "/", names[i], ".npy");
    TEMPER_RETURN_IF_ERROR(WriteNpy(path, outputs[i]));
    std::printf("%s: %s\n", path.c_str(), Describe(outputs[i].dtype(), outputs[i].shape()).c_str());
  }
  return absl::OkStatus();
}

}  // namespace

void AddRun(CLI::App& app, Action* action) {
  auto o = std::make_shared<RunOptions>();
  CLI::App* command = app.add_subcommand("run", "run a model or a package once on given inputs");
  AddModelOptions(command, &o->model, "MODEL.onnx or a package's directory");
  AddRecordOptions(command, &o->records);
  command->add_option("--input", o->inputs, "NAME=FILE.npy or NAME=FILE.pb, once for each input")
      ->allow_extra_args(false);  // what follows it may be the model
  command->add_option("--output-dir", o->output_dir, "where NAME.npy of each output goes")->required();
  command->add_option("--threads", o->records.threads, "threads (default: TEMPER_NUM_THREADS, else the affinity mask)")
      ->check(AboveZero());
  command->add_flag("--untuned", o->records.untuned, "use default configs only");
  command->footer("Example:\n  temper run model.onnx --input x=x.npy --output-dir out");
  command->callback([o, action] { *action = [o] { return Run(*o); }; });
}

}  // namespace temper
