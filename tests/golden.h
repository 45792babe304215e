// Golden texts: what is printed, held in a file beside the test. TEMPER_UPDATE_GOLDEN=1 rewrites the files; look at the
// difference before you commit it.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace temper {

// tests/FOLDER/golden/NAME.txt
inline std::string GoldenPath(const std::string& folder, const std::string& name) {
  return std::string(TEMPER_SOURCE_DIR) + "/tests/" + folder + "/golden/" + name + ".txt";
}

// Empty if there is no such file.
inline std::string GoldenText(const std::string& folder, const std::string& name) {
  std::ifstream in(GoldenPath(folder, name));
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

inline ::testing::AssertionResult MatchesGolden(const std::string& text, const std::string& folder,
                                                const std::string& name) {
  const std::string path = GoldenPath(folder, name);
  if (const char* update = std::getenv("TEMPER_UPDATE_GOLDEN"); update != nullptr && std::string(update) == "1") {
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::ofstream(path) << text;
    return ::testing::AssertionSuccess();
  }
  if (GoldenText(folder, name) == text) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "differs from " << path << " (TEMPER_UPDATE_GOLDEN=1 rewrites it):\n" << text;
}

}  // namespace temper
