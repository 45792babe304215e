// Generated CUDA C++ as the host's code, for tests: by the compiler that builds Temper, and the header beside this one.
#pragma once

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/temporary_directory.h"
#include "compiler/codegen/c_like/program.h"
#include "compiler/codegen/cuda/dialect.h"

namespace temper {

// Kernels of one program, compiled together. Not thread-safe: what runs is the process's.
class CudaProgram {
 public:
  static absl::StatusOr<CudaProgram> Compile(const std::vector<CodegenInput>& kernels, const Target& target) {
    TEMPER_ASSIGN_OR_RETURN(SourceProgram source, WriteProgram(kernels, target, CudaDialect()));
    return Compile(std::move(source));
  }
  // Of a text that was changed, too.
  static absl::StatusOr<CudaProgram> Compile(SourceProgram source) {
    TEMPER_ASSIGN_OR_RETURN(const TemporaryDirectory folder, TemporaryDirectory::Make());
    const std::string text = folder.path() + "/program.cc", library = folder.path() + "/program.so";
    {
      std::ofstream out(text);
      out << source.text;
      for (const SourceKernel& kernel : source.kernels)
        for (const std::string& function : kernel.functions) out << "RUNNER(" << function << ")\n";
    }
    const std::string command =
        absl::StrCat(TEMPER_CXX, " -std=c++20 -O1 -fno-strict-aliasing -w -shared -fPIC -include ", TEMPER_SOURCE_DIR,
                     "/tests/codegen/cuda_on_host.h -o ", library, " ", text);
    if (std::system(command.c_str()) != 0) return absl::InternalError("the host's compiler refuses the code");
    void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) return absl::InternalError(dlerror());
    return CudaProgram(handle, std::move(source));
  }

  const SourceProgram& source() const { return source_; }

  // The kernel of that number, on arrays in the order of its parameters. kFailedPrecondition: its threads race, or not
  // all come to a barrier.
  absl::Status Run(size_t kernel, std::span<NDArray> args) const {
    TEMPER_RETURN_IF_ERROR(RunInOrder(kernel, args, false));
    std::vector<NDArray> backwards;
    for (const NDArray& array : args) backwards.push_back(array.Clone());
    TEMPER_RETURN_IF_ERROR(RunInOrder(kernel, args, true));
    for (size_t i = 0; i < args.size(); ++i) {
      if (std::memcmp(args[i].data(), backwards[i].data(), static_cast<size_t>(args[i].bytes())) != 0)
        return absl::FailedPreconditionError("what comes out depends on the threads' order");
    }
    return absl::OkStatus();
  }

 private:
  absl::Status RunInOrder(size_t kernel, std::span<NDArray> args, bool forwards) const {
    const SourceKernel& k = source_.kernels[kernel];
    std::vector<void*> pointers;
    for (NDArray& array : args) pointers.push_back(array.MutableData());
    std::vector<char> workspace(static_cast<size_t>(k.compiled.workspace_bytes), '\xff');
    if (!workspace.empty()) pointers.push_back(workspace.data());
    for (size_t i = 0; i < k.functions.size(); ++i) {
      using Runner = int (*)(void**, const unsigned*, const unsigned*, bool);
      const auto run = reinterpret_cast<Runner>(dlsym(handle_.get(), absl::StrCat("run_", k.functions[i]).c_str()));
      if (run == nullptr) return absl::InternalError(absl::StrCat("no ", k.functions[i]));
      const LaunchGeometry& g = k.compiled.launches[i];
      if (run(pointers.data(), Narrow(g.groups).data(), Narrow(g.threads).data(), forwards) != 0)
        return absl::FailedPreconditionError("a barrier to which not all threads of a block come");
    }
    return absl::OkStatus();
  }

  static std::array<unsigned, 3> Narrow(const std::array<int64_t, 3>& a) {
    return {static_cast<unsigned>(a[0]), static_cast<unsigned>(a[1]), static_cast<unsigned>(a[2])};
  }

  struct Close {
    void operator()(void* handle) const { dlclose(handle); }
  };
  CudaProgram(void* handle, SourceProgram source) : handle_(handle), source_(std::move(source)) {}

  std::unique_ptr<void, Close> handle_;
  SourceProgram source_;
};

}  // namespace temper
