#include "compiler/package/weights.h"

#include <algorithm>
#include <cstring>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/division.h"
#include "base/strides.h"
#include "compiler/runtime/kernel_abi.h"
#include "compiler/runtime/plan.h"

namespace temper {

namespace {

void RunSerially(temper_launcher*, int64_t n, temper_body body, void* closure) { body(closure, 0, n, 0); }

// Writes pieces one after another, each at a multiple of `alignment`, and hashes them on the way.
class WeightFile {
 public:
  WeightFile(const std::string& path, int64_t alignment)
      : path_(path), out_(path, std::ios::binary), alignment_(alignment) {
    chunk_.reserve(TEMPER_HASH_CHUNK);
  }

  void Put(const NDArray& piece) {
    const char* data = static_cast<const char*>(piece.data());
    for (int64_t at = 0; at < piece.bytes();) {
      const int64_t room = TEMPER_HASH_CHUNK - static_cast<int64_t>(chunk_.size());
      const int64_t bytes = std::min(room, piece.bytes() - at);
      chunk_.insert(chunk_.end(), data + at, data + at + bytes);
      at += bytes;
      if (bytes == room) PutChunk();
    }
    chunk_.resize(static_cast<size_t>(RoundUp(static_cast<int64_t>(chunk_.size()), alignment_)));
    if (chunk_.size() == TEMPER_HASH_CHUNK) PutChunk();
  }

  absl::Status Close() {
    if (!chunk_.empty()) PutChunk();
    out_.close();
    if (!out_) return absl::UnavailableError(absl::StrCat("cannot write ", path_, ": is the disk full?"));
    return absl::OkStatus();
  }

  uint64_t hash() const { return hash_; }  // once it is closed

 private:
  void PutChunk() {
    hash_ = temper_weights_hash_join(hash_, temper_weights_hash_chunk(chunk_.data(), chunk_.size()));
    out_.write(chunk_.data(), static_cast<std::streamsize>(chunk_.size()));
    chunk_.clear();
  }

  const std::string path_;
  std::ofstream out_;
  const int64_t alignment_;  // divides TEMPER_HASH_CHUNK
  std::vector<char> chunk_;
  uint64_t hash_ = 0;
};

}  // namespace

struct PackKernel {
  std::unique_ptr<LoadedModule> module;
  temper_kernel kernel;
  CompiledKernel info;
  DType dtype;  // of what it writes
  Shape shape;

  void Run(const NDArray& physical, NDArray& packed) const {
    if (packed.dtype() == dtype && packed.shape() == shape && packed.data() != nullptr) {
      std::memset(packed.MutableData(), 0, static_cast<size_t>(packed.bytes()));
    } else {
      packed = NDArray(dtype, shape);
    }
    NDArray workspace(DType::kU8, {info.workspace_bytes + info.thread_workspace_bytes});
    void* args[] = {const_cast<void*>(physical.data()), packed.MutableData()};
    temper_launcher serial{RunSerially, 1};
    temper_call_on_host(kernel, args, workspace.MutableData(), &serial);
  }
};

NDArray ToPhysical(const NDArray& logical, const std::vector<int>& perm) {
  if (perm.empty()) return logical;
  const Shape& shape = logical.shape();
  const size_t rank = shape.size();
  const std::vector<int64_t> stride = RowMajorStrides(shape);
  Shape physical;
  for (int axis : perm) physical.push_back(shape[static_cast<size_t>(axis)]);
  NDArray result(logical.dtype(), physical);
  const int64_t size = Info(logical.dtype()).bits / 8;  // 0: packed
  std::vector<int64_t> index(rank, 0);
  const char* from = static_cast<const char*>(logical.data());
  char* to = static_cast<char*>(result.MutableData());
  for (int64_t i = 0; i < result.size(); ++i) {
    int64_t offset = 0;
    for (size_t p = 0; p < rank; ++p) offset += index[p] * stride[static_cast<size_t>(perm[p])];
    if (size == 0)
      StoreBits(logical.dtype(), to, i, LoadBits(logical.dtype(), from, offset));
    else
      std::memcpy(to + i * size, from + offset * size, static_cast<size_t>(size));
    for (size_t p = rank; p-- > 0 && ++index[p] == physical[p];) index[p] = 0;
  }
  return result;
}

Target PackingTarget() {
  const absl::StatusOr<Target> common = ParseTarget(HostArch() == CpuArch::kArm ? "llvm:armv8-a" : "llvm:x86-64-v3");
  return common.ok() && CheckRunsHere(*common).ok() ? *common : HostTarget();
}

absl::StatusOr<std::shared_ptr<PackKernel>> WeightWriter::KernelFor(const ir::Func& pack) {
  std::shared_ptr<PackKernel>& kernel = packs_[ir::Text(pack)];
  if (kernel != nullptr) return kernel;
  auto made = std::make_shared<PackKernel>();
  TEMPER_ASSIGN_OR_RETURN(const auto compiled, cache_.Compile({"pack", pack}, host_));
  TEMPER_ASSIGN_OR_RETURN(made->module, LoadObject(compiled->code));
  TEMPER_ASSIGN_OR_RETURN(void* symbol, made->module->Symbol("pack"));
  made->kernel = reinterpret_cast<temper_kernel>(symbol);
  made->info = compiled->kernels[0];
  made->dtype = pack.params.back()->dtype;
  made->shape = pack.params.back()->shape;
  return kernel = std::move(made);
}

absl::StatusOr<int64_t> WeightWriter::Add(const NDArray& data, const TensorType& type, const ir::Func& pack) {
  const bool packed = !pack.params.empty();
  std::string layout = absl::StrCat(std::string(Name(data.dtype())), ShapeText(data.shape()), "/",
                                    absl::StrJoin(type.perm, ""), "/", packed ? ir::Text(pack) : "");
  auto [known, is_new] = known_.try_emplace({data.data(), std::move(layout)}, bytes_);
  if (!is_new) return known->second;
  Piece piece{data, type.perm, nullptr};
  int64_t bytes = data.bytes();
  if (packed) {
    TEMPER_ASSIGN_OR_RETURN(piece.pack, KernelFor(pack));
    bytes = BytesOf(piece.pack->dtype, NumElements(piece.pack->shape));
  }
  pieces_.push_back(std::move(piece));
  bytes_ = RoundUp(bytes_ + bytes, alignment_);
  return known->second;
}

absl::StatusOr<uint64_t> WeightWriter::Write(const std::string& path) const {
  WeightFile file(path, alignment_);
  NDArray packed;  // the latest; its memory serves the next of its shape
  for (const Piece& piece : pieces_) {
    const NDArray physical = ToPhysical(piece.data, piece.perm);
    if (piece.pack != nullptr) piece.pack->Run(physical, packed);
    file.Put(piece.pack != nullptr ? packed : physical);
  }
  TEMPER_RETURN_IF_ERROR(file.Close());
  return file.hash();
}

}  // namespace temper
