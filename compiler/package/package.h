// `compile`: an optimised graph and a choice for each workload become a directory that runs without Temper:
// model.so, weights.bin, manifest.json, model.h. The formats are in docs/package-format.md.
#pragma once

#include <functional>
#include <span>

#include "compiler/codegen/compile_cache.h"
#include "compiler/graph/graph.h"
#include "compiler/ops/template.h"
#include "include/temper/model.h"

namespace temper {

// What to use for a workload, and where it came from (kept in the manifest).
struct KernelChoice {
  std::string template_name;
  Config config;
  // How the record was found: "exact", "key", "target", "borrowed"; "default": none was; "locked": a lock says so.
  std::string level = "default";
  std::string record;  // the record's id; empty by default
  bool stale = false;  // made by another codegen id of the same template version
  double seconds = 0;  // measured by that record; 0: not known
  std::string device;  // the key of the device that measured it; empty: no record
};
// Returns the default choice where nothing better is known (see DefaultChoice).
using ChooseFn = std::function<absl::StatusOr<KernelChoice>(const Workload&, const Target&)>;
absl::StatusOr<KernelChoice> ChooseDefault(const Workload& w, const Target& t);

// What a run does, in order; all texts are canonical, and empty for a copy.
struct PackageStep {
  std::string workload, template_name, config;
};
struct PackageReport {
  int64_t arena_bytes = 0;  // activations and the kernels' scratch, with the target's threads; of the largest variant
  int64_t weight_bytes = 0;
  int kernels = 0;  // launches, each variant run once
  int tuned_kernels = 0;
  int variants = 1;
  std::vector<PackageStep> steps;  // of the first variant
};
// Of the directory's layout, manifest.json and model.so's functions. Packages of another version are refused.
inline constexpr int kPackageVersion = 8;

struct PackageOptions {
  CompileCache* cache = nullptr;  // what packages of the same model share; null: nothing
  // With a prefix the library is lib<prefix>.so and exports <prefix>_run where it would export temper_model_run, and so
  // on, so that a program can link several models. At most 64 lower-case letters, digits and underscores that make a C
  // identifier, else kInvalidArgument.
  std::string prefix;
  std::string lock;  // the digest of the lock's entry that the choices are from, kept in the manifest; empty: no lock
};
// The model for one choice of its inputs' shapes.
struct PackageVariant {
  const Graph& graph;
  std::string name;  // what people tell it by, such as "batch=1 seq=32"; empty: it is the only one
};
// `dir` is created, or replaced if it holds a package, atomically (written beside, then renamed). The variants are of
// one model: they have the same inputs and outputs but for their shapes, else kInvalidArgument. They share kernels of
// the same workload, and constants that lie in the same memory. The same graphs, target and choices give the same
// bytes, in every folder.
absl::StatusOr<PackageReport> WritePackage(std::span<const PackageVariant> variants, const Target& t,
                                           const ChooseFn& choose, const std::string& dir,
                                           const PackageOptions& options = {});
absl::StatusOr<PackageReport> WritePackage(const Graph& g, const Target& t, const ChooseFn& choose,
                                           const std::string& dir, const PackageOptions& options = {});

// How manifest.json's `files` tell one content from another: 16 hex digits. kNotFound: it can not be read.
absl::StatusOr<std::string> HashOfFile(const std::string& path);

// A package loaded into this process through its own C ABI.
class LoadedPackage {
 public:
  struct Io {
    std::string name;
    DType dtype;
    Shape shape;  // the largest
    Shape least;  // of an input: the smallest that a run may have
    // Whether the shape lies between both.
    bool Takes(const Shape& given) const;
  };
  virtual ~LoadedPackage() = default;
  virtual int variants() const = 0;
  // What follows is about this variant then; it is about variant 0 before.
  virtual absl::Status Choose(int variant) = 0;
  virtual const std::vector<Io>& inputs() const = 0;
  virtual const std::vector<Io>& outputs() const = 0;
  virtual absl::Status Run(const void* const* inputs, void* const* outputs) = 0;
  // Run of the variant that takes inputs of these shapes, in the model's order, and what it gives. kInvalidArgument:
  // none takes them. No variant is chosen by that.
  virtual absl::StatusOr<std::vector<NDArray>> RunShaped(const std::vector<NDArray>& inputs) = 0;
  // Run, and the times of each step in the order of the manifest's `steps`. `again`: as in temper_model_run_timed.
  virtual absl::Status RunTimed(const void* const* inputs, void* const* outputs, int again,
                                std::vector<temper_step_time>* times) = 0;
};
// What `dir` holds now, also where an older package of the same place is loaded. threads 0: the affinity mask's count,
// or TEMPER_NUM_THREADS if set. kNotFound: no package is there. kFailedPrecondition: it is of another version, or does
// not run here.
absl::StatusOr<std::unique_ptr<LoadedPackage>> LoadPackage(const std::string& dir, int threads = 0);

}  // namespace temper
