// Loading an object into this process: one mapping for code and data, so that nothing is out of a 32-bit
// displacement's reach, and a closed list of symbols it may ask for.
#include <llvm/ExecutionEngine/JITSymbol.h>
#include <llvm/ExecutionEngine/RuntimeDyld.h>
#include <llvm/Object/ObjectFile.h>
#include <llvm/Support/MemoryBuffer.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <map>

#include "absl/strings/str_cat.h"
#include "compiler/codegen/codegen.h"

namespace temper {
namespace {

template <typename F>
uint64_t Address(F* f) {
  return reinterpret_cast<uint64_t>(f);
}

// What LLVM and our own emission may call.
const std::map<std::string, uint64_t, std::less<>>& Symbols() {
  static const std::map<std::string, uint64_t, std::less<>> table = {
      {"exp", Address<double(double)>(::exp)},
      {"expf", Address<float(float)>(::expf)},
      {"log", Address<double(double)>(::log)},
      {"logf", Address<float(float)>(::logf)},
      {"tanh", Address<double(double)>(::tanh)},
      {"tanhf", Address<float(float)>(::tanhf)},
      {"erf", Address<double(double)>(::erf)},
      {"erff", Address<float(float)>(::erff)},
      {"sin", Address<double(double)>(::sin)},
      {"sinf", Address<float(float)>(::sinf)},
      {"cos", Address<double(double)>(::cos)},
      {"cosf", Address<float(float)>(::cosf)},
      {"floor", Address<double(double)>(::floor)},
      {"floorf", Address<float(float)>(::floorf)},
      {"ceil", Address<double(double)>(::ceil)},
      {"ceilf", Address<float(float)>(::ceilf)},
      {"roundeven", Address<double(double)>(::roundeven)},
      {"roundevenf", Address<float(float)>(::roundevenf)},
      {"fma", Address<double(double, double, double)>(::fma)},
      {"fmaf", Address<float(float, float, float)>(::fmaf)},
      {"pow", Address<double(double, double)>(::pow)},
      {"powf", Address<float(float, float)>(::powf)},
      {"memcpy", Address<void*(void*, const void*, size_t)>(::memcpy)},
      {"memmove", Address<void*(void*, const void*, size_t)>(::memmove)},
      {"memset", Address<void*(void*, int, size_t)>(::memset)},
  };
  return table;
}

class Mapping final : public llvm::RuntimeDyld::MemoryManager {
 public:
  ~Mapping() override {
    if (base_ != nullptr) munmap(base_, size_);
  }

  bool needsToReserveAllocationSpace() override { return true; }
  void reserveAllocationSpace(uintptr_t code, llvm::Align code_align, uintptr_t ro, llvm::Align ro_align, uintptr_t rw,
                              llvm::Align rw_align) override {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    // The sizes asked for do not count the padding between sections.
    auto pages = [page](uintptr_t bytes, llvm::Align align) {
      return (bytes + 64 * align.value() + page - 1) / page * page;
    };
    code_ = pages(code, code_align);
    read_only_ = pages(ro, ro_align);
    size_ = code_ + read_only_ + pages(rw, rw_align);
    void* p = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return;
    base_ = static_cast<uint8_t*>(p);
    next_[0] = base_;
    next_[1] = base_ + code_;
    next_[2] = base_ + code_ + read_only_;
  }
  uint8_t* allocateCodeSection(uintptr_t size, unsigned align, unsigned, llvm::StringRef) override {
    return Take(0, size, align, base_ + code_);
  }
  uint8_t* allocateDataSection(uintptr_t size, unsigned align, unsigned, llvm::StringRef, bool is_read_only) override {
    return is_read_only ? Take(1, size, align, base_ + code_ + read_only_) : Take(2, size, align, base_ + size_);
  }
  void registerEHFrames(uint8_t*, uint64_t, size_t) override {}
  void deregisterEHFrames() override {}
  bool finalizeMemory(std::string* error) override {
    __builtin___clear_cache(reinterpret_cast<char*>(base_), reinterpret_cast<char*>(base_ + code_));
    if (mprotect(base_, code_, PROT_READ | PROT_EXEC) != 0 ||
        (read_only_ > 0 && mprotect(base_ + code_, read_only_, PROT_READ) != 0)) {
      if (error != nullptr) *error = "mprotect failed";
      return true;
    }
    return false;
  }
  bool mapped() const { return base_ != nullptr; }

 private:
  uint8_t* Take(int which, uintptr_t size, unsigned align, uint8_t* end) {
    if (base_ == nullptr) return nullptr;
    const uintptr_t a = std::max<uintptr_t>(align, 16);
    auto* p = reinterpret_cast<uint8_t*>((reinterpret_cast<uintptr_t>(next_[which]) + a - 1) / a * a);
    if (p + size > end) return nullptr;
    next_[which] = p + size;
    return p;
  }

  uint8_t* base_ = nullptr;
  size_t size_ = 0, code_ = 0, read_only_ = 0;
  uint8_t* next_[3] = {};
};

class Resolver final : public llvm::JITSymbolResolver {
 public:
  void lookup(const LookupSet& symbols, OnResolvedFunction done) override {
    LookupResult result;
    for (llvm::StringRef s : symbols) {
      auto it = Symbols().find(std::string_view(s.data(), s.size()));
      if (it == Symbols().end()) {
        done(llvm::make_error<llvm::StringError>("object needs symbol '" + s.str() + "', which kernels may not use",
                                                 llvm::inconvertibleErrorCode()));
        return;
      }
      result[s] = llvm::JITEvaluatedSymbol(it->second, llvm::JITSymbolFlags::Exported);
    }
    done(std::move(result));
  }
  llvm::Expected<LookupSet> getResponsibilitySet(const LookupSet&) override { return LookupSet(); }
};

class RuntimeDyldModule final : public LoadedModule {
 public:
  absl::Status Load(const std::string& object) {
    auto buffer = llvm::MemoryBuffer::getMemBuffer(llvm::StringRef(object.data(), object.size()), "kernel", false);
    llvm::Expected<std::unique_ptr<llvm::object::ObjectFile>> file =
        llvm::object::ObjectFile::createObjectFile(buffer->getMemBufferRef());
    if (!file)
      return absl::InvalidArgumentError(absl::StrCat("not an object file: ", llvm::toString(file.takeError())));
    if (!(*file)->isRelocatableObject()) return absl::InvalidArgumentError("not a relocatable object file");
    Resolver resolver;
    llvm::RuntimeDyld linker(memory_, resolver);
    linker.loadObject(**file);
    if (!memory_.mapped()) return absl::ResourceExhaustedError("no memory to load a kernel into");
    linker.resolveRelocations();
    if (linker.hasError())
      return absl::InvalidArgumentError(absl::StrCat("cannot load object: ", linker.getErrorString().str()));
    std::string error;
    if (memory_.finalizeMemory(&error)) return absl::InternalError(error);
    for (const auto& [name, symbol] : linker.getSymbolTable()) symbols_[name.str()] = symbol.getAddress();
    return absl::OkStatus();
  }

  absl::StatusOr<void*> Symbol(const std::string& name) override {
    auto it = symbols_.find(name);
    if (it == symbols_.end()) return absl::NotFoundError(absl::StrCat("no symbol '", name, "' in the loaded object"));
    return reinterpret_cast<void*>(it->second);
  }

 private:
  Mapping memory_;
  std::map<std::string, uint64_t> symbols_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<LoadedModule>> LoadObject(const std::string& object) {
  auto module = std::make_unique<RuntimeDyldModule>();
  TEMPER_RETURN_IF_ERROR(module->Load(object));
  return module;
}

}  // namespace temper
