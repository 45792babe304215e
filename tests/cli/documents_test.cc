// What documents tell people to type: their commands run as they stand, and the options they name exist.
#include <netinet/in.h>
#include <sys/socket.h>

#include <map>
#include <regex>
#include <set>

#include "tests/cli/cli_fixture.h"
#include "tests/tree/documents.h"

namespace temper::cli_test {
namespace {

using tree::Block;

Result Shell(const std::string& command) {
  std::FILE* pipe = popen(("(" + command + ") 2>&1").c_str(), "r");
  Result result{-1, ""};
  std::array<char, 4096> buffer;
  for (size_t n; (n = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) result.out.append(buffer.data(), n);
  result.code = WEXITSTATUS(pclose(pipe));
  return result;
}

std::set<std::string> Matches(const std::string& text, const std::regex& pattern) {
  return {std::sregex_token_iterator(text.begin(), text.end(), pattern), std::sregex_token_iterator()};
}
const std::regex kOption("--[a-z][a-z-]+");

// --- options ---

// The options of each of our commands, as its --help has them: "temper tune", "temper db export", "temper-server init".
std::map<std::string, std::set<std::string>> ReadOptions() {
  std::map<std::string, std::set<std::string>> options;
  std::vector<std::string> commands = {
      "temper", "temper-server", "temper-server init", "temper-server renew", "temper-worker", "temper-worker join"};
  for (size_t i = 0; i < commands.size(); ++i) {
    const std::string command = commands[i];
    const std::string help = Shell(kBin + command + " --help").out;
    options[command] = Matches(help, kOption);
    const size_t list = help.find("Subcommands:\n");
    if (!command.starts_with("temper") || list == std::string::npos) continue;
    static const std::regex kName(R"re(\n  ([a-z]+) )re");
    const std::string names = help.substr(list, help.find("\nExample", list) - list);
    for (std::sregex_iterator it(names.begin(), names.end(), kName), end; it != end; ++it)
      commands.push_back(command + " " + (*it)[1].str());
  }
  return options;
}
const std::map<std::string, std::set<std::string>>& AllOptions() {
  static const std::map<std::string, std::set<std::string>> options = ReadOptions();
  return options;
}

// What a line of a shell, or a text in backquotes, says wrongly of our options.
std::vector<std::string> Wrong(const std::string& line, const std::map<std::string, std::set<std::string>>& options) {
  static const std::regex kEnd(R"re(\s*(&&|--\s|\|\||[|;#>&]|\$\().*)re");
  std::vector<std::string> wrong;
  for (size_t at = line.find("temper"); at != std::string::npos; at = line.find("temper", at + 1)) {
    if (at > 0 && std::string(" (").find(line[at - 1]) == std::string::npos && !line.substr(0, at).ends_with("bin/"))
      continue;
    std::istringstream words(std::regex_replace(line.substr(at), kEnd, ""));
    std::string command;
    bool named = true;
    for (std::string word; words >> word;) {
      const std::string longer = command.empty() ? word : command + " " + word;
      if (named && (named = options.contains(longer))) command = longer;
      if (command.empty()) break;
      for (const std::string& option : Matches(word, kOption)) {
        if (word.starts_with("--") && !options.at(command).contains(option)) wrong.push_back(command + " " + option);
      }
    }
  }
  return wrong;
}

TEST(DocumentsTest, OptionsInDocumentsAreOptionsOfTheCommand) {
  const auto& options = AllOptions();
  EXPECT_GT(options.size(), 25u);
  std::set<std::string> any = {"--build", "--install", "--prefix", "--component", "--needed"};  // CMake's, KEDA's
  for (const auto& [command, its] : options) any.insert(its.begin(), its.end());
  // The programs of bench/ have theirs as texts in their sources.
  for (const std::string& file : tree::Sources({".cc", ".py"})) {
    if (tree::StartsWith(file, "bench/")) any.merge(Matches(tree::Read(tree::kRoot / file), kOption));
  }
  size_t seen = 0;
  for (const std::string& file : tree::Sources({".md"})) {
    std::istringstream text(tree::Read(tree::kRoot / file));
    static const std::regex kCode("`([^`]*)`");
    bool inside = false;
    for (std::string line; std::getline(text, line);) {
      if (tree::StartsWith(line, "```")) inside = !inside;
      std::vector<std::string> commands;
      if (inside) commands = {line};
      for (std::sregex_iterator it(line.begin(), line.end(), kCode), end; !inside && it != end; ++it) {
        commands.push_back((*it)[1]);
        for (const std::string& option : Matches(commands.back(), kOption)) {
          ++seen;
          EXPECT_TRUE(any.contains(option) || !tree::StartsWith(commands.back(), "--")) << file << " names " << option;
        }
      }
      for (const std::string& command : commands) {
        for (const std::string& wrong : Wrong(command, options)) ADD_FAILURE() << file << ": no option " << wrong;
      }
    }
  }
  EXPECT_GT(seen, 50u);
}

TEST(DocumentsTest, TheHelpOfACommandHasAnExampleOfItself) {
  for (const auto& [command, its] : AllOptions()) {
    const std::string help = Shell(kBin + command + " --help").out;
    const size_t example = help.find("\nExample");
    ASSERT_NE(example, std::string::npos) << command;
    EXPECT_NE(help.find("\n  " + command, example), std::string::npos) << command << ": " << help.substr(example);
  }
}

TEST(DocumentsTest, TheCheckOfOptionsFindsEachKindOfMistake) {
  const std::map<std::string, std::set<std::string>> options = {
      {"temper", {}}, {"temper tune", {"--db"}}, {"temper db", {}}, {"temper db list", {"--json"}}};
  EXPECT_EQ(Wrong("build/bin/temper tune model.onnx --db a --bd b", options).size(), 1u);
  EXPECT_EQ(Wrong("temper tune a --db b && temper db list --jason", options).size(), 1u);
  EXPECT_EQ(Wrong("temper db list --json; temper tune --json", options).size(), 1u);
  EXPECT_TRUE(Wrong("temper tune a --db b   # not --bd", options).empty());
  EXPECT_TRUE(Wrong("unzip --list temper.zip", options).empty());
}

// --- commands ---

// Ahead of a document's commands. A server or worker is started in the background, as in a terminal of its own, and a
// server has ended before the next one starts.
constexpr char kPrologue[] = R"sh(
set -euo pipefail
started=()
stop() {
  for process in "${started[@]}"; do kill "$process" 2>/dev/null || true; done
  for process in "${started[@]}"; do wait "$process" 2>/dev/null || true; done
  started=()
}
trap stop EXIT
temper-server() {
  case $1 in init | renew) command temper-server "$@" && return ;; esac
  stop
  [[ $* = *--listen* ]] || set -- "$@" --listen "127.0.0.1:$port"
  mkfifo told
  (exec temper-server "$@") >told 2>>server.log &
  started+=($!)
  read -r line <told || { cat server.log; return 1; }
  rm told
  echo "$line"
}
temper-worker() {
  case $1 in join) command temper-worker "$@" && return ;; esac
  (exec temper-worker "$@") >>worker.log 2>&1 &
  started+=($!)
}
)sh";

// A port that nobody has at this moment.
std::string FreePort() {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  bind(fd, reinterpret_cast<sockaddr*>(&address), size);
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  close(fd);
  return std::to_string(ntohs(address.sin_port));
}

// The document's commands, with what can not be had here replaced: names, ports, folders of root's, minutes (by trials,
// which a slow machine has time for).
std::string Script(const std::vector<Block>& blocks, const std::string& folder) {
  const std::string port = FreePort();
  const std::pair<std::regex, std::string> replaced[] = {
      {std::regex("0\\.0\\.0\\.0|tuner\\.example"), "localhost"},
      {std::regex(":9190"), ":" + port},
      {std::regex("/(srv|opt)/temper"), folder + "/$1"},
      {std::regex("cmake --install build "), "cmake --install " TEMPER_BINARY_DIR " "},
      {std::regex("--time-budget 2m"), "--trials 20"}};
  std::string script = "port=" + port + kPrologue;
  for (const Block& block : blocks) {
    if (!block.runs()) continue;
    std::string text = block.text;
    for (const auto& [from, to] : replaced) text = std::regex_replace(text, from, to);
    script += "echo '--- line " + std::to_string(block.line) + "'\n" + text;
  }
  return script;
}

class DocumentsRun : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    for (const char* name : {"TEMPER_DB", "TEMPER_SERVER", "TEMPER_CA", "TEMPER_TOKEN_FILE"}) unsetenv(name);
  }
  // What documents call model.onnx and x.npy: a classifier of an image, small enough to tune in a second.
  static void WriteModel(const std::string& folder) {
    onnx::ModelProto model;
    model.set_ir_version(8);
    model.add_opset_import()->set_version(17);
    onnx::GraphProto* graph = model.mutable_graph();
    AddTensor(graph, "w", {8, 3, 3, 3});
    AddTensor(graph, "d", {8, 1000});
    AddNode(graph, "Conv", {"x", "w"}, "c");
    onnx::AttributeProto* strides = graph->mutable_node(0)->add_attribute();
    strides->set_name("strides");
    strides->set_type(onnx::AttributeProto::INTS);
    for (int i = 0; i < 2; ++i) strides->add_ints(32);
    AddNode(graph, "GlobalAveragePool", {"c"}, "p");
    AddNode(graph, "Flatten", {"p"}, "f");
    AddNode(graph, "MatMul", {"f", "d"}, "y");
    SetValue(graph->add_input(), "x", {1, 3, 224, 224});
    SetValue(graph->add_output(), "y", {1, 1000});
    std::ofstream out(folder + "/model.onnx", std::ios::binary);
    ASSERT_TRUE(model.SerializeToOstream(&out));
    std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 3, 224, 224), }";
    header.resize(117, ' ');
    std::ofstream npy(folder + "/x.npy", std::ios::binary);
    npy << std::string("\x93NUMPY\x01\x00\x76\x00", 10) << header << "\n" << std::string(4 * 3 * 224 * 224, '\0');
  }
  Result Run(const std::vector<Block>& blocks, const std::string& name) {
    const std::string folder = dir_ + "/" + name;
    fs::create_directories(folder);
    WriteModel(folder);
    for (const Block& block : blocks) {
      if (block.mark != "file") continue;
      fs::create_directories(fs::path(folder + "/" + block.said).parent_path());
      std::ofstream(folder + "/" + block.said) << block.text;
    }
    std::ofstream(folder + "/commands.sh") << Script(blocks, folder);
    return Shell("cd " + folder + " && export XDG_DATA_HOME=$PWD/data XDG_STATE_HOME=$PWD/state CMAKE_GENERATOR=Ninja" +
                 " BENCH_SECONDS=0.05 PATH=" + kBin + ":$PATH && timeout 300 bash commands.sh");
  }
};

TEST_F(DocumentsRun, EveryCommandInTheGuidesRunsOrSaysWhyNot) {
  int ran = 0;
  for (const std::string& guide : tree::Guides()) {
    const std::vector<Block> blocks = tree::Blocks(tree::Read(tree::kRoot / guide));
    int here = 0;
    for (const Block& block : blocks) here += block.runs();
    if (here == 0) continue;
    const Result result = Run(blocks, "guide" + std::to_string(ran));
    EXPECT_EQ(result.code, 0) << guide << "\n" << result.out;
    ran += here;
  }
  EXPECT_GT(ran, 20);
}

TEST_F(DocumentsRun, ACommandThatFailsIsFound) {
  EXPECT_EQ(Run(tree::Blocks("```sh\ntemper tasks model.onnx\n```\n"), "good").code, 0);
  EXPECT_NE(Run(tree::Blocks("```sh\ntemper taks model.onnx\ntrue\n```\n"), "typo").code, 0);
  EXPECT_NE(Run(tree::Blocks("```sh\ntemper-server --db none/none/records.db\n```\n"), "server").code, 0);
}

}  // namespace
}  // namespace temper::cli_test
