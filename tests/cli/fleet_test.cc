// A fleet that knows its own, by the programs themselves: what the images and the compose file start, and what an admin
// says to it.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "tests/chaos/process.h"
#include "tests/cli/cli_fixture.h"

namespace temper::cli_test {
namespace {

std::string FileText(const std::string& path) {
  std::ifstream in(path);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

// The strings of the JSON array that follows `key`, which follows `before`, in a file of the tree; the scripts of the
// images are those of deploy/compose.
std::vector<std::string> Command(const std::string& file, const std::string& before, const std::string& key) {
  const std::string text = FileText(std::string(TEMPER_SOURCE_DIR) + "/" + file);
  const size_t at = text.find(key, text.find(before)), open = text.find('[', at), close = text.find(']', open);
  if (at == std::string::npos || close == std::string::npos) return {};
  auto words = nlohmann::json::parse(text.substr(open, close - open + 1)).get<std::vector<std::string>>();
  for (std::string& word : words) {
    const std::string installed = "/opt/temper/compose/";
    if (word.starts_with(installed)) word = TEMPER_SOURCE_DIR "/deploy/compose/" + word.substr(installed.size());
    if (word == "cpu:1" && sysconf(_SC_NPROCESSORS_ONLN) < 2) word = "cpu:0";
  }
  return words;
}

bool Alive(Process& process) { return process.running() && !process.EndsWithin(absl::ZeroDuration()); }

// A shell takes the last of several variables of one name, so `env` leaves one of each.
absl::Status Start(Process& process, const std::vector<std::string>& environment,
                   const std::vector<std::string>& command) {
  std::vector<std::string> arguments = {"/usr/bin/env"};
  arguments.insert(arguments.end(), environment.begin(), environment.end());
  arguments.insert(arguments.end(), command.begin(), command.end());
  return process.Start({.arguments = arguments});
}

class FleetTest : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    home_ = dir_ + "/home";
    invitations_ = dir_ + "/invitations";
    fs::create_directory(home_);
    fs::create_directory(invitations_);
    path_ = "PATH=" + kBin.substr(0, kBin.size() - 1) + ":" + std::getenv("PATH");
  }
  void StartServer() {
    ASSERT_TRUE(Start(server_, {path_, "TEMPER_HOME=" + home_, "TEMPER_LISTEN=127.0.0.1:0"},
                      Command("deploy/Dockerfile", "AS server", "ENTRYPOINT"))
                    .ok());
    const std::string told = "temper-server listening on ";
    std::string line;
    do {
      line = server_.ReadLine();
      ASSERT_TRUE(!line.empty() || Alive(server_)) << server_.Errors();
    } while (!line.starts_with(told));
    address_ = line.substr(told.size());
    while (!address_.empty() && address_.back() == '\n') address_.pop_back();
  }
  std::vector<std::string> AdminEnvironment() const {
    return {path_, "TEMPER_SERVER=" + address_, "TEMPER_CA=" + home_ + "/server/ca.crt",
            "TEMPER_TOKEN_FILE=" + home_ + "/server/admin.token", "TEMPER_INVITATIONS=" + invitations_};
  }
  int Invite() {
    Process invite;
    EXPECT_TRUE(Start(invite, AdminEnvironment(), Command("docker-compose.yml", "\n  invite:", "entrypoint:")).ok());
    return invite.Wait();
  }
  void StartWorker(Process& worker, const std::string& service) {
    std::vector<std::string> command = Command("deploy/Dockerfile", "AS worker", "ENTRYPOINT");
    const std::vector<std::string> arguments = Command("docker-compose.yml", "\n  " + service + ":", "command:");
    ASSERT_FALSE(command.empty() || arguments.empty());
    command.insert(command.end(), arguments.begin(), arguments.end());
    ASSERT_TRUE(Start(worker,
                      {path_, "TEMPER_SERVER=" + address_, "TEMPER_INVITATIONS=" + invitations_,
                       "TEMPER_HOME=" + dir_ + "/" + service},
                      command)
                    .ok());
  }
  // With the token in `file`; the admin's by default.
  Result As(const std::string& arguments, const std::string& file = "") {
    std::string before;
    for (const std::string& variable : AdminEnvironment()) before += variable + " ";
    if (!file.empty()) before += "TEMPER_TOKEN_FILE=" + file + " ";
    return Temper(arguments, before);
  }
  std::string StateOf(const std::string& key) {
    for (const nlohmann::json& device : As("devices --json").Lines()) {
      if (device["key"] == key) return device["state"];
    }
    return "";
  }
  void AwaitWorkers(Process& a, Process& b) {
    while (StateOf("a").empty() || StateOf("b").empty()) {
      ASSERT_TRUE(Alive(server_) && Alive(a) && Alive(b)) << a.Errors() << b.Errors();
    }
  }

  std::string home_, invitations_, path_, address_;
  Process server_;
};

TEST_F(FleetTest, TheComposeFileStartsAFleetThatKnowsItsOwn) {
  StartServer();
  ASSERT_EQ(Invite(), 0);
  Process a, b;
  StartWorker(a, "worker-a");
  StartWorker(b, "worker-b");
  AwaitWorkers(a, b);

  // Another start of all of it goes on with what is there.
  a.KillAndWait();
  StartWorker(a, "worker-a");
  // The model's name would reverse what stands behind it.
  const std::string odd = dir_ + "/tiny\u202e.onnx";
  fs::copy_file(model_, odd);
  const Result tuned = As("tune " + odd + " --server " + address_ + " --device a --trials 4");
  EXPECT_EQ(tuned.code, 0) << tuned.out;
  EXPECT_EQ(tuned.out.find("\u202e"), std::string::npos) << tuned.out;
  const std::string jobs = As("jobs").out;
  EXPECT_EQ(jobs.find("\u202e"), std::string::npos) << jobs;
  EXPECT_NE(jobs.find("tiny\\"), std::string::npos) << jobs;
  const std::string devices = As("devices").out;
  for (const char* column : {"key", "state", "lease", "trials", "failures", "canary", "last seen s", "fingerprint"}) {
    EXPECT_NE(devices.substr(0, devices.find('\n')).find(column), std::string::npos) << column << " in\n" << devices;
  }

  // Revoked, a worker's next call is refused.
  const Result revoked = As("device revoke a");
  EXPECT_EQ(revoked.code, 0) << revoked.out;
  const auto refused = [&] {
    const std::vector<nlohmann::json> audit = As("audit --json --limit 1000").Lines();
    return std::any_of(audit.begin(), audit.end(), [](const nlohmann::json& entry) {
      return entry["verdict"] == "refused" && entry["detail"] == "the certificate was revoked";
    });
  };
  while (!refused()) ASSERT_TRUE(Alive(server_));
  EXPECT_EQ(StateOf("b"), "idle");
  // It says so and ends, for asking again would not help.
  EXPECT_NE(a.Wait(), 0);
  EXPECT_NE(a.Errors().find("temper-worker: the server refuses this worker: the certificate was revoked; "),
            std::string::npos)
      << a.Errors();
}

TEST_F(FleetTest, TokensAreMadeListedAndRevoked) {
  StartServer();
  const std::string file = dir_ + "/alice.token";
  const Result made = As("token add alice --scopes read --days 1 --out " + file);
  ASSERT_EQ(made.code, 0) << made.out;
  struct stat about {};
  ASSERT_EQ(stat(file.c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 07777, 0600u);
  EXPECT_EQ(As("jobs", file).code, 0);
  const Result beyond = As("device add a", file);
  EXPECT_EQ(beyond.code, 1);
  EXPECT_NE(beyond.out.find("AddDevice needs the scope admin"), std::string::npos) << beyond.out;
  EXPECT_EQ(std::count(beyond.out.begin(), beyond.out.end(), '\n'), 1) << beyond.out;

  ASSERT_EQ(As("token add bob --days 0").code, 0);
  EXPECT_NE(As("token list").out.find("expires\n"), std::string::npos);
  EXPECT_NE(As("token list").out.find("never\n"), std::string::npos);
  const Result nobody = As("drain nobody");
  EXPECT_EQ(nobody.out, "temper: no worker is called 'nobody': `temper devices` lists them\n");
  EXPECT_EQ(As("jobs --state foo").code, 2);
  EXPECT_EQ(As("priority 1 50").code, 2);
  const std::string id = FileText(file).substr(5, 16);
  EXPECT_NE(As("token list").out.find(id), std::string::npos);
  EXPECT_EQ(As("token revoke " + id).code, 0);
  EXPECT_NE(As("jobs", file).out.find("the token was revoked"), std::string::npos);
  EXPECT_EQ(As("token revoke nothing").code, 1);

  chmod(file.c_str(), 0644);
  EXPECT_NE(As("jobs", file).out.find("chmod 600"), std::string::npos);
}

TEST_F(FleetTest, WhoDoesNotBelongIsToldWhyInOneLine) {
  StartServer();
  const std::string there = " --server " + address_;
  const Result plain = Temper("jobs" + there, "TEMPER_CA= TEMPER_TOKEN_FILE= ");
  EXPECT_EQ(plain.code, 1);
  EXPECT_EQ(std::count(plain.out.begin(), plain.out.end(), '\n'), 1) << plain.out;
  const Result nobody = Temper("jobs" + there + " --ca " + home_ + "/server/ca.crt");
  EXPECT_EQ(nobody.out, "temper: ListJobs needs a token with the scope read\n");
  const Result no_ca = Temper("jobs" + there + " --ca " + dir_ + "/none.crt");
  EXPECT_NE(no_ca.out.find("none.crt"), std::string::npos) << no_ca.out;

  Process join;
  ASSERT_TRUE(join.Start({.arguments = {kBin + "temper-worker", "join", "--server", address_, "--token", "tmpr-join_x",
                                        "--state-dir", dir_ + "/w"}})
                  .ok());
  EXPECT_NE(join.Wait(), 0);
  EXPECT_EQ(join.Errors(), "temper-worker join: this is not an invitation: one begins with tmpr-join_\n");
}

}  // namespace
}  // namespace temper::cli_test
