// Documents and comments against the tree: links and anchors, names of files, versions, fences, width of lines.
#include "tests/tree/documents.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <regex>

namespace {

using namespace temper::tree;

using Lines = std::vector<std::string>;

Lines LinesOf(const std::string& text) {
  Lines lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// The groups of all matches.
Lines Matches(const std::string& text, const std::regex& pattern, int group = 1) {
  return {std::sregex_token_iterator(text.begin(), text.end(), pattern, group), std::sregex_token_iterator()};
}

// The lines outside of fenced blocks.
Lines Prose(const std::string& document) {
  Lines prose;
  bool inside = false;
  for (const std::string& line : LinesOf(document)) {
    const bool fence = StartsWith(line, "```");
    if (!fence && !inside) prose.push_back(line);
    inside = inside != fence;
  }
  return prose;
}

// What a link to each heading has behind its '#', as GitHub makes it.
std::set<std::string> Anchors(const std::string& document) {
  std::set<std::string> anchors;
  for (const std::string& line : Prose(document)) {
    const size_t title = line.find_first_not_of('#');
    if (title == 0 || title == std::string::npos || line[title] != ' ') continue;
    std::string anchor;
    for (const char c : line.substr(title + 1)) {
      if (std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_') {
        anchor += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      } else if (c == ' ') {
        anchor += '-';
      }
    }
    anchors.insert(anchor);
  }
  return anchors;
}

// --- one check each; what a document says wrongly ---

Lines BrokenLinks(const std::string& file, const std::string& document) {
  static const std::regex kLink(R"re(\]\(([^)#:]*)(?:#([^)]*))?\))re");
  Lines broken;
  for (const std::string& line : Prose(document)) {
    for (std::sregex_iterator it(line.begin(), line.end(), kLink), end; it != end; ++it) {
      const std::string to = (*it)[1], anchor = (*it)[2];
      const fs::path path = to.empty() ? kRoot / file : (kRoot / file).parent_path() / to;
      if (!fs::exists(path)) {
        broken.push_back(to);
      } else if (!anchor.empty() && !Anchors(to.empty() ? document : Read(path)).contains(anchor)) {
        broken.push_back(to + "#" + anchor);
      }
    }
  }
  return broken;
}

// Every file of the tree, and every folder.
const std::set<std::string>& AllPaths() {
  static const std::set<std::string> paths = [] {
    std::set<std::string> all;
    for (auto it = fs::recursive_directory_iterator(kRoot); it != fs::recursive_directory_iterator(); ++it) {
      const std::string name = it->path().filename().string();
      if (it->is_directory() && (StartsWith(name, "build") || StartsWith(name, "."))) it.disable_recursion_pending();
      all.insert(fs::relative(it->path(), kRoot).string());
    }
    return all;
  }();
  return paths;
}

// Whether the tree has it, under this path or below some folder.
bool Exists(const std::string& path) {
  if (AllPaths().contains(path)) return true;
  return std::ranges::any_of(AllPaths(), [&](const std::string& p) { return p.ends_with("/" + path); });
}

// In a document: paths that begin in a folder of the tree, and names of sources, in backquotes.
Lines UnknownNames(const std::string& document) {
  static const std::regex kPath(R"re(`([a-z_]+/[a-zA-Z0-9_./-]*[a-zA-Z0-9_])/?`)re");
  static const std::regex kName(R"re(`(\w+\.(?:cc|h|c|hpp|py|proto))`)re");
  Lines unknown;
  for (const std::string& line : Prose(document)) {
    for (const std::string& path : Matches(line, kPath)) {
      const std::string folder = path.substr(0, path.find('/'));
      if (folder != "build" && AllPaths().contains(folder) && !AllPaths().contains(path)) unknown.push_back(path);
    }
    for (const std::string& name : Matches(line, kName)) {
      if (!Exists(name)) unknown.push_back(name);
    }
  }
  return unknown;
}

// In the comments of a source: paths of sources and documents.
Lines UnknownInComments(const std::string& source) {
  static const std::regex kComment(R"re(//.*|/\*.*|^ \* .*)re");
  static const std::regex kPath(
      R"re((?:^|[^\w/.<*-])((?:[a-z_0-9]+/)+[A-Za-z_0-9-]+\.(?:h|hpp|cc|c|py|md|proto))\b)re");
  Lines unknown;
  for (const std::string& line : LinesOf(source)) {
    std::smatch comment;
    if (Contains(line, "#include") || !std::regex_search(line, comment, kComment)) continue;
    for (const std::string& path : Matches(comment[0].str(), kPath)) {
      if (!Exists(path)) unknown.push_back(path);
    }
  }
  return unknown;
}

// The group of the pattern in a file of the tree.
std::string Said(const std::string& file, const std::string& pattern) {
  const std::string text = Read(kRoot / file);
  std::smatch found;
  if (!std::regex_search(text, found, std::regex(pattern))) ADD_FAILURE() << file << " has no " << pattern;
  return found.size() > 1 ? found[1].str() : "";
}

// How a version is written in documents, and what it is.
std::map<std::string, std::string> Versions() {
  return {{R"re(\bLLVM (\d+))re", Said("compiler/codegen/CMakeLists.txt", R"re(find_package\(LLVM (\d+))re")},
          {R"re(\bDebian (\d+))re", Said("deploy/packages.txt", R"re(Debian (\d+))re")},
          {R"re(\bTemper (\d+\.\d+\.\d+)\b)re", Said("CMakeLists.txt", R"re(project\(temper VERSION ([\d.]+))re")},
          {R"re(directory, version (\d+))re", Said("compiler/package/package.h", R"re(kPackageVersion = (\d+))re")}};
}

Lines WrongVersions(const std::string& document, const std::map<std::string, std::string>& versions) {
  Lines wrong;
  for (const auto& [pattern, is] : versions) {
    for (const std::string& said : Matches(document, std::regex(pattern))) {
      if (said != is) wrong.push_back(pattern + ": " + said + " where it is " + is);
    }
  }
  return wrong;
}

Lines WrongFences(const std::vector<Block>& blocks) {
  Lines wrong;
  for (const Block& block : blocks) {
    const std::string at = "line " + std::to_string(block.line) + ": ";
    if (block.language.empty()) wrong.push_back(at + "a fence without a language");
    if (block.language == "bash" || block.language == "console") wrong.push_back(at + "commands have the language sh");
    if (block.mark == "run by" ? !AllPaths().contains(block.said)
                               : !block.mark.empty() && block.mark != "not run" && block.mark != "file")
      wrong.push_back(at + block.mark + ": " + block.said);
  }
  return wrong;
}

Lines WideLines(const std::string& document) {
  constexpr size_t kMost = 100;
  Lines wide;
  for (const std::string& line : Prose(document)) {
    const size_t columns = std::ranges::count_if(line, [](char c) { return (c & 0xC0) != 0x80; });
    if (columns > kMost && line[0] != '|' && line[0] != '#' && Contains(line, " ")) wide.push_back(line);
  }
  return wide;
}

// --- the tree passes them ---

TEST(DocumentsTest, LinksAndNamesLeadSomewhere) {
  for (const std::string& file : Sources({".md"})) {
    const std::string document = Read(kRoot / file);
    for (const std::string& link : BrokenLinks(file, document)) ADD_FAILURE() << file << " links to " << link;
    for (const std::string& name : UnknownNames(document)) ADD_FAILURE() << file << " names " << name;
  }
}

TEST(DocumentsTest, CommentsNameFilesThatExist) {
  for (const std::string& file : Sources({".h", ".hpp", ".cc", ".c", ".proto"})) {
    if (file == "tests/tree/documents_test.cc") continue;  // names mistakes
    for (const std::string& name : UnknownInComments(Read(kRoot / file))) ADD_FAILURE() << file << " names " << name;
  }
}

TEST(DocumentsTest, VersionsAreThoseOfTheSources) {
  const std::map<std::string, std::string> versions = Versions();
  for (const std::string& file : Sources({".md"})) {
    for (const std::string& wrong : WrongVersions(Read(kRoot / file), versions)) ADD_FAILURE() << file << ": " << wrong;
  }
}

TEST(DocumentsTest, EveryFenceHasALanguageAndFewCommandsAreNotRun) {
  constexpr int kMostNotRun = 10;
  int not_run = 0;
  for (const std::string& file : Guides()) {
    const std::vector<Block> blocks = Blocks(Read(kRoot / file));
    for (const std::string& wrong : WrongFences(blocks)) ADD_FAILURE() << file << ": " << wrong;
    for (const Block& block : blocks) not_run += block.mark == "not run";
  }
  EXPECT_LE(not_run, kMostNotRun);
}

TEST(DocumentsTest, ProseIsNotWide) {
  for (const std::string& file : Guides()) {
    for (const std::string& line : WideLines(Read(kRoot / file))) ADD_FAILURE() << file << ": " << line;
  }
}

// All that programs read of the environment, but for what they hand to their own children and what tests set.
TEST(DocumentsTest, EnvironmentListsTheVariablesThatAreRead) {
  static const std::regex kRead(
      R"re((?:getenv|Environment|envname|LibraryPath|package_device|environ\.get)\("(TEMPER_\w+)")re");
  static const std::regex kListed(R"re(\n\| `(TEMPER_\w+)` \|)re");
  const auto found = [](const std::string& text, const std::regex& what, std::set<std::string>& names) {
    for (std::sregex_iterator it(text.begin(), text.end(), what), end; it != end; ++it) names.insert((*it)[1]);
  };
  std::set<std::string> read, listed;
  for (const std::string& file : Sources({".cc", ".c", ".h", ".py"})) {
    if (!StartsWith(file, "tests/") && !StartsWith(file, "bench/") && !StartsWith(file, "python/tests/"))
      found(Read(kRoot / file), kRead, read);
  }
  for (const char* own : {"TEMPER_MEMORY_BYTES", "TEMPER_FAILPOINT"}) read.erase(own);
  found(Read(kRoot / "docs/environment.md"), kListed, listed);
  EXPECT_EQ(listed, read);
}

// --- and each of them finds its mistakes ---

TEST(DocumentsTest, EachCheckFindsItsMistakes) {
  EXPECT_EQ(BrokenLinks("README.md", "[a](docs/none.md) [b](docs/builds.md#none) [c](#none)\n"),
            (Lines{"docs/none.md", "docs/builds.md#none", "#none"}));
  EXPECT_TRUE(
      BrokenLinks("README.md", "# Lock `files`, 2\n[a](docs/builds.md#lock-files) [b](#lock-files-2)\n").empty());
  EXPECT_EQ(UnknownNames("`docs/none.md` `none.cc` `cli/none/`\n"), (Lines{"docs/none.md", "cli/none", "none.cc"}));
  EXPECT_TRUE(
      UnknownNames("`docs/builds.md` `tree_test.cc` `cli/` `yours/none.cc`\n```\n`docs/none.md`\n```\n").empty());
  EXPECT_EQ(UnknownInComments("// See base/none.h.\nint a;  // ops/op.h, b/none.md\n"),
            (Lines{"base/none.h", "b/none.md"}));
  EXPECT_EQ(WrongVersions("It needs LLVM 12 and Debian 1.\n", Versions()).size(), 2u);
  EXPECT_EQ(WrongFences(Blocks("```\n```\n```bash\n```\n<!-- run by: tests/none.cc -->\n```sh\n```\n"
                               "<!-- not rnu: a -->\n```sh\n```\n"))
                .size(),
            4u);
  EXPECT_EQ(WideLines(std::string(60, 'a') + " " + std::string(60, 'a')).size(), 1u);
}

}  // namespace
