#include "measure_worker/backends/cpu/code.h"

#include <list>
#include <map>
#include <mutex>

#include "absl/strings/str_cat.h"

namespace temper::worker {
namespace {

constexpr char kSymbol[] = "kernel";

// Thread-safe.
class LatestCode {
 public:
  std::shared_ptr<const Code> Find(const std::string& key) {  // null: not known
    std::lock_guard lock(mutex_);
    const auto found = by_key_.find(key);
    if (found == by_key_.end()) return nullptr;
    latest_.splice(latest_.begin(), latest_, found->second);
    return found->second->second;
  }
  // Returns what is kept: another thread's, if that was faster.
  std::shared_ptr<const Code> Add(const std::string& key, std::shared_ptr<const Code> code) {
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

 private:
  static constexpr size_t kMostKept = 256;
  std::mutex mutex_;
  std::list<std::pair<std::string, std::shared_ptr<const Code>>> latest_;  // used last, first
  std::map<std::string, decltype(latest_)::iterator> by_key_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const Code>> Code::Compile(const ir::Func& func, const Target& t) {
  TEMPER_ASSIGN_OR_RETURN(Artifact compiled, CompileKernels({{kSymbol, func}}, t));
  auto code = std::make_shared<Code>();
  {
    static std::mutex mutex;  // LoadObject is not thread-safe
    std::lock_guard lock(mutex);
    TEMPER_ASSIGN_OR_RETURN(code->module_, LoadObject(compiled.code));
  }
  TEMPER_ASSIGN_OR_RETURN(void* entry, code->module_->Symbol(kSymbol));
  code->entry_ = reinterpret_cast<temper_kernel>(entry);
  code->info_ = compiled.kernels.front();
  for (const ir::Buffer& b : func.params) code->parameter_bytes_.push_back(BytesOf(b->dtype, NumElements(b->shape)));
  return code;
}

absl::StatusOr<std::shared_ptr<const Code>> CompileOnce(const ir::Func& func, const Target& t) {
  static LatestCode latest;
  const std::string key = absl::StrCat(Text(t), "\n", ir::Text(func));
  if (std::shared_ptr<const Code> known = latest.Find(key)) return known;
  TEMPER_ASSIGN_OR_RETURN(std::shared_ptr<const Code> code, Code::Compile(func, t));
  return latest.Add(key, std::move(code));
}

}  // namespace temper::worker
