// What it takes to add a tuner, a pass, an operator or a backend: docs/where-to-change-what.md promises which sources
// change, tests and lists of CMake apart. Each one that is there is held against it: the sources that name it are
// those, and no other, so that nobody keeps a further list of names that the next one would have to join.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <regex>

#include "tests/tree/sources.h"

namespace {

using namespace temper::tree;
using Paths = std::set<std::string>;

struct Source {
  std::string path;
  std::string code;               // without comments and literals
  std::set<std::string> strings;  // the literals
};

Source Split(const std::string& path, const std::string& text) {
  Source source{path, "", {}};
  for (size_t i = 0; i < text.size(); ++i) {
    if (text.compare(i, 2, "//") == 0) {
      i = std::min(text.find('\n', i), text.size() - 1);
    } else if (text[i] == '"') {
      size_t end = i + 1;
      while (end < text.size() && text[end] != '"' && text[end] != '\n') end += text[end] == '\\' ? 2 : 1;
      source.strings.insert(text.substr(i + 1, end - i - 1));
      i = end;
    } else if (text[i] == '\'' && i + 2 < text.size()) {
      const size_t end = i + (text[i + 1] == '\\' ? 3 : 2);
      if (end < text.size() && text[end] == '\'') i = end;
    } else {
      source.code += text[i];
    }
  }
  return source;
}

// All but tests, examples and benchmarks, which may choose some of whatever there is.
const std::vector<Source>& Tree() {
  static const std::vector<Source> sources = [] {
    std::vector<Source> all;
    for (const std::string& file : Sources({".cc", ".h", ".c"})) {
      if (!StartsWith(file, "tests/") && !StartsWith(file, "examples/") && !StartsWith(file, "bench/"))
        all.push_back(Split(file, Read(kRoot / file)));
    }
    return all;
  }();
  return sources;
}

// First and second group of each match in the file.
std::vector<std::pair<std::string, std::string>> Rows(const std::string& file, const char* pattern) {
  const std::regex row(pattern);
  const std::string text = Read(kRoot / file);
  std::vector<std::pair<std::string, std::string>> rows;
  for (std::sregex_iterator it(text.begin(), text.end(), row), end; it != end; ++it)
    rows.emplace_back((*it)[1], it->size() > 2 ? (*it)[2].str() : "");
  return rows;
}

Paths FilesIn(const std::string& folder) {
  Paths files;
  for (const Source& s : Tree()) {
    if (fs::path(s.path).parent_path() == folder) files.insert(s.path);
  }
  return files;
}

// The sources that name the function; outside the folder `home`, by its namespace.
Paths Naming(const std::vector<Source>& sources, const std::string& function, const std::string& home,
             const std::string& space) {
  const std::regex here("\\b" + function + "\\b"), elsewhere("\\b" + space + function + "\\b");
  Paths paths;
  for (const Source& s : sources) {
    if (Contains(s.code, function) && std::regex_search(s.code, StartsWith(s.path, home) ? here : elsewhere))
      paths.insert(s.path);
  }
  return paths;
}

Paths WithString(const std::vector<Source>& sources, const std::string& name) {
  Paths paths;
  for (const Source& s : sources) {
    if (s.strings.contains(name)) paths.insert(s.path);
  }
  return paths;
}

// The sources that name two of them or more, as literals or as words of one: lists.
Paths Lists(const std::vector<Source>& sources, const std::set<std::string>& names) {
  static const std::regex kWord(R"([\w-]+)");
  Paths lists;
  for (const Source& s : sources) {
    std::set<std::string> named;
    for (const std::string& text : s.strings) {
      for (std::sregex_iterator it(text.begin(), text.end(), kWord), end; it != end; ++it) {
        if (names.contains(it->str())) named.insert(it->str());
      }
    }
    if (named.size() > 1) lists.insert(s.path);
  }
  return lists;
}

// --- what the document promises: files, and folders that stand for one file in them

struct Promise {
  size_t count = 0;
  Paths places;
};

Promise PromiseFor(const std::string& what) {
  const std::string text = Read(kRoot / "docs/where-to-change-what.md");
  const std::regex row("\\| " + what + R"( \| (\d+) \| ([^|]*) \|)"), path(R"(`([^`]*)`)");
  std::smatch match;
  Promise promise;
  if (!std::regex_search(text, match, row)) return promise;
  promise.count = std::stoul(match[1]);
  const std::string places = match[2];
  for (std::sregex_iterator it(places.begin(), places.end(), path), end; it != end; ++it)
    promise.places.insert((*it)[1]);
  return promise;
}

// Whether the files are the promised ones, one for each place.
bool Keeps(const Promise& promise, const Paths& files) {
  Paths folders;
  for (const std::string& file : files)
    folders.insert(promise.places.contains(file) ? file : fs::path(file).parent_path().string());
  return files.size() == promise.count && folders == promise.places && promise.places.size() == promise.count;
}

std::string Text(const Paths& paths) {
  std::string text;
  for (const std::string& path : paths) text += "\n  " + path;
  return text;
}

// --- tuners and passes: an entry of a table each

struct Table {
  std::string what;   // as the document has it
  std::string file;   // that holds it
  const char* row;    // its name and the function that makes it
  std::string home;   // where functions are called without `space`
  std::string space;  // their namespace
};
const Table kTuners = {"a tuner", "tuner_server/search/registry.cc", R"re(\{"([a-z-]+)", (Make\w+)\})re", "", ""};
const Table kPasses = {"a graph pass", "compiler/graph/pipeline.cc",
                       R"re(\{"([a-z-]+)", (?:Always<)?passes::(\w+)>?\})re", "compiler/graph/", "passes::"};

// What is wrong, a line each.
std::vector<std::string> Faults(const Table& table, const std::vector<Source>& sources) {
  std::vector<std::string> faults;
  std::set<std::string> names;
  const auto rows = Rows(table.file, table.row);
  if (rows.size() < 4) faults.push_back(table.file + " holds no table");
  for (const auto& [name, function] : rows) {
    names.insert(name);
    const Paths files = Naming(sources, function, table.home, table.space);
    if (!Keeps(PromiseFor(table.what), files))
      faults.push_back(table.what + " '" + name + "' is named in" + Text(files));
  }
  Paths lists = Lists(sources, names);
  if (lists.erase(table.file) == 0) faults.push_back(table.file + " does not name them");
  if (!lists.empty()) faults.push_back(table.what + ": more than one is named in" + Text(lists));
  return faults;
}

TEST(Additions, ATunerIsInThePromisedSources) {
  for (const std::string& fault : Faults(kTuners, Tree())) ADD_FAILURE() << fault;
}

TEST(Additions, APassIsInThePromisedSources) {
  for (const std::string& fault : Faults(kPasses, Tree())) ADD_FAILURE() << fault;
}

// --- operators

// Who speaks of operators by name because it is about these and no others. A property that another operator could have
// is a trait (compiler/ops/op.h), not a name in this list.
const std::map<std::string, std::set<std::string>> kRulesAbout = {
    {"compiler/graph/passes/simplify_affine.cc", {"*"}},
    {"compiler/graph/passes/simplify_branches.cc", {"*"}},
    {"compiler/graph/passes/simplify_final.cc", {"*"}},
    {"compiler/graph/passes/simplify_move.cc", {"*"}},
    {"compiler/graph/passes/simplify_norm.cc", {"*"}},
    {"compiler/graph/passes/simplify_quantised.cc", {"*"}},
    {"compiler/graph/passes/split_contractions.cc", {"conv2d", "matmul", "reshape", "transpose", "slice"}},
    {"compiler/graph/passes/merge_contractions.cc", {"add", "matmul", "reshape", "slice", "transpose"}},
    {"compiler/graph/passes/neighbour_channels.cc", {"conv2d", "reshape", "slice", "transpose"}},
    {"compiler/graph/passes/byte_products.cc", {"*"}},
    {"compiler/graph/passes/dequantized_moves.cc", {"*"}},
    {"compiler/graph/passes/dequantized_products.cc", {"*"}},
    {"compiler/graph/passes/integer_products.cc", {"*"}},
    {"compiler/graph/passes/nbits_products.cc", {"*"}},
    {"compiler/graph/passes/transposed_conv.cc", {"conv2d", "depth_to_space", "slice"}},
    {"compiler/graph/passes/widen.cc", {"cast", "matmul", "transpose"}},
    {"compiler/graph/passes/layout.cc", {"layout_copy", "matmul", "pad", "transpose"}},
    {"compiler/graph/passes/fuse.cc", {"layout_copy"}},
    {"compiler/graph/pipeline.cc", {"conv2d"}},
    {"cost_model/training_shapes.cc", {"conv2d", "matmul"}},
    // Words that mean something else there: attributes, subcommands, faults.
    {"compiler/ops/families/unary.cc", {"min", "max"}},
    {"compiler/ops/reference/unary.cc", {"min", "max"}},
    {"compiler/ops/families/resize.cc", {"floor", "ceil"}},
    {"compiler/ops/reference/resize.cc", {"floor", "ceil"}},
    {"cli/commands/device.cc", {"add"}},
    {"cli/commands/token.cc", {"add"}},
    {"cli/commands/explain.cc", {"min"}},
    {"measure_worker/backends/null/faults.cc", {"log"}},
};
// Folders that know operators by name (converters and templates), and such as know none, only kinds of expressions.
const std::vector<std::string> kFreeFolders = {"compiler/frontend/onnx/", "compiler/ops/templates/", "compiler/ir/",
                                               "compiler/codegen/"};

// The sources that name the operator and are no rules about it.
Paths OperatorFiles(const std::vector<Source>& sources, const std::string& op) {
  Paths files = WithString(sources, op);
  std::erase_if(files, [&](const std::string& file) {
    const auto rules = kRulesAbout.find(file);
    if (rules != kRulesAbout.end() && (rules->second.contains("*") || rules->second.contains(op))) return true;
    return std::ranges::any_of(kFreeFolders, [&](const std::string& folder) { return StartsWith(file, folder); });
  });
  return files;
}

std::vector<std::string> OperatorFaults(const std::vector<Source>& sources) {
  Promise without_onnx = PromiseFor("an ONNX operator");
  without_onnx.count -= without_onnx.places.erase("compiler/frontend/onnx");
  std::vector<std::string> faults;
  size_t operators = 0;
  for (const std::string& file : FilesIn("compiler/ops/reference")) {
    for (const auto& [op, function] : Rows(file, R"re(\{"(\w+)", (\w+)\})re")) {
      ++operators;
      const Paths files = OperatorFiles(sources, op);
      if (!Keeps(without_onnx, files)) faults.push_back("the operator '" + op + "' is named in" + Text(files));
    }
  }
  if (operators < 60) faults.push_back("no tables of references");
  return faults;
}

TEST(Additions, AnOperatorIsInThePromisedSources) {
  for (const std::string& fault : OperatorFaults(Tree())) ADD_FAILURE() << fault;
}

// Operators of other domains have names of ONNX's, are made of ONNX's, and are found beside them.
const Paths kOtherDomains = {"compiler/frontend/onnx/convert_contrib.cc",
                             "compiler/frontend/onnx/convert_contrib_layout.cc",
                             "compiler/frontend/onnx/convert_fused_attention.cc",
                             "compiler/frontend/onnx/convert_group_attention.cc",
                             "compiler/frontend/onnx/rewrite.h",
                             "compiler/frontend/onnx/table.cc"};

TEST(Additions, AnOnnxOperatorIsInThePromisedSources) {
  const Promise promise = PromiseFor("an ONNX operator");
  size_t plain = 0, converted = 0;
  for (const std::string& file : FilesIn("compiler/frontend/onnx")) {
    if (kOtherDomains.contains(file)) continue;
    for (const auto& [onnx, function] : Rows(file, R"re(\{"([A-Z]\w*)", )re")) {
      ++converted;
      Paths files = WithString(Tree(), onnx);
      std::erase_if(files, [](const std::string& f) { return kOtherDomains.contains(f); });
      EXPECT_EQ(files, Paths{file}) << onnx;
    }
    // Those that are one of Temper's, from end to end.
    for (const auto& [onnx, op] : Rows(file, R"re(\{"([A-Z]\w*)", "(\w+)"\})re")) {
      ++plain;
      Paths files = OperatorFiles(Tree(), op);
      files.insert(file);
      EXPECT_TRUE(Keeps(promise, files)) << onnx << " is named in" << Text(files);
    }
  }
  EXPECT_GT(plain, 20u);
  EXPECT_GT(converted, 80u);
}

// --- a kind of device: whoever names the interpreter, that exercise of a device without hardware, outside its folders

Paths InterpreterFiles(const std::vector<Source>& sources) {
  Paths files;
  for (const Source& s : sources) {
    const std::string folder = fs::path(s.path).parent_path().string();
    const bool own = folder.ends_with("/interpreter");
    const bool named = s.strings.contains("interpreter") || Contains(s.code, "kInterpreterDevice") ||
                       Contains(s.code, "OpenInterpreter") || Contains(s.code, "DescribeInterpreter");
    if (own || named) files.insert(own ? folder : s.path);
  }
  return files;
}

TEST(Additions, ABackendWithItsCodeGeneratorIsInThePromisedPlaces) {
  const Promise promise = PromiseFor("a backend with its code generator");
  EXPECT_EQ(promise.places.size(), promise.count);
  EXPECT_EQ(InterpreterFiles(Tree()), promise.places);
}

TEST(Additions, TheCheckFindsFurtherLists) {
  const auto with = [](const std::string& path, const std::string& text) {
    std::vector<Source> sources = Tree();
    sources.push_back(Split(path, text));
    return sources;
  };
  const auto tuners = [](const std::vector<Source>& s) { return Faults(kTuners, s).size(); };
  const auto passes = [](const std::vector<Source>& s) { return Faults(kPasses, s).size(); };
  EXPECT_EQ(tuners(with("cli/x.cc", R"(Add("--tuner", "xgb, droplet or grid");)")), 1u);
  EXPECT_EQ(tuners(with("cli/x.cc", R"(if (name == "ga") Go(); else if (name == "grid") Stay();)")), 1u);
  EXPECT_EQ(tuners(with("cli/x.cc", R"(tuner = "xgb";  // not ga)")), 0u) << "one is a default";
  EXPECT_EQ(tuners(with("tuner_server/search/tuners.h", "Tuner MakeGridTuner();")), 1u);
  EXPECT_EQ(passes(with("cli/x.cc", R"(kAll = {"cse", "fuse"};)")), 1u);
  EXPECT_EQ(passes(with("cli/x.cc", "passes::Fuse(g);")), 1u);
  EXPECT_EQ(OperatorFaults(with("cli/x.cc", R"(op == "sqrt" || op == "log")")).size(), 2u);
  EXPECT_TRUE(InterpreterFiles(with("cli/x.cc", R"(kind == "interpreter")")).contains("cli/x.cc"));
  EXPECT_TRUE(OperatorFaults(with("cli/x.cc", R"(op->Is("the square root"); // "sqrt")")).empty());
}

}  // namespace
