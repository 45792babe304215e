// An array of scope `register`: a set of variables, each a vector along the last dimension (or a scalar), that become
// SSA values. Positions are constants.
#pragma once

#include <llvm/IR/IRBuilder.h>

#include <string>
#include <vector>

namespace temper {

class RegisterArray {
 public:
  // `size` elements in rows of `columns`. `granule`: the widest vector that accesses use; rows are cut into powers of
  // two up to it. Allocas go to the start of the function's entry block.
  RegisterArray(llvm::IRBuilder<>& b, const std::string& name, llvm::Type* element, int64_t size, int64_t columns,
                int64_t granule);

  int64_t size() const { return size_; }  // elements
  // Forgets what it holds: where a condition leaves stores out, older values would be kept in registers until then.
  void Clear(llvm::IRBuilder<>& b) const;
  // `count` elements from flat position `first`, `stride` apart; all within the array. A scalar where count is 1.
  llvm::Value* Load(llvm::IRBuilder<>& b, int64_t first, int64_t count, int64_t stride) const;
  void Store(llvm::IRBuilder<>& b, int64_t first, int64_t count, int64_t stride, llvm::Value* value) const;

 private:
  struct Chunk {
    int64_t base, length;  // columns
  };
  struct Place {
    llvm::Value* variable;
    llvm::Type* type;
    int64_t lane, length;
  };
  Place Find(int64_t position) const;

  llvm::Type* element_;
  int64_t columns_, size_;
  std::vector<Chunk> chunks_;                 // of a row
  std::vector<llvm::AllocaInst*> variables_;  // row-major: row * chunks + chunk
};

}  // namespace temper
