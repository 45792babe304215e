#include "compiler/codegen/cuda/nvrtc.h"

#include <dlfcn.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "compiler/driver/cuda_api.h"
#include "compiler/driver/library.h"

namespace temper::nvrtc {
namespace {

using driver::Find;

// From the documentation of NVRTC's interface, which all its versions keep.
using Program = void*;
using Result = int;
constexpr Result kSuccess = 0, kCompilationError = 6;

struct Api {
  Result (*Version)(int*, int*) = nullptr;
  Result (*GetNumSupportedArchs)(int*) = nullptr;
  Result (*GetSupportedArchs)(int*) = nullptr;
  const char* (*GetErrorString)(Result) = nullptr;
  Result (*CreateProgram)(Program*, const char*, const char*, int, const char* const*, const char* const*) = nullptr;
  Result (*DestroyProgram)(Program*) = nullptr;
  Result (*CompileProgram)(Program, int, const char* const*) = nullptr;
  Result (*GetCUBINSize)(Program, size_t*) = nullptr;
  Result (*GetCUBIN)(Program, char*) = nullptr;
  Result (*GetPTXSize)(Program, size_t*) = nullptr;
  Result (*GetPTX)(Program, char*) = nullptr;
  Result (*GetProgramLogSize)(Program, size_t*) = nullptr;
  Result (*GetProgramLog)(Program, char*) = nullptr;
};

bool FindAll(void* library, Api& api) {
  return Find(library, "nvrtcVersion", api.Version) &&
         Find(library, "nvrtcGetNumSupportedArchs", api.GetNumSupportedArchs) &&
         Find(library, "nvrtcGetSupportedArchs", api.GetSupportedArchs) &&
         Find(library, "nvrtcGetErrorString", api.GetErrorString) &&
         Find(library, "nvrtcCreateProgram", api.CreateProgram) &&
         Find(library, "nvrtcDestroyProgram", api.DestroyProgram) &&
         Find(library, "nvrtcCompileProgram", api.CompileProgram) &&
         Find(library, "nvrtcGetCUBINSize", api.GetCUBINSize) && Find(library, "nvrtcGetCUBIN", api.GetCUBIN) &&
         Find(library, "nvrtcGetPTXSize", api.GetPTXSize) && Find(library, "nvrtcGetPTX", api.GetPTX) &&
         Find(library, "nvrtcGetProgramLogSize", api.GetProgramLogSize) &&
         Find(library, "nvrtcGetProgramLog", api.GetProgramLog);
}

// 90 of "sm_90a".
int NumberOf(std::string_view arch) {
  int number = 0;
  for (const char c : arch) number = std::isdigit(static_cast<unsigned char>(c)) != 0 ? 10 * number + c - '0' : number;
  return number;
}

// The first line that says "error", without what leads to it.
std::string FirstError(std::string_view log) {
  for (size_t at = 0; at < log.size();) {
    const size_t end = std::min(log.find('\n', at), log.size());
    const std::string_view line = log.substr(at, end - at);
    if (line.find("error") != line.npos) return std::string(line);
    at = end + 1;
  }
  return "it says no more";
}

class Loaded : public Compiler {
 public:
  static std::unique_ptr<Loaded> Make(void* library) {
    auto loaded = std::make_unique<Loaded>();
    int count = 0;
    if (!FindAll(library, loaded->api_) ||
        loaded->api_.Version(&loaded->version_[0], &loaded->version_[1]) != kSuccess ||
        loaded->api_.GetNumSupportedArchs(&count) != kSuccess || count <= 0)
      return nullptr;
    loaded->archs_.resize(static_cast<size_t>(count));
    return loaded->api_.GetSupportedArchs(loaded->archs_.data()) == kSuccess ? std::move(loaded) : nullptr;
  }

  std::array<int, 2> version() const override { return version_; }
  const std::vector<int>& archs() const { return archs_; }

  absl::StatusOr<Compiled> Compile(const std::string& source, std::string_view arch) const override {
    Program program = nullptr;
    TEMPER_RETURN_IF_ERROR(
        Check(api_.CreateProgram(&program, source.c_str(), "temper.cu", 0, nullptr, nullptr), "nvrtcCreateProgram"));
    const std::unique_ptr<Program, Result (*)(Program*)> owner(&program, api_.DestroyProgram);
    const std::string target = absl::StrCat("--gpu-architecture=", std::string(arch));
    std::vector<const char*> options = {target.c_str(), "--std=c++17", "--ptxas-options=-v"};
    // Beside a driver, from this version on, it keeps what it compiled, and is silent about what it finds there.
    constexpr std::array<int, 2> kKeepsCode = {12, 9};
    if (version_ >= kKeepsCode) options.push_back("--no-cache");
    const Result result = api_.CompileProgram(program, static_cast<int>(options.size()), options.data());
    Compiled compiled;
    TEMPER_RETURN_IF_ERROR(Fetch(program, api_.GetProgramLogSize, api_.GetProgramLog, compiled.log));
    if (result == kCompilationError)
      return absl::InvalidArgumentError(absl::StrCat("NVRTC refuses the code: ", FirstError(compiled.log)));
    TEMPER_RETURN_IF_ERROR(Check(result, "nvrtcCompileProgram"));
    TEMPER_RETURN_IF_ERROR(Fetch(program, api_.GetCUBINSize, api_.GetCUBIN, compiled.cubin));
    TEMPER_RETURN_IF_ERROR(Fetch(program, api_.GetPTXSize, api_.GetPTX, compiled.ptx));
    return compiled;
  }

 private:
  absl::Status Check(Result result, const char* call) const {
    if (result == kSuccess) return absl::OkStatus();
    return absl::InternalError(absl::StrCat(call, ": ", api_.GetErrorString(result)));
  }
  absl::Status Fetch(Program program, Result (*size_of)(Program, size_t*), Result (*get)(Program, char*),
                     std::string& bytes) const {
    size_t size = 0;
    TEMPER_RETURN_IF_ERROR(Check(size_of(program, &size), "a size of nvrtc"));
    bytes.resize(size);
    return Check(get(program, bytes.data()), "a result of nvrtc");
  }

  Api api_;
  std::array<int, 2> version_ = {0, 0};
  std::vector<int> archs_;
};

// Newest first.
constexpr const char* kNames[] = {"libnvrtc.so.13", "libnvrtc.so.12"};

// Files and names for the loader, in the order in which they are tried. PyPI's packages have the library in folders of
// their own, below the one that pip is told.
std::vector<std::string> Candidates() {
  std::vector<std::string> candidates;
  const auto add_folder = [&](const std::filesystem::path& folder) {
    for (const char* name : kNames) {
      for (const char* below : {"", "nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib"}) {
        std::error_code ignored;
        const std::filesystem::path file = folder / below / name;
        if (std::filesystem::exists(file, ignored)) candidates.push_back(file);
      }
    }
  };
  if (const char* given = std::getenv("TEMPER_NVRTC"); given != nullptr && *given != '\0') {
    std::error_code ignored;
    if (!std::filesystem::is_directory(given, ignored)) return {given};
    add_folder(given);
    return candidates;
  }
  add_folder(TEMPER_BUILT_NVRTC);
  for (const char* name : kNames) candidates.push_back(name);
  return candidates;
}

// All of the first place that has any, newest first; never unloaded.
const std::vector<std::unique_ptr<Loaded>>& Libraries() {
  static const auto* const libraries = [] {
    auto* found = new std::vector<std::unique_ptr<Loaded>>;
    for (const std::string& candidate : Candidates()) {
      void* library = dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL);
      std::unique_ptr<Loaded> loaded = library == nullptr ? nullptr : Loaded::Make(library);
      if (loaded != nullptr) found->push_back(std::move(loaded));
    }
    std::ranges::stable_sort(*found, std::ranges::greater(), &Loaded::version);
    return found;
  }();
  return *libraries;
}

std::string VersionText(const Compiler& c) { return absl::StrCat(c.version()[0], ".", c.version()[1]); }

// The number that stands before `unit` in the text: 40 of "Used 40 registers, ..."; 0 where there is none.
int64_t Before(std::string_view text, std::string_view unit) {
  const size_t at = text.find(unit);
  if (at == text.npos) return 0;
  size_t begin = at;
  while (begin > 0 && std::isdigit(static_cast<unsigned char>(text[begin - 1])) != 0) --begin;
  int64_t number = 0;
  return absl::SimpleAtoi(std::string(text.substr(begin, at - begin)), &number) ? number : 0;
}

// A driver takes the code of its own major version and of earlier ones. Without a driver the code is for elsewhere.
bool DriverTakes(const Compiler& compiler) {
  const absl::StatusOr<int> driver = cuda::DriverVersion();
  return !driver.ok() || compiler.version()[0] <= *driver / 1000;
}

}  // namespace

absl::StatusOr<const Compiler*> CompilerFor(std::string_view arch) {
  if (Libraries().empty()) {
    const char* given = std::getenv("TEMPER_NVRTC");
    return absl::UnavailableError(
        given != nullptr && *given != '\0'
            ? absl::StrCat("no NVRTC at TEMPER_NVRTC=", given)
            : "no NVRTC here: pip install --no-deps --target DIR nvidia-cuda-nvrtc, and set TEMPER_NVRTC=DIR");
  }
  const Compiler* too_new = nullptr;
  for (const std::unique_ptr<Loaded>& library : Libraries()) {
    if (!std::ranges::binary_search(library->archs(), NumberOf(arch))) continue;
    if (DriverTakes(*library)) return library.get();
    if (too_new == nullptr) too_new = library.get();
  }
  if (too_new != nullptr) return too_new;  // its code is for other machines
  const Loaded& newest = *Libraries().front();
  return absl::UnavailableError(absl::StrCat("NVRTC ", VersionText(newest), " makes code for sm_",
                                             newest.archs().front(), " to sm_", newest.archs().back(), ", not for ",
                                             std::string(arch)));
}

absl::StatusOr<FunctionUse> UseOf(std::string_view log, std::string_view function) {
  const size_t begin = log.find(absl::StrCat("'", std::string(function), "'"));
  if (begin == log.npos) return absl::InternalError(absl::StrCat("ptxas says nothing of ", std::string(function)));
  const std::string_view said = log.substr(begin, log.find("Compiling entry", begin) - begin);
  return FunctionUse{Before(said, " registers"), Before(said, " bytes smem"), Before(said, " bytes stack"),
                     Before(said, " bytes spill stores") + Before(said, " bytes spill loads")};
}

}  // namespace temper::nvrtc
