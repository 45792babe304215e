// Documents as the tests read them: fenced blocks with what is said about them.
#pragma once

#include <string>
#include <vector>

#include "tests/tree/sources.h"

namespace temper::tree {

// A fenced block. A comment on the line above its fence may say what becomes of it:
//   <!-- not run: why -->         commands that no test runs
//   <!-- run by: tests/... -->   commands that this test runs
//   <!-- file: main.c -->         a file that the document's later commands find
struct Block {
  std::string language;
  std::string mark, said;  // "not run", "run by", "file", or empty; what stands behind the colon
  std::string text;
  int line;  // of the fence
  // Tests run it with the document's other commands, in order.
  bool runs() const { return language == "sh" && mark.empty(); }
};

inline std::vector<Block> Blocks(const std::string& document) {
  std::vector<Block> blocks;
  std::istringstream in(document);
  std::string before;
  bool inside = false;
  int number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    const bool fence = StartsWith(line, "```");
    if (fence && !inside) {
      Block& block = blocks.emplace_back(Block{line.substr(3), "", "", "", number});
      const size_t colon = before.find(": ");
      if (StartsWith(before, "<!-- ") && colon != std::string::npos && before.ends_with(" -->")) {
        block.mark = before.substr(5, colon - 5);
        block.said = before.substr(colon + 2, before.size() - colon - 6);
      }
    } else if (!fence && inside) {
      blocks.back().text += line + "\n";
    }
    inside = inside != fence;
    before = line;
  }
  return blocks;
}

// Those that people read to use Temper; their commands run.
inline std::vector<std::string> Guides() {
  std::vector<std::string> guides;
  for (const std::string& file : Sources({".md"})) {
    if (file == "README.md" || file == "CONTRIBUTING.md" || StartsWith(file, "docs/")) guides.push_back(file);
  }
  return guides;
}

}  // namespace temper::tree
