#include "compiler/codegen/compile_cache.h"

#include "absl/strings/str_cat.h"

namespace temper {

absl::StatusOr<std::shared_ptr<const Artifact>> CompileCache::Compile(const CodegenInput& kernel,
                                                                      const Target& target) {
  const std::string key =
      absl::StrCat(Text(target), "\n", kernel.symbol, " in_place=", kernel.in_place, "\n", ir::Text(kernel.func));
  std::promise<Result> promise;
  std::shared_future<Result> known;
  {
    std::lock_guard lock(mutex_);
    auto [it, is_new] = known_.try_emplace(key);
    if (is_new) {
      it->second = promise.get_future().share();
    } else {
      known = it->second;
    }
  }
  if (known.valid()) return known.get();
  auto compiled = CompileKernels({kernel}, target);
  const Result result =
      compiled.ok() ? Result(std::make_shared<const Artifact>(*std::move(compiled))) : Result(compiled.status());
  promise.set_value(result);
  return result;
}

}  // namespace temper
