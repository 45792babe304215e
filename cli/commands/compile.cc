#include <cstdio>

#include "absl/strings/str_cat.h"
#include "cli/build.h"
#include "cli/command.h"
#include "cli/report/words.h"

namespace temper {
namespace {

struct CompileOptions {
  ModelOptions model;
  RecordOptions records;
  BuildOptions build;
  std::string output, min_coverage = "0";
};

absl::Status Compile(CompileOptions o) {
  TEMPER_ASSIGN_OR_RETURN(o.build.min_coverage, ParseShare("--min-coverage", o.min_coverage));
  TEMPER_ASSIGN_OR_RETURN(PackageReport report, BuildPackage(o.model, o.records, o.output, o.build));
  const auto mib = [](int64_t bytes) { return static_cast<double>(bytes) / 0x1p20; };
  const std::string source = o.build.lock.empty()
                                 ? absl::StrCat(report.tuned_kernels, " from records")
                                 : absl::StrCat("as ", o.build.lock, " pins them, ", report.tuned_kernels, " tuned");
  const std::string variants = report.variants > 1 ? absl::StrCat(report.variants, " variants, ") : "";
  std::printf("%s: %s%s (%s), %.1f MiB of weights, %.2f MiB of activations and scratch\n", o.output.c_str(),
              variants.c_str(), Counted(report.kernels, "kernel").c_str(), source.c_str(), mib(report.weight_bytes),
              mib(report.arena_bytes));
  return absl::OkStatus();
}

}  // namespace

void AddCompile(CLI::App& app, Action* action) {
  auto o = std::make_shared<CompileOptions>();
  CLI::App* command = app.add_subcommand(
      "compile", "build a package (model.so, weights.bin, manifest.json, model.h) with the best known configs");
  AddModelOptions(command, &o->model, "MODEL.onnx");
  AddRecordOptions(command, &o->records);
  AddThreadsOption(command, &o->records);
  command->add_option("-o,--output", o->output, "directory of the package")->required();
  command->add_option("--target", o->records.target,
                      "what to compile for: host, llvm:haswell, cuda:sm_90, ... (default: the device's, or this "
                      "machine); for CUDA, later devices too, but for kernels of gpu.wgmma, which run on sm_90 alone");
  command->add_option("--prefix", o->build.prefix,
                      "name the library lib<prefix>.so and its functions <prefix>_create, <prefix>_run, ..., so that a "
                      "program can link several models");
  CLI::Option* lock = command->add_option(
      "--lock", o->build.lock, "build from this FILE of `temper lock` only, without database, server or network");
  command->add_option("--report", o->build.report,
                      "write to FILE where each kernel's choice is from, and its share of the time");
  command->add_option("--min-coverage", o->min_coverage,
                      "fail if less than this share of the model's time, such as 90% or 0.9, is in measured kernels");
  CLI::Option* untuned = command->add_flag("--untuned", o->records.untuned, "use default configs only");
  CLI::Option* strict =
      command->add_flag("--strict", o->records.strict, "use no records of another version of the code generator");
  lock->excludes(untuned)->excludes(strict);
  for (const char* source : {"--db", "--server"}) lock->excludes(command->get_option(source));
  command->footer(
      "Examples:\n  temper compile resnet50.onnx -o resnet50.temper\n  temper compile resnet50.onnx --lock "
      "resnet50.lock --min-coverage 0.9 -o resnet50.temper\n  temper compile bert.onnx --dim batch=1 --dim "
      "seq=32,128,512 -o bert.temper");
  command->callback([o, action] { *action = [o] { return Compile(*o); }; });
}

}  // namespace temper
