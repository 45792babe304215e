#include <dlfcn.h>
#include <sys/stat.h>

#include <cstring>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "compiler/package/manifest.h"
#include "compiler/package/package.h"
#include "compiler/package/prefix.h"
#include "include/temper/model.h"

namespace temper {
namespace {

// model.so's entry points, looked up in that library alone.
struct Api {
  decltype(&temper_model_create) create;
  decltype(&temper_model_variant_count) variant_count;
  decltype(&temper_model_choose_variant) choose_variant;
  decltype(&temper_model_io_count) io_count;
  decltype(&temper_model_io) io;
  decltype(&temper_model_io_least) io_least;
  decltype(&temper_model_run) run;
  decltype(&temper_model_run_shaped) run_shaped;
  decltype(&temper_model_destroy) destroy;
  decltype(&temper_model_error) error;
  decltype(&temper_model_step_count) step_count;
  decltype(&temper_model_run_timed) run_timed;
};

// What the names of the package's functions begin with.
absl::StatusOr<std::string> PrefixOf(const nlohmann::json& manifest, const std::string& dir) {
  if (!manifest.contains("prefix"))
    return absl::InvalidArgumentError(absl::StrCat(dir, "/manifest.json is damaged: it says no prefix"));
  std::string prefix = manifest["prefix"].get<std::string>();
  TEMPER_RETURN_IF_ERROR(CheckPrefix(prefix));
  return prefix;
}

// The loader says of another machine's library that there is no such file.
absl::Status CheckArch(const nlohmann::json& manifest, const std::string& dir) {
  const absl::StatusOr<Target> target = ParseTarget(manifest.value("target", ""));
  if (!target.ok() || target->cpu() == nullptr || target->generator != "llvm" || target->cpu()->arch() == HostArch())
    return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("cannot load ", dir, ": ", CheckRunsHere(*target).message()));
}

// A path of the file that no other file of this place ever has: dlopen takes a path that it knows for the file that it
// loaded from there, also when a package was written anew in the same place since. The bits of the inode's number stand
// in the path as "/" and "/.".
std::string OwnPath(const std::string& dir, const std::string& name) {
  std::string path = std::filesystem::absolute(dir).string();
  struct stat info {};
  stat(absl::StrCat(path, "/", name).c_str(), &info);  // dlopen says what is wrong
  for (ino_t bits = info.st_ino; bits != 0; bits >>= 1) path += (bits & 1) != 0 ? "/." : "/";
  return absl::StrCat(path, "/", name);
}

class SharedLibraryPackage : public LoadedPackage {
 public:
  static absl::StatusOr<std::unique_ptr<LoadedPackage>> Load(const std::string& dir, int threads) {
    TEMPER_ASSIGN_OR_RETURN(const nlohmann::json manifest, ReadManifest(dir));
    TEMPER_ASSIGN_OR_RETURN(const std::string prefix, PrefixOf(manifest, dir));
    TEMPER_RETURN_IF_ERROR(CheckArch(manifest, dir));
    const std::string path = OwnPath(dir, LibraryName(prefix));
    auto package = std::unique_ptr<SharedLibraryPackage>(new SharedLibraryPackage);
    package->prefix_ = prefix;
    package->library_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (package->library_ == nullptr)
      return absl::InvalidArgumentError(absl::StrCat("cannot load ", dir, ": ", dlerror()));
    Api& api = package->api_;
    if (!package->Find("create", &api.create) || !package->Find("io_count", &api.io_count) ||
        !package->Find("io", &api.io) || !package->Find("run", &api.run) || !package->Find("destroy", &api.destroy) ||
        !package->Find("error", &api.error) || !package->Find("step_count", &api.step_count) ||
        !package->Find("run_shaped", &api.run_shaped) || !package->Find("run_timed", &api.run_timed) ||
        !package->Find("variant_count", &api.variant_count) || !package->Find("choose_variant", &api.choose_variant) ||
        !package->Find("io_least", &api.io_least)) {
      return absl::InvalidArgumentError(
          absl::StrCat(dir, " is not a model of Temper's: ", FunctionName(prefix, "*"), " are missing"));
    }
    TEMPER_RETURN_IF_ERROR(package->SetDevices(dir));
    if (api.create(dir.c_str(), threads, &package->model_) != 0)
      return absl::FailedPreconditionError(api.error(nullptr));
    TEMPER_RETURN_IF_ERROR(package->ReadIos());
    return package;
  }
  ~SharedLibraryPackage() override {
    if (model_ != nullptr) api_.destroy(model_);
    if (library_ != nullptr) dlclose(library_);
  }

  int variants() const override { return api_.variant_count(model_); }
  absl::Status Choose(int variant) override {
    TEMPER_RETURN_IF_ERROR(Ran(api_.choose_variant(model_, variant)));
    return ReadIos();
  }
  const std::vector<Io>& inputs() const override { return inputs_; }
  const std::vector<Io>& outputs() const override { return outputs_; }
  absl::Status Run(const void* const* inputs, void* const* outputs) override {
    return Ran(api_.run(model_, inputs, outputs));
  }
  absl::StatusOr<std::vector<NDArray>> RunShaped(const std::vector<NDArray>& inputs) override {
    if (inputs.size() != inputs_.size()) return absl::InvalidArgumentError("there are more or fewer inputs");
    std::vector<temper_tensor> in;
    for (const NDArray& a : inputs) {
      TEMPER_ASSIGN_OR_RETURN(in.emplace_back(), TensorAt(const_cast<void*>(a.data()), a.dtype(), a.shape()));
    }
    // The first call has no room for anything, so that it says what is needed; where nothing is, it is the run.
    std::vector<temper_tensor> out(outputs_.size());
    int code = api_.run_shaped(model_, in.data(), out.data());
    std::vector<NDArray> results;
    if (code == TEMPER_NO_ROOM) {
      TEMPER_ASSIGN_OR_RETURN(results, ArraysOf(out));
      for (size_t i = 0; i < out.size(); ++i) {
        out[i].data = results[i].MutableData();
        out[i].bytes = results[i].bytes();
      }
      code = api_.run_shaped(model_, in.data(), out.data());
    }
    if (code == TEMPER_INVALID_ARGUMENT) return absl::InvalidArgumentError(api_.error(model_));
    TEMPER_RETURN_IF_ERROR(Ran(code));
    TEMPER_ASSIGN_OR_RETURN(std::vector<NDArray> fronts, ArraysOf(out));
    for (size_t i = 0; i < results.size(); ++i) {
      if (fronts[i].bytes() > 0)
        std::memcpy(fronts[i].MutableData(), results[i].data(), static_cast<size_t>(fronts[i].bytes()));
    }
    return fronts;
  }
  absl::Status RunTimed(const void* const* inputs, void* const* outputs, int again,
                        std::vector<temper_step_time>* times) override {
    times->resize(static_cast<size_t>(api_.step_count(model_)) + 1);  // never empty: a null place is refused
    const int code = api_.run_timed(model_, inputs, outputs, again, times->data());
    times->pop_back();
    return Ran(code);
  }

 private:
  SharedLibraryPackage() = default;

  absl::Status Ran(int code) const { return code == 0 ? absl::OkStatus() : absl::InternalError(api_.error(model_)); }

  static absl::StatusOr<temper_tensor> TensorAt(void* data, DType dtype, const Shape& shape) {
    if (shape.size() > TEMPER_MAX_RANK) return absl::InvalidArgumentError("an array has too many dimensions");
    temper_tensor t{data, BytesOf(dtype, NumElements(shape)), Info(dtype).onnx, static_cast<int32_t>(shape.size()), {}};
    std::copy(shape.begin(), shape.end(), t.shape);
    return t;
  }

  static absl::StatusOr<std::vector<NDArray>> ArraysOf(const std::vector<temper_tensor>& tensors) {
    std::vector<NDArray> arrays;
    for (const temper_tensor& t : tensors) {
      TEMPER_ASSIGN_OR_RETURN(const DType dtype, DTypeFromOnnx(t.dtype));
      TEMPER_ASSIGN_OR_RETURN(arrays.emplace_back(), NDArray::Make(dtype, Shape(t.shape, t.shape + t.rank)));
    }
    return arrays;
  }

  template <typename F>
  bool Find(const std::string& name, F* function) {
    *function = reinterpret_cast<F>(dlsym(library_, FunctionName(prefix_, name).c_str()));
    return *function != nullptr;
  }

  // Kernels that are not the host's code are run by their generator; see HostObject. The package's own runtime calls
  // it, and knows the temper_device of its version alone.
  absl::Status SetDevices(const std::string& dir) {
    for (const CodeGenerator& generator : AllCodeGenerators()) {
      const temper_device** device = nullptr;
      if (!Find(absl::StrCat("device_", std::string(generator.name)), &device)) continue;
      const int32_t* version = nullptr;
      if (!Find("device_version", &version) || *version != TEMPER_DEVICE_VERSION) {
        return absl::FailedPreconditionError(
            absl::StrCat(dir, " calls its device as another version of Temper does: compile the model again"));
      }
      *device = generator.device;
    }
    return absl::OkStatus();
  }

  absl::Status ReadIos() {
    TEMPER_RETURN_IF_ERROR(ReadIo(0, &inputs_));
    return ReadIo(1, &outputs_);
  }

  absl::Status ReadIo(int is_output, std::vector<Io>* ios) {
    ios->clear();
    for (int i = 0; i < api_.io_count(model_, is_output); ++i) {
      const char* name = nullptr;
      int onnx = 0, rank = 0;
      const int64_t *shape = nullptr, *least = nullptr;
      if (api_.io(model_, is_output, i, &name, &onnx, &rank, &shape) != 0 ||
          api_.io_least(model_, is_output, i, &least) != 0)
        return absl::InternalError(api_.error(nullptr));
      TEMPER_ASSIGN_OR_RETURN(const DType dtype, DTypeFromOnnx(onnx));
      ios->push_back({name, dtype, Shape(shape, shape + rank), Shape(least, least + rank)});
    }
    return absl::OkStatus();
  }

  std::string prefix_;
  void* library_ = nullptr;
  temper_model* model_ = nullptr;
  Api api_{};
  std::vector<Io> inputs_, outputs_;
};

}  // namespace

bool LoadedPackage::Io::Takes(const Shape& given) const {
  bool takes = given.size() == shape.size();
  for (size_t d = 0; takes && d < shape.size(); ++d) takes = given[d] >= least[d] && given[d] <= shape[d];
  return takes;
}

absl::StatusOr<std::unique_ptr<LoadedPackage>> LoadPackage(const std::string& dir, int threads) {
  return SharedLibraryPackage::Load(dir, threads);
}

}  // namespace temper
