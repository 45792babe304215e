#include <cstdio>

#include "absl/strings/str_cat.h"
#include "cli/command.h"

namespace temper {
namespace {

struct Options {
  ModelOptions model;
  RecordOptions records;
  std::string output, prefix;
};

absl::Status Compile(const Options& o) {
  TEMPER_ASSIGN_OR_RETURN(PackageReport report, BuildPackage(o.model, o.records, o.output, o.prefix));
  const auto mib = [](int64_t bytes) { return static_cast<double>(bytes) / 0x1p20; };
  std::printf("%s: %d kernels (%d from records), %.1f MiB of weights, %.2f MiB of activations and scratch\n",
              o.output.c_str(), report.kernels, report.tuned_kernels, mib(report.weight_bytes),
              mib(report.arena_bytes));
  return absl::OkStatus();
}

}  // namespace

void AddCompile(CLI::App& app, Action* action) {
  auto o = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "compile", "build a package (model.so, weights.bin, manifest.json, model.h) with the best known configs");
  AddModelOptions(command, &o->model, "MODEL.onnx");
  AddRecordOptions(command, &o->records);
  command->add_option("-o,--output", o->output, "directory of the package")->required();
  command->add_option("--target", o->records.target,
                      "what to compile for: host, llvm:haswell, ... (default: the device's, or this machine)");
  command->add_option("--prefix", o->prefix,
                      "name the library lib<prefix>.so and its functions <prefix>_create, <prefix>_run, ..., so that a "
                      "program can link several models");
  command->add_flag("--untuned", o->records.untuned, "default configs only");
  command->add_flag("--strict", o->records.strict, "no records of another code generator's version");
  command->footer("Example:\n  temper compile resnet50.onnx -o resnet50.temper");
  command->callback([o, action] { *action = [o] { return Compile(*o); }; });
}

}  // namespace temper
