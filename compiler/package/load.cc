#include <dlfcn.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "compiler/package/package.h"
#include "compiler/runtime/model.h"

namespace temper {
namespace {

// model.so's entry points, looked up in that library alone.
struct Api {
  decltype(&temper_model_create) create;
  decltype(&temper_model_io_count) io_count;
  decltype(&temper_model_io) io;
  decltype(&temper_model_run) run;
  decltype(&temper_model_destroy) destroy;
  decltype(&temper_model_error) error;
  // Absent in packages written before they could be profiled.
  decltype(&temper_model_step_count) step_count;
  decltype(&temper_model_run_timed) run_timed;
};

class SharedLibraryPackage : public LoadedPackage {
 public:
  static absl::StatusOr<std::unique_ptr<LoadedPackage>> Load(const std::string& dir, int threads) {
    const std::string path = std::filesystem::absolute(dir).string() + "/model.so";
    if (!std::filesystem::exists(path))
      return absl::NotFoundError(absl::StrCat(dir, " is not a package: it has no model.so"));
    auto package = std::unique_ptr<SharedLibraryPackage>(new SharedLibraryPackage);
    package->library_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (package->library_ == nullptr)
      return absl::InvalidArgumentError(absl::StrCat("cannot load ", path, ": ", dlerror()));
    Api& api = package->api_;
    if (!package->Find("temper_model_create", &api.create) || !package->Find("temper_model_io_count", &api.io_count) ||
        !package->Find("temper_model_io", &api.io) || !package->Find("temper_model_run", &api.run) ||
        !package->Find("temper_model_destroy", &api.destroy) || !package->Find("temper_model_error", &api.error)) {
      return absl::InvalidArgumentError(absl::StrCat(path, " is not a model of Temper's: temper_model_* are missing"));
    }
    package->Find("temper_model_step_count", &api.step_count);
    package->Find("temper_model_run_timed", &api.run_timed);
    if (api.create(dir.c_str(), threads, &package->model_) != 0)
      return absl::FailedPreconditionError(api.error(nullptr));
    TEMPER_RETURN_IF_ERROR(package->ReadIo(0, &package->inputs_));
    TEMPER_RETURN_IF_ERROR(package->ReadIo(1, &package->outputs_));
    return package;
  }
  ~SharedLibraryPackage() override {
    if (model_ != nullptr) api_.destroy(model_);
    if (library_ != nullptr) dlclose(library_);
  }

  const std::vector<Io>& inputs() const override { return inputs_; }
  const std::vector<Io>& outputs() const override { return outputs_; }
  absl::Status Run(const void* const* inputs, void* const* outputs) override {
    if (api_.run(model_, inputs, outputs) != 0) return absl::InternalError(api_.error(model_));
    return absl::OkStatus();
  }
  absl::Status RunTimed(const void* const* inputs, void* const* outputs, std::vector<int64_t>* step_ns) override {
    if (api_.step_count == nullptr || api_.run_timed == nullptr)
      return absl::FailedPreconditionError("the package is too old to be profiled: compile the model again");
    step_ns->resize(static_cast<size_t>(api_.step_count(model_)) + 1);  // never empty: a null place is refused
    const int code = api_.run_timed(model_, inputs, outputs, step_ns->data());
    step_ns->pop_back();
    return code == 0 ? absl::OkStatus() : absl::InternalError(api_.error(model_));
  }

 private:
  SharedLibraryPackage() = default;

  template <typename F>
  bool Find(const char* name, F* function) {
    *function = reinterpret_cast<F>(dlsym(library_, name));
    return *function != nullptr;
  }

  absl::Status ReadIo(int is_output, std::vector<Io>* ios) {
    for (int i = 0; i < api_.io_count(model_, is_output); ++i) {
      const char* name = nullptr;
      int onnx = 0, rank = 0;
      const int64_t* shape = nullptr;
      if (api_.io(model_, is_output, i, &name, &onnx, &rank, &shape) != 0)
        return absl::InternalError(api_.error(model_));
      TEMPER_ASSIGN_OR_RETURN(const DType dtype, DTypeFromOnnx(onnx));
      ios->push_back({name, dtype, Shape(shape, shape + rank)});
    }
    return absl::OkStatus();
  }

  void* library_ = nullptr;
  temper_model* model_ = nullptr;
  Api api_{};
  std::vector<Io> inputs_, outputs_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<LoadedPackage>> LoadPackage(const std::string& dir, int threads) {
  return SharedLibraryPackage::Load(dir, threads);
}

}  // namespace temper
