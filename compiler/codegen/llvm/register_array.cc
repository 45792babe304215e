#include "compiler/codegen/llvm/register_array.h"

#include <llvm/IR/Constants.h>
#include <llvm/IR/Function.h>

#include <algorithm>

#include "compiler/codegen/llvm/plan.h"

namespace temper {

RegisterArray::RegisterArray(llvm::IRBuilder<>& b, const std::string& name, llvm::Type* element, int64_t size,
                             int64_t columns, int64_t granule)
    : element_(element), columns_(columns), size_(size) {
  for (const VectorPiece& p : PowerOfTwoPieces(columns_, granule)) chunks_.push_back({p.base, p.length});
  llvm::IRBuilder<>::InsertPointGuard guard(b);
  llvm::BasicBlock& entry = b.GetInsertBlock()->getParent()->getEntryBlock();
  b.SetInsertPoint(&entry, entry.begin());
  const int64_t rows = columns_ == 0 ? 0 : size_ / columns_;
  for (int64_t row = 0; row < rows; ++row) {
    for (const Chunk& c : chunks_) {
      llvm::Type* type = c.length == 1 ? element : llvm::FixedVectorType::get(element, static_cast<unsigned>(c.length));
      variables_.push_back(b.CreateAlloca(type, nullptr, name));
    }
  }
}

void RegisterArray::Clear(llvm::IRBuilder<>& b) const {
  for (llvm::AllocaInst* variable : variables_)
    b.CreateStore(llvm::PoisonValue::get(variable->getAllocatedType()), variable);
}

RegisterArray::Place RegisterArray::Find(int64_t position) const {
  const int64_t row = position / columns_, column = position % columns_;
  auto after = std::ranges::upper_bound(chunks_, column, {}, &Chunk::base);
  const Chunk& chunk = *(after - 1);
  const size_t index = static_cast<size_t>(row) * chunks_.size() + static_cast<size_t>(&chunk - chunks_.data());
  llvm::Type* type =
      chunk.length == 1 ? element_ : llvm::FixedVectorType::get(element_, static_cast<unsigned>(chunk.length));
  return {variables_[index], type, column - chunk.base, chunk.length};
}

llvm::Value* RegisterArray::Load(llvm::IRBuilder<>& b, int64_t first, int64_t count, int64_t stride) const {
  auto element = [&](int64_t position) -> llvm::Value* {
    const Place p = Find(position);
    llvm::Value* whole = b.CreateLoad(p.type, p.variable);
    return p.length == 1 ? whole : b.CreateExtractElement(whole, static_cast<uint64_t>(p.lane));
  };
  if (count == 1) return element(first);
  const Place p = Find(first);
  if (stride == 1 && p.lane == 0 && p.length == count) return b.CreateLoad(p.type, p.variable);
  llvm::Value* result = llvm::PoisonValue::get(llvm::FixedVectorType::get(element_, static_cast<unsigned>(count)));
  for (int64_t i = 0; i < count; ++i) {
    result = b.CreateInsertElement(result, element(first + i * stride), static_cast<uint64_t>(i));
  }
  return result;
}

void RegisterArray::Store(llvm::IRBuilder<>& b, int64_t first, int64_t count, int64_t stride,
                          llvm::Value* value) const {
  const Place whole = Find(first);
  if (count > 1 && stride == 1 && whole.lane == 0 && whole.length == count) {
    b.CreateStore(value, whole.variable);
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    const Place p = Find(first + i * stride);
    llvm::Value* element = count == 1 ? value : b.CreateExtractElement(value, static_cast<uint64_t>(i));
    if (p.length > 1)
      element = b.CreateInsertElement(b.CreateLoad(p.type, p.variable), element, static_cast<uint64_t>(p.lane));
    b.CreateStore(element, p.variable);
  }
}

}  // namespace temper
