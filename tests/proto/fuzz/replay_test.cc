// The corpora of tests/proto/corpus once more, and what a few random changes make of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "base/rng.h"
#include "tests/proto/fuzz/targets.h"

namespace temper {
namespace {

namespace fs = std::filesystem;

constexpr int kChanges = 40;  // of each input

std::vector<std::string> Corpus(const std::string& name) {
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(fs::path(TEMPER_SOURCE_DIR) / "tests/proto/corpus" / name))
    paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  std::vector<std::string> inputs;
  for (const fs::path& path : paths) {
    std::ifstream in(path, std::ios::binary);
    std::stringstream bytes;
    bytes << in.rdbuf();
    inputs.push_back(bytes.str());
  }
  return inputs;
}

// A byte flipped, a number made extreme, a piece doubled, cut or taken from another input.
std::string Changed(std::string bytes, const std::string& other, Rng& rng) {
  static constexpr const char* kExtremes[] = {"0", "-1", "9223372036854775807", "68719476736", "1e308", "nan", "\xff"};
  const auto below = [&](size_t n) { return static_cast<size_t>(rng.Below(static_cast<int64_t>(n) + 1)); };
  const size_t at = below(bytes.size()), length = std::min(below(8), bytes.size() - at);
  switch (rng.Below(5)) {
    case 0:
      if (at < bytes.size()) bytes[at] = static_cast<char>(rng.Next());
      break;
    case 1:
      bytes.replace(at, length, kExtremes[rng.Below(std::size(kExtremes))]);
      break;
    case 2:
      bytes.insert(at, bytes.substr(at, below(64)));
      break;
    case 3:
      bytes.erase(at, below(32));
      break;
    case 4:
      bytes.replace(at, length, other.substr(below(other.size()), below(64)));
      break;
  }
  return bytes;
}

void Replay(const std::string& name, fuzz::Target target) {
  const std::vector<std::string> inputs = Corpus(name);
  ASSERT_GE(inputs.size(), 3u);
  Rng rng(1);
  for (const std::string& input : inputs) {
    target(input);
    std::string changed = input;
    for (int i = 0; i < kChanges; ++i) {
      changed = Changed(i % 4 == 0 ? input : changed,
                        inputs[static_cast<size_t>(rng.Below(static_cast<int64_t>(inputs.size())))], rng);
      target(changed);
    }
  }
}

TEST(FuzzReplay, Requests) { Replay("requests", fuzz::Requests); }
TEST(FuzzReplay, Workloads) { Replay("workloads", fuzz::Workloads); }
TEST(FuzzReplay, Graphs) { Replay("graphs", fuzz::Graphs); }
TEST(FuzzReplay, Records) { Replay("records", fuzz::Records); }
TEST(FuzzReplay, Frames) { Replay("frames", fuzz::Frames); }

}  // namespace
}  // namespace temper
