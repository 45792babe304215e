// What lies in deploy/ and docs/operations.md, held against what there is: metrics, options, pages.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>

#include "tuner_server/operations/metrics.h"
#include "tuner_server/operations/pages.h"

namespace temper {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string Read(const std::string& path) {
  std::ifstream in(std::string(TEMPER_SOURCE_DIR) + "/" + path);
  EXPECT_TRUE(in.is_open()) << path;
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

std::string OutputOf(const std::string& command) {
  std::FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  std::string output;
  std::array<char, 4096> bytes;
  for (size_t n; (n = std::fread(bytes.data(), 1, bytes.size(), pipe)) > 0;) output.append(bytes.data(), n);
  pclose(pipe);
  return output;
}

std::set<std::string> Matches(const std::string& text, const std::regex& pattern, int group = 0) {
  std::set<std::string> found;
  for (std::sregex_iterator it(text.begin(), text.end(), pattern), end; it != end; ++it) found.insert((*it)[group]);
  return found;
}

// The metric that a name in a query means; null: none.
const MetricDef* FindMetric(std::string name) {
  for (const MetricDef& def : AllMetrics()) {
    if (def.name == name && def.type != MetricType::kHistogram) return &def;
    if (def.type != MetricType::kHistogram) continue;
    for (const char* part : {"_bucket", "_sum", "_count"}) {
      if (def.name + part == name) return &def;
    }
  }
  return nullptr;
}

// What is wrong with a query: metrics that do not exist, labels and values that they do not have.
std::vector<std::string> Wrong(const std::string& query) {
  std::vector<std::string> wrong;
  std::set<std::string> labels = {"le"};
  std::vector<std::string> values;
  for (const std::string& name : Matches(query, std::regex("temper_[a-z_]+"))) {
    const MetricDef* def = FindMetric(name);
    if (def == nullptr) {
      wrong.push_back("there is no metric " + name);
      continue;
    }
    labels.insert(def->label);
    values.insert(values.end(), def->values.begin(), def->values.end());
  }
  for (const std::string& label : Matches(query, std::regex(R"(by \(([a-z]+)\))"), 1)) {
    if (!labels.contains(label)) wrong.push_back("no metric has the label " + label);
  }
  for (const std::string& value : Matches(query, std::regex("=\"([^\"]*)\""), 1)) {
    if (std::find(values.begin(), values.end(), value) == values.end()) wrong.push_back("no label is ever " + value);
  }
  return wrong;
}

TEST(DeployTest, TheDashboardAsksForMetricsThatExist) {
  const nlohmann::json dashboard = nlohmann::json::parse(Read("deploy/grafana/temper.json"));
  std::string all;
  for (const nlohmann::json& panel : dashboard["panels"]) {
    for (const nlohmann::json& target : panel["targets"]) {
      const std::string query = target["expr"];
      EXPECT_THAT(Wrong(query), IsEmpty()) << panel["title"];
      all += query + "\n";
    }
  }
  for (const MetricDef& def : AllMetrics()) EXPECT_THAT(all, HasSubstr(def.name)) << "is on no panel";
}

TEST(DeployTest, TheCheckOfQueriesFindsEachKindOfMistake) {
  EXPECT_THAT(Wrong("rate(temper_trials_total{outcome=\"ok\"}[5m])"), IsEmpty());
  EXPECT_EQ(Wrong("temper_trial_total").size(), 1u);
  EXPECT_EQ(Wrong("temper_store_commit_seconds").size(), 1u);  // a histogram's name alone is no series
  EXPECT_EQ(Wrong("sum by (host) (temper_leases)").size(), 1u);
  EXPECT_EQ(Wrong("temper_trials_total{outcome=\"fine\"}").size(), 1u);
}

TEST(DeployTest, TheGuideExplainsEveryMetric) {
  const std::string guide = Read("docs/operations.md");
  for (const MetricDef& def : AllMetrics()) EXPECT_THAT(guide, HasSubstr("`" + def.name)) << def.name;
  for (const std::string& name : Matches(guide, std::regex("temper_[a-z_]*[a-z]"))) {
    const bool known =
        std::any_of(AllMetrics().begin(), AllMetrics().end(), [&](const MetricDef& def) { return def.name == name; });
    EXPECT_TRUE(known || FindMetric(name) != nullptr) << name;
  }
}

// The command lines in units, manifests and the compose file say only what the programs understand.
TEST(DeployTest, OptionsInDeployAreOptionsOfTheProgram) {
  const std::regex option("--[a-z][a-z-]+");
  const std::map<std::string, std::set<std::string>> known = {
      {"server", Matches(OutputOf(std::string(TEMPER_SERVER) + " --help"), option)},
      {"worker", Matches(OutputOf(std::string(TEMPER_WORKER) + " --help"), option)}};
  const std::pair<const char*, const char*> files[] = {{"server", "deploy/systemd/temper-server.service"},
                                                       {"worker", "deploy/systemd/temper-worker@.service"},
                                                       {"server", "deploy/kubernetes/server.yaml"},
                                                       {"worker", "deploy/kubernetes/workers.yaml"}};
  for (const auto& [program, file] : files) {
    std::istringstream lines(Read(file));
    for (std::string line; std::getline(lines, line);) {
      // Comments name other programs too, but for those that show a program's options.
      if (line[0] == '#' && line.find("OPTIONS=") == std::string::npos) continue;
      if (line.find('#') != std::string::npos && line[0] != '#') line.resize(line.find('#'));
      for (const std::string& used : Matches(line, option)) {
        EXPECT_THAT(known.at(program), Contains(used)) << file << ": " << line;
      }
    }
  }
}

TEST(DeployTest, ProbesAskForPagesThatAreServed) {
  std::set<std::string> served;
  for (const HttpRoute& route : OperationsPages({})) served.insert(route.path);
  const std::string manifests = Read("deploy/kubernetes/server.yaml") + Read("deploy/kubernetes/workers.yaml");
  const std::set<std::string> asked = Matches(manifests, std::regex(R"((?:path: |:9191)(/[a-z]+)\b)"), 1);
  EXPECT_GE(asked.size(), 4u);
  for (const std::string& path : asked) {
    if (path == "/var" || path == "/tmp") continue;
    EXPECT_THAT(served, Contains(path));
  }
}

// The units, with the programs where this build has them.
TEST(DeployTest, SystemdAcceptsTheUnits) {
  if (OutputOf("systemd-analyze --version").find("systemd") != 0) GTEST_SKIP() << "there is no systemd-analyze here";
  const fs::path folder = fs::temp_directory_path() / ("temper-units-" + std::to_string(getpid()));
  fs::create_directory(folder);
  std::string units;
  for (const std::string name : {"temper-server.service", "temper-worker@.service"}) {
    const std::string unit = Read("deploy/systemd/" + name);
    std::ofstream(folder / name) << std::regex_replace(unit, std::regex("/opt/temper/bin/"),
                                                       std::string(TEMPER_BINARY_DIR) + "/bin/");
    units += " " + (folder / name).string();
  }
  EXPECT_EQ(OutputOf("systemd-analyze verify" + units), "");
  std::ofstream(folder / "temper-server.service", std::ios::app) << "[Service]\nNonsense=1\n";
  EXPECT_THAT(OutputOf("systemd-analyze verify" + units), HasSubstr("Nonsense"));
  fs::remove_all(folder);
}

}  // namespace
}  // namespace temper
