#include "compiler/package/prefix.h"

#include <algorithm>
#include <regex>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "compiler/package/embedded.h"

namespace temper {
namespace {

constexpr size_t kLongestPrefix = 64;

}  // namespace

absl::Status CheckPrefix(const std::string& prefix) {
  const auto fits = [](char c) { return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '_'; };
  const bool is_name = std::ranges::all_of(prefix, fits) && prefix.size() <= kLongestPrefix &&
                       (prefix.empty() || !absl::ascii_isdigit(prefix[0]));
  if (is_name && !prefix.starts_with("temper")) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a prefix has lower-case letters, digits and underscores, no digit "
                   "first, at most ",
                   kLongestPrefix, " of them, and does not begin with 'temper'"));
}

std::string LibraryName(const std::string& prefix) {
  return prefix.empty() ? "model.so" : absl::StrCat("lib", prefix, ".so");
}

std::string FunctionName(const std::string& prefix, const std::string& function) {
  return absl::StrCat(prefix.empty() ? "temper_model" : prefix, "_", function);
}

Exports ExportsOf(const std::string& prefix) {
  Exports exports;
  if (prefix.empty()) return exports;
  // The header declares each function once, on a line of its own.
  const std::string header(ModelHeader());
  const std::regex declaration("TEMPER_API [^;(]*\\btemper_model_([a-z_]+)\\(");
  for (std::sregex_iterator it(header.begin(), header.end(), declaration), end; it != end; ++it) {
    const std::string function = (*it)[1];
    exports.renamed.emplace_back(FunctionName("", function), FunctionName(prefix, function));
  }
  return exports;
}

std::string HeaderOf(const std::string& prefix) {
  if (prefix.empty()) return std::string(ModelHeader());
  std::vector<std::pair<std::string, std::string>> names = ExportsOf(prefix).renamed;
  names.emplace_back("TEMPER_MODEL_H_", absl::StrCat("TEMPER_MODEL_", absl::AsciiStrToUpper(prefix), "_H_"));
  return absl::StrReplaceAll(std::string(ModelHeader()), names);
}

}  // namespace temper
