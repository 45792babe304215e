// What was wrong with a command line, for people: one line that names the word, and what was perhaps meant.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace temper {

// Of a parse of `app` that failed with `error`.
std::string WhatIsWrong(const CLI::App& app, const CLI::ParseError& error);

}  // namespace temper
