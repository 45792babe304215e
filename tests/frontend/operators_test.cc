// docs/operators.md lists what the importer supports, no more and no less.
#include <gtest/gtest.h>

#include <regex>

#include "absl/strings/str_join.h"
#include "compiler/frontend/onnx/context.h"
#include "tests/tree/sources.h"

namespace temper::onnx_frontend {
namespace {

// The names in the section under the heading, in the order in which they are written.
std::vector<std::string> Listed(const std::string& heading) {
  const std::string document = tree::Read(tree::kRoot / "docs/operators.md");
  const size_t begin = document.find("\n## " + heading + "\n"), end = document.find("\n## ", begin + 1);
  EXPECT_NE(begin, std::string::npos) << heading;
  static const std::regex kName("`(\\w+)`");
  const std::string section = document.substr(begin, end - begin);
  std::vector<std::string> names;
  for (std::sregex_iterator it(section.begin(), section.end(), kName), last; it != last; ++it)
    names.push_back((*it)[1]);
  return names;
}

TEST(Operators, TheDocumentListsThoseThatAreSupported) {
  const auto joined = [](const std::vector<std::string>& names) { return absl::StrJoin(names, " "); };
  EXPECT_EQ(joined(Listed("Operators of ONNX")), joined(OperatorsOf("")));
  EXPECT_EQ(joined(Listed("Operators of com.microsoft")), joined(OperatorsOf(kContribDomain)));
}

}  // namespace
}  // namespace temper::onnx_frontend
