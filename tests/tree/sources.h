// The tree's own files, as the tests of this folder read them.
#pragma once

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace temper::tree {

namespace fs = std::filesystem;
inline const fs::path kRoot = TEMPER_SOURCE_DIR;

inline std::string Read(const fs::path& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

inline bool StartsWith(const std::string& s, const std::string& prefix) { return s.rfind(prefix, 0) == 0; }
inline bool Contains(const std::string& s, const std::string& part) { return s.find(part) != std::string::npos; }

// Paths relative to the root of every source file, generated and fetched folders left out.
inline std::vector<std::string> Sources(const std::set<std::string>& endings) {
  std::vector<std::string> files;
  for (auto it = fs::recursive_directory_iterator(kRoot); it != fs::recursive_directory_iterator(); ++it) {
    const std::string name = it->path().filename().string();
    if (it->is_directory() && (StartsWith(name, "build") || StartsWith(name, "."))) it.disable_recursion_pending();
    if (it->is_regular_file() && endings.contains(it->path().extension().string()))
      files.push_back(fs::relative(it->path(), kRoot).string());
  }
  return files;
}

}  // namespace temper::tree
