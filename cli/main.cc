// temper: tune, compile, run and time models; query records; look after a fleet.
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/program.h"
#include "base/utf8.h"
#include "base/version.h"
#include "cli/command.h"
#include "cli/json_line.h"
#include "cli/usage.h"
#include "compiler/codegen/codegen.h"
#include "proto/channel.h"

namespace temper {
namespace {

constexpr AddCommand kCommands[] = {AddTune,   AddCompile, AddLock,     AddDiff,  AddVerify,  AddBench,   AddRun,
                                    AddTasks,  AddExplain, AddPretrain, AddDb,    AddDevices, AddJobs,    AddWatch,
                                    AddCancel, AddDevice,  AddToken,    AddAudit, AddDrain,   AddUndrain, AddPriority};

// One line, for people or for a program that wants the kind of the error too.
void Tell(const absl::Status& error, bool json) {
  const std::string message(error.message());
  if (json) {
    const std::string line = JsonText({{"code", absl::StatusCodeToString(error.code())}, {"error", message}});
    std::fprintf(stderr, "%s\n", line.c_str());
  } else {
    // It may quote a server, or names in a model: nothing of them is for the terminal to obey.
    std::fprintf(stderr, "temper: %s\n", Escaped(message).c_str());
  }
}

// The exit code. What did not reach where standard output goes, a full disk, did not happen.
int Ended(absl::Status status, bool json_errors) {
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
    status.Update(absl::UnavailableError(absl::StrCat("cannot write standard output: ", std::strerror(errno))));
  if (status.ok()) return 0;
  Tell(status, json_errors);
  return 1;
}

// What has to be the same for the same code.
std::string VersionText() {
  return absl::StrCat("temper ", TemperVersion(), ", code generator ", kCodegenVersion, ", ",
                      CodegenTools(HostTarget()));
}

int Main(int argc, char** argv) {
  if (const std::string wrong = WrongCommandLine(argc, argv); !wrong.empty()) {
    std::fprintf(stderr, "temper: %s\n", wrong.c_str());
    return 2;
  }
  CLI::App app("Tunes neural networks for the machine at hand, and compiles them.");
  app.require_subcommand(1);
  bool verbose = false, json_errors = false;
  app.add_flag("-v,--verbose", verbose, "log what happens (TEMPER_LOG sets the level)");
  app.add_flag("--json-errors", json_errors, "an error is a JSON object on stderr: its code and its line");
  app.set_version_flag("--version", VersionText);
  app.fallthrough();
  Action action;
  for (AddCommand add : kCommands) add(app, &action);
  // Afterwards, because commands take over the footer that is there when they are added.
  app.footer(
      "Example:\n  temper tune model.onnx --time-budget 2m && temper compile model.onnx -o package && temper bench "
      "package");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) {
      app.exit(e);
      return Ended(absl::OkStatus(), json_errors);
    }
    // Where parsing fails, CLI11 has set no flag.
    const bool json = std::find(argv, argv + argc, std::string_view("--json-errors")) != argv + argc;
    Tell(absl::InvalidArgumentError(absl::StrCat(WhatIsWrong(app, e), "; see --help")), json);
    return 2;
  }
  SetUpLogging(verbose);
  LogLibrariesQuietly();
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is an error like a full disk
  return Ended(action(), json_errors);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::Main(argc, argv); }
