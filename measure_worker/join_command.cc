#include "measure_worker/join_command.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/state_directory.h"
#include "measure_worker/service/membership.h"
#include "security/files.h"

namespace temper::worker {
namespace {

struct Options {
  std::string server, token, token_file, state_dir = StateDirectory();
};

absl::Status Join(const Options& options) {
  std::string invitation = options.token;
  if (!options.token_file.empty()) {
    TEMPER_ASSIGN_OR_RETURN(invitation, ReadSmallFile(options.token_file, Secrecy::kPrivate));
  }
  TEMPER_ASSIGN_OR_RETURN(
      const std::string key,
      JoinFleet(options.server, std::string(absl::StripAsciiWhitespace(invitation)), options.state_dir));
  const std::string kept =
      options.state_dir == StateDirectory() ? "" : absl::StrCat(" --state-dir ", options.state_dir);
  std::printf("joined as '%s'; now run: temper-worker --server %s --key %s%s\n", key.c_str(), options.server.c_str(),
              key.c_str(), kept.c_str());
  return absl::OkStatus();
}

}  // namespace

int RunJoin(int argc, char** argv) {
  Options options;
  CLI::App app("Makes a key on this machine and has the server sign it, by an invitation that counts once.",
               "temper-worker join");
  app.footer("Example:\n  temper-worker join --server tuner.example:9190 --token tmpr-join_...");
  app.add_option("--server", options.server, "Where the server listens: HOST:PORT")->required();
  auto* token = app.add_option("--token", options.token, "What temper device add printed");
  auto* file =
      app.add_option("--token-file", options.token_file, "A file with what it printed, which only you may read");
  token->excludes(file);
  app.add_option("--state-dir", options.state_dir, "Where to keep the key and the certificate")->capture_default_str();
  try {
    app.parse(argc, argv);
    if (token->empty() && file->empty()) throw CLI::RequiredError("--token or --token-file");
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    std::fprintf(stderr, "temper-worker join: %s; see --help\n", error.what());
    return 2;
  }
  LogLibrariesQuietly();
  const absl::Status status = Join(options);
  if (status.ok()) return 0;
  std::fprintf(stderr, "temper-worker join: %s\n", std::string(status.message()).c_str());
  return 1;
}

}  // namespace temper::worker
