#include "compiler/codegen/link.h"

#include <lld/Common/Driver.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>
#include <llvm/Support/raw_ostream.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "compiler/codegen/llvm/emit_object.h"

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

absl::Status WriteObject(const std::string& object, const std::string& path) {
  std::ofstream out(path, std::ios::binary);
  out.write(object.data(), static_cast<std::streamsize>(object.size()));
  out.close();
  return out ? absl::OkStatus() : absl::UnavailableError(absl::StrCat("cannot write ", path));
}

absl::Status Link(const std::vector<std::string>& arguments, const std::string& path) {
  std::vector<const char*> all = {"ld.lld", "-shared"};
  for (const std::string& argument : arguments) all.push_back(argument.c_str());
  std::string text;
  llvm::raw_string_ostream log(text);
  const lld::Result result = lld::lldMain(all, log, log, {{lld::Gnu, &lld::elf::link}});
  if (result.retCode == 0) return absl::OkStatus();
  const std::pair<std::string, std::string> first = absl::StrSplit(log.str(), absl::MaxSplits('\n', 1));
  return absl::InternalError(absl::StrCat("linking ", path, ": ", first.first));
}

// The parts of the C library, of another architecture than this process's: libraries that are nothing but a name.
absl::StatusOr<std::vector<std::string>> NamedLibraries(CpuArch arch, const std::string& path,
                                                        std::vector<std::string>& files) {
  llvm::LLVMContext context;
  llvm::Module nothing("names", context);
  TEMPER_ASSIGN_OR_RETURN(const std::string object, EmitObject(nothing, PlainCpu(arch)));
  files.push_back(path + ".name.o");
  const std::string object_file = files.back();
  TEMPER_RETURN_IF_ERROR(WriteObject(object, object_file));
  std::vector<std::string> libraries;
  for (const char* name : {"libm.so.6", "libc.so.6"}) {
    files.push_back(absl::StrCat(path, ".", name));
    libraries.push_back(files.back());
    TEMPER_RETURN_IF_ERROR(Link({"-soname", name, "-o", files.back(), object_file}, files.back()));
  }
  return libraries;
}

// What is needed of the C library, for the end of the linker's command.
absl::StatusOr<std::vector<std::string>> LibrariesOf(CpuArch arch, const std::string& path,
                                                     std::vector<std::string>& files) {
  if (arch != HostArch()) return NamedLibraries(arch, path, files);
  std::vector<std::string> libraries = {"--as-needed"};
  for (const char* name : {"libm.so.6", "libc.so.6"}) {
    if (const std::string library = LibraryPath(name); !library.empty()) libraries.push_back(library);
  }
  return libraries;
}

absl::Status LinkObjects(const std::vector<std::string>& objects, const std::string& path, CpuArch arch,
                         const Exports& exports, std::vector<std::string>& files) {
  const std::string script = absl::StrCat(path, ".map");
  files.push_back(script);
  std::string global = exports.renamed.empty() ? "temper_model_*; " : "";
  std::vector<std::string> arguments = {"--gc-sections",
                                        "-z",
                                        "now",
                                        "-soname",
                                        std::filesystem::path(path).filename().string(),
                                        absl::StrCat("--version-script=", script),
                                        "-o",
                                        path};
  for (const auto& [from, to] : exports.renamed) {
    absl::StrAppend(&global, to, "; ");
    arguments.push_back(absl::StrCat("--defsym=", to, "=", from));
  }
  std::ofstream(script) << "{ global: " << global << "local: *; };\n";
  for (size_t i = 0; i < objects.size(); ++i) {
    files.push_back(absl::StrCat(path, ".", i, ".o"));
    TEMPER_RETURN_IF_ERROR(WriteObject(objects[i], files.back()));
    arguments.push_back(files.back());
  }
  TEMPER_ASSIGN_OR_RETURN(const std::vector<std::string> libraries, LibrariesOf(arch, path, files));
  arguments.insert(arguments.end(), libraries.begin(), libraries.end());
  return Link(arguments, path);
}

}  // namespace

absl::Status LinkSharedLibrary(const std::vector<std::string>& objects, const std::string& path, CpuArch arch,
                               const Exports& exports) {
  static std::mutex lld_is_not_reentrant;
  std::lock_guard lock(lld_is_not_reentrant);
  std::vector<std::string> files;  // beside the library, while it is made
  const absl::Status status = LinkObjects(objects, path, arch, exports, files);
  std::error_code ignored;
  for (const std::string& file : files) std::filesystem::remove(file, ignored);
  return status;
}

}  // namespace temper
