#include "measure_worker/backends/cpu/code.h"

#include <map>
#include <mutex>

#include "absl/strings/str_cat.h"

namespace temper::worker {
namespace {

constexpr char kSymbol[] = "kernel";
constexpr size_t kMostKept = 256;

}  // namespace

absl::StatusOr<std::shared_ptr<const Code>> Code::Compile(const ir::Func& func, const Target& t) {
  TEMPER_ASSIGN_OR_RETURN(CompiledModule compiled, CompileModule({{kSymbol, func}}, t));
  auto code = std::make_shared<Code>();
  {
    static std::mutex mutex;  // LoadObject is not thread-safe
    std::lock_guard lock(mutex);
    TEMPER_ASSIGN_OR_RETURN(code->module_, LoadObject(compiled.object));
  }
  TEMPER_ASSIGN_OR_RETURN(void* entry, code->module_->Symbol(kSymbol));
  code->entry_ = reinterpret_cast<temper_kernel>(entry);
  code->info_ = compiled.kernels.front();
  for (const ir::Buffer& b : func.params) code->parameter_bytes_.push_back(NumElements(b->shape) * SizeOf(b->dtype));
  return code;
}

absl::StatusOr<std::shared_ptr<const Code>> CompileOnce(const ir::Func& func, const Target& t) {
  static std::mutex mutex;
  static std::map<std::string, std::shared_ptr<const Code>> known;
  const std::string key = absl::StrCat(Text(t), "\n", ir::Text(func));
  {
    std::lock_guard lock(mutex);
    if (auto it = known.find(key); it != known.end()) return it->second;
  }
  TEMPER_ASSIGN_OR_RETURN(std::shared_ptr<const Code> code, Code::Compile(func, t));
  std::lock_guard lock(mutex);
  if (known.size() >= kMostKept) known.clear();
  known[key] = code;
  return code;
}

}  // namespace temper::worker
