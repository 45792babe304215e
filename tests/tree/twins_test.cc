// No two types of one name. A program that has both uses the inlined members of either for the other, wherever the
// compiler does not inline them, and no linker says so.
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

#include "tests/tree/sources.h"

namespace {

using namespace temper::tree;

// Where the comment or literal that begins at text[i] ends; i, if none does.
size_t EndOfNoCode(std::string_view text, size_t i) {
  const auto behind = [&](std::string_view end, size_t from) {
    const size_t at = text.find(end, from);
    return at == std::string_view::npos ? text.size() : at + end.size();
  };
  const std::string_view rest = text.substr(i);
  if (rest.starts_with("//")) return behind("\n", i) - 1;
  if (rest.starts_with("/*")) return behind("*/", i + 2);
  if (rest.starts_with("R\"")) {
    const size_t open = text.find('(', i);
    return behind(")" + std::string(text.substr(i + 2, open - i - 2)) + "\"", open);
  }
  const bool separates_digits = i > 0 && rest[0] == '\'' && std::isxdigit(static_cast<unsigned char>(text[i - 1]));
  if ((rest[0] != '"' && rest[0] != '\'') || separates_digits) return i;
  size_t end = i + 1;
  while (end < text.size() && text[end] != rest[0]) end += text[end] == '\\' ? 2 : 1;
  return end + 1;
}

std::string Code(std::string_view text) {
  std::string code;
  for (size_t i = 0; i < text.size();) {
    const size_t end = EndOfNoCode(text, i);
    if (end == i) code += text[i];
    i = std::max(end, i + 1);
  }
  return code;
}

// The name of the namespace or type that is opened behind the declaration; "" has a namespace without a name, and
// nothing has what is neither.
struct Opened {
  bool is_type;
  std::string name;
};
std::optional<Opened> WhatOpens(const std::string& declaration) {
  static const std::regex kNamespace(R"re(\bnamespace\b\s*([\w:]*)\s*$)re");
  static const std::regex kType(
      R"re(\b(?:class|struct|union|enum)\s+(?:alignas\([^)]*\)\s*)?([\w:]+)(?:\s+final)?\s*(?::[^:()][^()]*)?$)re");
  std::smatch found;
  if (std::regex_search(declaration, found, kNamespace)) return Opened{false, found[1]};
  if (std::regex_search(declaration, found, kType)) return Opened{true, found[1]};
  return std::nullopt;
}

// The types that other files can name, by their whole names.
std::vector<std::string> TypesIn(const std::string& text) {
  std::vector<std::string> types;
  std::vector<std::optional<Opened>> open;
  std::string declaration;
  for (const char c : Code(text)) {
    if (c == '{') {
      open.push_back(WhatOpens(declaration));
      std::string name;
      bool is_known = open.back() && open.back()->is_type;
      for (const std::optional<Opened>& scope : open) {
        is_known = is_known && scope && !scope->name.empty();
        if (scope) name += (name.empty() ? "" : "::") + scope->name;
      }
      if (is_known) types.push_back(name);
    }
    if (c == '}' && !open.empty()) open.pop_back();
    if (c == '{' || c == '}' || c == ';')
      declaration.clear();
    else
      declaration += c;
  }
  return types;
}

TEST(TwinsTest, NoTwoTypesHaveOneName) {
  std::map<std::string, std::string> where;
  const std::vector<std::string> files = Sources({".cc", ".h"});
  for (const bool library : {true, false}) {  // a test or an example is a program of its own
    for (const std::string& file : files) {
      if (library == (StartsWith(file, "tests/") || StartsWith(file, "bench/") || StartsWith(file, "examples/")))
        continue;
      for (const std::string& type : TypesIn(Read(kRoot / file))) {
        const auto earlier = where.find(type);
        EXPECT_TRUE(earlier == where.end() || earlier->second == file)
            << type << ": " << earlier->second << ", " << file;
        if (library) where.emplace(type, file);
      }
    }
  }
  EXPECT_GT(where.size(), 500u);
}

TEST(TwinsTest, TypesAreFoundByTheirWholeNames) {
  const std::string text = R"(
    namespace a { namespace { struct Hidden { int x; }; }
    class Outer final : public Base<int> { enum class Inner : int { kA }; struct Forward; };
    struct Outer::Forward { char c = '}'; };  // struct InAComment {
    template <class T> T Made(T t) { struct Local { T t; }; return Local{t}.t; }
    const char* kText = R"x(struct Quoted {)x";
    int kMany = 1'000; }
    struct alignas(64) Line {};)";
  EXPECT_EQ(TypesIn(text), (std::vector<std::string>{"a::Outer", "a::Outer::Inner", "a::Outer::Forward", "Line"}));
}

}  // namespace
