#include "tuner_server/directory_commands.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "security/server_directory.h"

namespace temper {
namespace {

struct Options {
  std::string dir;
  std::vector<std::string> names;
};

void AddNames(CLI::App& app, Options& options) {
  app.add_option("--name", options.names,
                 "A name or address that clients and workers know this server by; may be given more than once")
      ->allow_extra_args(false);  // what follows it may be the directory
}
void AddNothing(CLI::App&, Options&) {}

absl::Status Init(const Options& options) {
  TEMPER_RETURN_IF_ERROR(InitServerDirectory(options.dir, options.names, Clock::System().Wall()));
  const std::string host = options.names.empty() ? "127.0.0.1" : options.names[0];
  const char *dir = options.dir.c_str(), *name = host.c_str();
  std::printf("made %s: an authority, this server's certificate and a first token\n\n", dir);
  std::printf("serve:   temper-server --dir %s --db records.db --listen 0.0.0.0:9190\n", dir);
  std::printf("tell:    export TEMPER_SERVER=%s:9190 TEMPER_CA=%s/ca.crt TEMPER_TOKEN_FILE=%s/admin.token\n", name, dir,
              dir);
  std::printf("invite:  temper device add KEY, which prints what to run on the worker's machine\n\n");
  std::printf("Whoever reads %s/ca.key or %s/admin.token can let anybody in.\n", dir, dir);
  return absl::OkStatus();
}

absl::Status Renew(const Options& options) {
  TEMPER_RETURN_IF_ERROR(RenewServerCertificate(options.dir, Clock::System().Wall()));
  std::printf("renewed %s/server.crt; a running server takes it up by itself\n", options.dir.c_str());
  return absl::OkStatus();
}

struct Command {
  const char* name;
  const char* help;
  const char* example;
  void (*add_options)(CLI::App&, Options&);
  absl::Status (*run)(const Options&);
};
constexpr Command kCommands[] = {
    {"init", "Makes what a server needs to know its workers and clients.",
     "temper-server init /srv/temper --name tuner.example --name 192.168.1.10", AddNames, Init},
    {"renew", "Signs the server's certificate again, with the same key and names.", "temper-server renew /srv/temper",
     AddNothing, Renew},
};

int Run(const Command& command, int argc, char** argv) {
  const std::string name = std::string("temper-server ") + command.name;
  CLI::App app(command.help, name);
  Options options;
  app.add_option("DIR", options.dir, "The server's directory")->required();
  command.add_options(app, options);
  app.footer(std::string("Example:\n  ") + command.example + "\n");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    std::fprintf(stderr, "%s: %s; see --help\n", name.c_str(), error.what());
    return 2;
  }
  const absl::Status status = command.run(options);
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s: %s\n", name.c_str(), std::string(status.message()).c_str());
  return 1;
}

}  // namespace

bool RunDirectoryCommand(int argc, char** argv, int* exit) {
  for (const Command& command : kCommands) {
    if (argc < 2 || std::string_view(argv[1]) != command.name) continue;
    *exit = Run(command, argc - 1, argv + 1);
    return true;
  }
  return false;
}

}  // namespace temper
