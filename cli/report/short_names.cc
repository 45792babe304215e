#include "cli/report/short_names.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "compiler/ops/describe.h"

namespace temper {
namespace {

constexpr char kLeftOut[] = "…";

std::string NameOf(const std::string& workload) {
  const absl::StatusOr<Workload> parsed = ParseWorkload(workload);
  return parsed.ok() ? Describe(*parsed) : workload;
}

using Group = std::vector<size_t>;

// Rows that are drawn alike, of different names.
std::vector<Group> Alike(const std::vector<std::string>& drawn, const std::vector<std::string>& names) {
  std::map<std::string, Group> by_text;
  for (size_t i = 0; i < drawn.size(); ++i) by_text[drawn[i]].push_back(i);
  std::vector<Group> alike;
  for (const auto& [text, rows] : by_text) {
    const bool differ = std::any_of(rows.begin(), rows.end(), [&](size_t i) { return names[i] != names[rows[0]]; });
    if (differ) alike.push_back(rows);
  }
  return alike;
}

// Where the names of a group begin to differ, at the start of a word.
size_t CommonPrefix(const Group& rows, const std::vector<std::string>& names) {
  size_t end = names[rows[0]].size();
  for (const size_t i : rows) {
    const auto differ = std::mismatch(names[rows[0]].begin(), names[rows[0]].end(), names[i].begin(), names[i].end());
    end = std::min(end, static_cast<size_t>(differ.first - names[rows[0]].begin()));
  }
  const size_t space = names[rows[0]].substr(0, end).rfind(' ');
  return space == std::string::npos ? 0 : space + 1;
}

}  // namespace

std::string Cut(const std::string& line, size_t columns) {
  size_t end = 0;
  for (size_t width = 0; end < line.size(); ++end) {
    const bool begins_character = (static_cast<unsigned char>(line[end]) & 0xC0) != 0x80;
    if (begins_character && ++width > columns) break;
  }
  return line.substr(0, end);
}

std::vector<std::string> ShortNames(const std::vector<std::string>& workloads, size_t columns) {
  std::vector<std::string> names, drawn;
  for (const std::string& workload : workloads) {
    names.push_back(NameOf(workload));
    drawn.push_back(Cut(names.back(), columns));
  }
  for (const Group& rows : Alike(drawn, names)) {
    const size_t common = CommonPrefix(rows, names);
    if (common == 0) continue;
    for (const size_t i : rows) {
      const std::string first = names[i].substr(0, names[i].find_first_of("+ "));
      // The operator has half of the room at most.
      drawn[i] = Cut(absl::StrCat(Cut(first, columns / 2 - 1), kLeftOut, names[i].substr(common)), columns);
    }
  }
  for (const Group& rows : Alike(drawn, names)) {
    for (const size_t i : rows) {
      const auto first = std::find(names.begin(), names.end(), names[i]);  // the same workload has the same number
      const std::string number = absl::StrCat("#", first - names.begin() + 1);
      drawn[i] = absl::StrCat(Cut(drawn[i], columns - number.size()), number);
    }
  }
  return drawn;
}

}  // namespace temper
