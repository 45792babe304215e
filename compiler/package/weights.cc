#include "compiler/package/weights.h"

#include <cstring>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/codegen/codegen.h"
#include "compiler/runtime/kernel_abi.h"
#include "compiler/runtime/plan.h"

namespace temper {

struct PackKernel {
  std::unique_ptr<LoadedModule> module;
  temper_kernel kernel;
  CompiledKernel info;
};

namespace {

void RunSerially(temper_launcher*, int64_t n, temper_body body, void* closure) { body(closure, 0, n, 0); }

constexpr int64_t kAlignment = 64;

int64_t RoundUp(int64_t n) { return (n + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

NDArray ToPhysical(const NDArray& logical, const std::vector<int>& perm) {
  if (perm.empty()) return logical;
  const Shape& shape = logical.shape();
  const size_t rank = shape.size();
  std::vector<int64_t> stride(rank, 1);
  for (size_t d = rank; d-- > 1;) stride[d - 1] = stride[d] * shape[d];
  Shape physical;
  for (int axis : perm) physical.push_back(shape[static_cast<size_t>(axis)]);
  NDArray result(logical.dtype(), physical);
  const int64_t size = SizeOf(logical.dtype());
  std::vector<int64_t> index(rank, 0);
  const char* from = static_cast<const char*>(logical.data());
  char* to = static_cast<char*>(result.MutableData());
  for (int64_t i = 0; i < result.size(); ++i) {
    int64_t offset = 0;
    for (size_t p = 0; p < rank; ++p) offset += index[p] * stride[static_cast<size_t>(perm[p])];
    std::memcpy(to + i * size, from + offset * size, static_cast<size_t>(size));
    for (size_t p = rank; p-- > 0 && ++index[p] == physical[p];) index[p] = 0;
  }
  return result;
}

absl::StatusOr<NDArray> WeightWriter::Pack(const NDArray& physical, const ir::Func& pack) {
  std::shared_ptr<PackKernel>& kernel = packs_[ir::Text(pack)];
  if (kernel == nullptr) {
    auto made = std::make_shared<PackKernel>();
    TEMPER_ASSIGN_OR_RETURN(CompiledModule compiled, CompileModule({{"pack", pack}}, host_));
    TEMPER_ASSIGN_OR_RETURN(made->module, LoadObject(compiled.object));
    TEMPER_ASSIGN_OR_RETURN(void* symbol, made->module->Symbol("pack"));
    made->kernel = reinterpret_cast<temper_kernel>(symbol);
    made->info = compiled.kernels[0];
    kernel = std::move(made);
  }
  const ir::Buffer& out = pack.params.back();
  NDArray result(out->dtype, out->shape);
  NDArray workspace(DType::kU8, {kernel->info.workspace_bytes + kernel->info.thread_workspace_bytes});
  void* args[] = {const_cast<void*>(physical.data()), result.MutableData()};
  temper_launcher serial{RunSerially, 1};
  kernel->kernel(args, workspace.MutableData(), &serial);
  return result;
}

absl::StatusOr<int64_t> WeightWriter::Add(ValueId value, const NDArray& data, const TensorType& type,
                                          const ir::Func& pack) {
  const bool packed = !pack.params.empty();
  std::string layout = absl::StrCat(absl::StrJoin(type.perm, ""), packed ? ir::Text(pack) : "");
  auto [known, is_new] = known_.try_emplace({value, std::move(layout)}, bytes_);
  if (!is_new) return known->second;
  NDArray physical = ToPhysical(data, type.perm);
  if (packed) {
    TEMPER_ASSIGN_OR_RETURN(physical, Pack(physical, pack));
  }
  pieces_.push_back(physical);
  bytes_ = RoundUp(bytes_ + physical.bytes());
  return known->second;
}

absl::StatusOr<uint64_t> WeightWriter::Write(const std::string& path) const {
  std::ofstream out(path, std::ios::binary);
  temper_weights_hasher hash;
  temper_weights_hash_begin(&hash);
  const auto put = [&](const char* blocks, int64_t bytes) {
    out.write(blocks, bytes);
    temper_weights_hash_add(&hash, blocks, static_cast<size_t>(bytes));
  };
  static_assert(kAlignment % TEMPER_HASH_BLOCK == 0);
  for (const NDArray& piece : pieces_) {
    const char* data = static_cast<const char*>(piece.data());
    const int64_t whole = piece.bytes() / kAlignment * kAlignment, rest = piece.bytes() - whole;
    put(data, whole);
    if (rest == 0) continue;
    char last[kAlignment] = {};  // filled up to where the next piece begins
    std::memcpy(last, data + whole, static_cast<size_t>(rest));
    put(last, kAlignment);
  }
  out.close();
  if (!out) return absl::UnavailableError(absl::StrCat("cannot write ", path, ": is the disk full?"));
  return temper_weights_hash_end(&hash, nullptr, 0);
}

}  // namespace temper
