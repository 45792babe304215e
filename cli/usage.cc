#include "cli/usage.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"

namespace temper {
namespace {

// How many letters have to be put in, taken out or replaced to make one of the other.
size_t Distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i + 1);
    for (size_t k = 0; k < b.size(); ++k) {
      const size_t replaced = diagonal + (a[i] == b[k] ? 0 : 1);
      diagonal = row[k + 1];
      row[k + 1] = std::min({replaced, row[k] + 1, row[k + 1] + 1});
    }
  }
  return row.back();
}

// The nearest of `words`, where one is near; else empty.
std::string DidYouMean(const std::string& word, const std::vector<std::string>& words) {
  size_t least = 2 + word.size() / 4;
  std::string nearest;
  for (const std::string& other : words) {
    const size_t distance = Distance(word, other);
    if (distance >= least) continue;
    least = distance;
    nearest = other;
  }
  return nearest.empty() ? "" : absl::StrCat("; did you mean ", nearest, "?");
}

// The command whose words are read last.
const CLI::App& Innermost(const CLI::App& app) {
  const CLI::App* innermost = &app;
  while (!innermost->get_subcommands().empty()) innermost = innermost->get_subcommands().back();
  return *innermost;
}

// Those that the command takes, those of the commands around it included.
std::vector<std::string> OptionsOf(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::App* app = &command; app != nullptr; app = app->get_parent()) {
    for (const CLI::Option* option : app->get_options()) {
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    }
  }
  return names;
}

}  // namespace

std::string WhatIsWrong(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App& command = Innermost(app);
  const std::vector<std::string> rest = app.remaining(/*recurse=*/true);
  const auto option = std::ranges::find_if(rest, [](const std::string& word) { return word.starts_with("-"); });
  if (option != rest.end()) {
    const std::string name = option->substr(0, option->find('='));
    return absl::StrCat("there is no option ", name, DidYouMean(name, OptionsOf(command)));
  }
  const auto subcommands = command.get_subcommands([](const CLI::App*) { return true; });
  if (rest.empty() || subcommands.empty()) return error.what();
  std::vector<std::string> names;
  for (const CLI::App* subcommand : subcommands) names.push_back(subcommand->get_name());
  const std::string& word = rest.front();
  return absl::StrCat("there is no subcommand '", word, "'", DidYouMean(word, names));
}

}  // namespace temper
