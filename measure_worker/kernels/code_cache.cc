#include "measure_worker/kernels/code_cache.h"

#include "absl/strings/str_cat.h"
#include "compiler/codegen/codegen.h"

namespace temper::worker {
namespace {

constexpr char kSymbol[] = "kernel";
constexpr size_t kMostKept = 256;

}  // namespace

absl::StatusOr<LoadedKernel> CodeCache::Load(const Kernel& kernel) {
  LoadedKernel loaded{.tolerance = kernel.tolerance};
  TEMPER_ASSIGN_OR_RETURN(loaded.main, LoadOnce(device_, kernel.main));
  for (const ir::Func& pack : kernel.packs) {
    loaded.packs.emplace_back();
    if (pack.params.empty()) continue;
    TEMPER_ASSIGN_OR_RETURN(loaded.packs.back(), LoadOnce(device_.packer(), pack));
  }
  return loaded;
}

absl::StatusOr<std::shared_ptr<const Code>> CodeCache::LoadOnce(Device& device, const ir::Func& func) {
  const std::string key = absl::StrCat(Text(device.target()), "\n", ir::Text(func));
  if (std::shared_ptr<const Code> known = Find(key)) return known;
  const absl::StatusOr<Artifact> artifact = CompileKernels({{kSymbol, func}}, device.target());
  if (!artifact.ok()) return absl::InternalError(artifact.status().message());
  TEMPER_ASSIGN_OR_RETURN(std::unique_ptr<Code> code, device.Load(*artifact));
  for (const ir::Buffer& b : func.params) code->parameter_bytes.push_back(BytesOf(b->dtype, NumElements(b->shape)));
  return Add(key, std::move(code));
}

std::shared_ptr<const Code> CodeCache::Find(const std::string& key) {
  std::lock_guard lock(mutex_);
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return nullptr;
  latest_.splice(latest_.begin(), latest_, found->second);
  return found->second->second;
}

std::shared_ptr<const Code> CodeCache::Add(const std::string& key, std::shared_ptr<const Code> code) {
  std::lock_guard lock(mutex_);
  const auto [known, is_new] = by_key_.try_emplace(key);
  if (!is_new) return known->second->second;
  latest_.emplace_front(key, code);
  known->second = latest_.begin();
  if (latest_.size() > kMostKept) {
    by_key_.erase(latest_.back().first);
    latest_.pop_back();
  }
  return code;
}

}  // namespace temper::worker
