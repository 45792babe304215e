// Sums of products of pairs of bf16, as AVX512-BF16 makes them: 16 lanes of f32, or fewer.
#include <llvm/IR/IntrinsicsX86.h>
#include <llvm/IR/Module.h>

#include "compiler/codegen/llvm/emitter.h"

namespace temper {

using ir::Expr;
using ir::ExprKind;
using llvm::Value;

std::optional<Emitter::Bf16Factors> Emitter::Bf16FactorsOf(const Expr& e) {
  if (e->kind != ExprKind::kAdd) return std::nullopt;
  Bf16Factors factors;
  for (const Expr& product : e->args) {
    if (product->kind != ExprKind::kMul) return std::nullopt;
    for (size_t i = 0; i < 2; ++i) {
      const Expr& factor = product->args[i];
      const bool widens =
          factor->kind == ExprKind::kCast && factor->dtype == DType::kF32 && factor->args[0]->dtype == DType::kBF16;
      if (!widens) return std::nullopt;
      (i == 0 ? factors.a : factors.b).push_back(factor->args[0]);
    }
  }
  return factors;
}

Value* Emitter::EmitBf16Products(Value* sum, const Expr& e) {
  static const std::map<int64_t, llvm::Intrinsic::ID> kByLanes = {{16, llvm::Intrinsic::x86_avx512bf16_dpbf16ps_512},
                                                                  {8, llvm::Intrinsic::x86_avx512bf16_dpbf16ps_256},
                                                                  {4, llvm::Intrinsic::x86_avx512bf16_dpbf16ps_128}};
  const auto instruction = kByLanes.find(lanes_.count);
  if (instruction == kByLanes.end() || !context_.target.Has("avx512bf16") || lanes_.mask != nullptr) return nullptr;
  const std::optional<Bf16Factors> factors = Bf16FactorsOf(e);
  if (!factors.has_value()) return nullptr;
  Value *a = LoadTogether(factors->a, b_.getInt32Ty()), *b = LoadTogether(factors->b, b_.getInt32Ty());
  if (a == nullptr || b == nullptr) return nullptr;
  auto* pairs = llvm::FixedVectorType::get(b_.getBFloatTy(), static_cast<unsigned>(2 * lanes_.count));
  return b_.CreateIntrinsic(instruction->second, {},
                            {Spread(sum), b_.CreateBitCast(Spread(a), pairs), b_.CreateBitCast(Spread(b), pairs)});
}

}  // namespace temper
