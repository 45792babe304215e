#include "compiler/codegen/link.h"

#include <lld/Common/Driver.h>
#include <llvm/Support/raw_ostream.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

LLD_HAS_DRIVER(elf)

namespace temper {
namespace {

// A part of the C library this process runs on; linked against by name, so that symbols get their versions.
std::string LibraryPath(const std::string& name) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    size_t slash = line.find('/');
    if (slash != std::string::npos && line.find("/" + name) != std::string::npos) return line.substr(slash);
  }
  return "";
}

}  // namespace

absl::Status LinkSharedLibrary(const std::vector<std::string>& objects, const std::string& path,
                               const Exports& exports) {
  static std::mutex lld_is_not_reentrant;
  std::lock_guard lock(lld_is_not_reentrant);
  std::vector<std::string> files;
  absl::Status status;
  for (size_t i = 0; i < objects.size() && status.ok(); ++i) {
    files.push_back(absl::StrCat(path, ".", i, ".o"));
    std::ofstream out(files.back(), std::ios::binary);
    out.write(objects[i].data(), static_cast<std::streamsize>(objects[i].size()));
    out.close();
    if (!out) status = absl::UnavailableError(absl::StrCat("cannot write ", files.back()));
  }
  const std::string script = absl::StrCat(path, ".map");
  std::string global = exports.renamed.empty() ? "temper_model_*; " : "";
  std::vector<std::string> names;
  for (const auto& [from, to] : exports.renamed) {
    absl::StrAppend(&global, to, "; ");
    names.push_back(absl::StrCat("--defsym=", to, "=", from));
  }
  std::ofstream(script) << "{ global: " << global << "local: *; };\n";
  const std::string soname = std::filesystem::path(path).filename().string();
  if (status.ok()) {
    const std::string version_script = absl::StrCat("--version-script=", script), libc = LibraryPath("libc.so.6"),
                      libm = LibraryPath("libm.so.6");
    std::vector<const char*> args = {"ld.lld",  "-shared",      "--gc-sections",        "-z", "now",
                                     "-soname", soname.c_str(), version_script.c_str(), "-o", path.c_str()};
    for (const std::string& name : names) args.push_back(name.c_str());
    for (const std::string& file : files) args.push_back(file.c_str());
    args.push_back("--as-needed");
    for (const std::string* library : {&libm, &libc}) {
      if (!library->empty()) args.push_back(library->c_str());
    }
    std::string text;
    llvm::raw_string_ostream log(text);
    lld::Result result = lld::lldMain(args, log, log, {{lld::Gnu, &lld::elf::link}});
    if (result.retCode != 0) {
      std::pair<std::string, std::string> first = absl::StrSplit(log.str(), absl::MaxSplits('\n', 1));
      status = absl::InternalError(absl::StrCat("linking ", path, ": ", first.first));
    }
  }
  std::error_code ignored;
  for (const std::string& file : files) std::filesystem::remove(file, ignored);
  std::filesystem::remove(script, ignored);
  return status;
}

}  // namespace temper
