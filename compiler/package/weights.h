// weights.bin: every constant a kernel reads, in the layout that kernel wants.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "compiler/codegen/compile_cache.h"
#include "compiler/graph/graph.h"
#include "compiler/ops/template.h"
#include "compiler/target/target.h"

namespace temper {

// A logical row-major array in the physical order `perm`.
NDArray ToPhysical(const NDArray& logical, const std::vector<int>& perm);

// What constants are packed with. One for all machines that can run it, so that where a pack computes (Winograd's
// transforms) the same weights get the same bits on each of them.
Target PackingTarget();

class WeightWriter {
 public:
  // Each constant begins at a multiple of `alignment` bytes, which is one of 64.
  explicit WeightWriter(CompileCache& cache, int64_t alignment = 64) : cache_(cache), alignment_(alignment) {}
  // The offset of the constant `data` as operand `type`, run through `pack` (empty Func: only put in physical order).
  // The same bytes of memory in the same layout are kept once.
  absl::StatusOr<int64_t> Add(const NDArray& data, const TensorType& type, const ir::Func& pack);
  int64_t bytes() const { return bytes_; }
  // Packs and writes one constant after another; returns the file's hash.
  absl::StatusOr<uint64_t> Write(const std::string& path) const;

 private:
  struct Piece {
    NDArray data;  // logical
    std::vector<int> perm;
    std::shared_ptr<struct PackKernel> pack;  // null: it is written in physical order
  };
  absl::StatusOr<std::shared_ptr<struct PackKernel>> KernelFor(const ir::Func& pack);

  CompileCache& cache_;
  const int64_t alignment_;
  Target host_ = PackingTarget();  // packing runs here, whatever the package is for
  int64_t bytes_ = 0;
  std::vector<Piece> pieces_;  // one after another, each at a multiple of alignment_
  std::map<std::pair<const void*, std::string>, int64_t> known_;
  std::map<std::string, std::shared_ptr<struct PackKernel>> packs_;  // by text
};

}  // namespace temper
