#include "compiler/codegen/llvm/add_pairs.h"

#include <llvm/ADT/STLExtras.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/IntrinsicInst.h>
#include <llvm/IR/IntrinsicsX86.h>

#include <algorithm>
#include <limits>

namespace temper {
namespace {

using llvm::Value;

bool IsOne(const Value* v) {
  const auto* constant = llvm::dyn_cast<llvm::Constant>(v);
  const Value* each = constant == nullptr ? nullptr : constant->getSplatValue();
  const auto* number = each == nullptr ? nullptr : llvm::dyn_cast<llvm::ConstantInt>(each);
  return number != nullptr && number->isOne();
}

// The call that widens pairs and adds the two neighbours, read by `v` alone; null if `v` is another value.
llvm::IntrinsicInst* WideningOf(Value* v) {
  auto* call = llvm::dyn_cast<llvm::IntrinsicInst>(v);
  if (call == nullptr || !call->hasOneUse()) return nullptr;
  switch (call->getIntrinsicID()) {
    case llvm::Intrinsic::x86_avx512_pmaddw_d_512:
    case llvm::Intrinsic::x86_avx2_pmadd_wd:
    case llvm::Intrinsic::x86_sse2_pmadd_wd:
      return IsOne(call->getArgOperand(1)) ? call : nullptr;
    default:
      return nullptr;
  }
}

const Value* WithoutCasts(const Value* v) {
  while (const auto* cast = llvm::dyn_cast<llvm::BitCastInst>(v)) v = cast->getOperand(0);
  return v;
}

// What no byte of `v` is above, as unsigned numbers.
int64_t LargestByte(const Value* v) {
  v = WithoutCasts(v);
  const auto* masked = llvm::dyn_cast<llvm::BinaryOperator>(v);
  if (masked != nullptr && masked->getOpcode() == llvm::Instruction::And) v = masked->getOperand(1);
  const auto* constant = llvm::dyn_cast<llvm::Constant>(v);
  const Value* each = constant == nullptr ? nullptr : constant->getSplatValue();
  const auto* bits = each == nullptr ? nullptr : llvm::dyn_cast<llvm::ConstantInt>(each);
  int64_t largest = bits == nullptr ? 255 : 0;
  for (uint64_t rest = bits == nullptr ? 0 : bits->getZExtValue(); rest != 0; rest >>= 8)
    largest = std::max(largest, static_cast<int64_t>(rest & 255));
  return largest;
}

// The magnitude that no i16 of `v` is above.
int64_t LargestPair(const Value* v) {
  constexpr int64_t kAny = int64_t{1} << 15, kLargestFactor = 128;
  v = WithoutCasts(v);
  if (const auto* sum = llvm::dyn_cast<llvm::BinaryOperator>(v))  // one that was made here
    return sum->getOpcode() == llvm::Instruction::Add && sum->hasNoSignedWrap()
               ? LargestPair(sum->getOperand(0)) + LargestPair(sum->getOperand(1))
               : kAny;
  const auto* call = llvm::dyn_cast<llvm::IntrinsicInst>(v);
  if (call == nullptr) return kAny;
  switch (call->getIntrinsicID()) {
    case llvm::Intrinsic::x86_avx512_pmaddubs_w_512:
    case llvm::Intrinsic::x86_avx2_pmadd_ub_sw:
    case llvm::Intrinsic::x86_ssse3_pmadd_ub_sw_128:
      return 2 * kLargestFactor * LargestByte(call->getArgOperand(0));
    default:
      return kAny;
  }
}

struct Sum {
  llvm::Instruction* add = nullptr;
  Value* rest;
  llvm::IntrinsicInst* widened;
};
Sum SumAt(Value* v) {
  auto* add = llvm::dyn_cast<llvm::BinaryOperator>(v);
  if (add == nullptr || add->getOpcode() != llvm::Instruction::Add) return {};
  for (const unsigned i : {1U, 0U}) {
    if (llvm::IntrinsicInst* widened = WideningOf(add->getOperand(i))) return {add, add->getOperand(1 - i), widened};
  }
  return {};
}

// (rest + widened) + widened becomes rest + widened. Whether it does.
bool AddFirst(llvm::Instruction& last) {
  const Sum second = SumAt(&last);
  if (second.add == nullptr || !second.rest->hasOneUse()) return false;
  const Sum first = SumAt(second.rest);
  if (first.add == nullptr || first.add->getParent() != last.getParent()) return false;
  Value *x = first.widened->getArgOperand(0), *y = second.widened->getArgOperand(0);
  if (x->getType() != y->getType() || LargestPair(x) + LargestPair(y) > std::numeric_limits<int16_t>::max())
    return false;
  llvm::IRBuilder<> b(&last);
  Value* pairs = b.CreateNSWAdd(x, y);
  Value* widened = b.CreateIntrinsic(second.widened->getIntrinsicID(), {}, {pairs, second.widened->getArgOperand(1)});
  last.replaceAllUsesWith(b.CreateAdd(first.rest, widened));
  for (llvm::Instruction* dead : {&last, static_cast<llvm::Instruction*>(second.widened), first.add,
                                  static_cast<llvm::Instruction*>(first.widened)})
    dead->eraseFromParent();
  return true;
}

}  // namespace

llvm::PreservedAnalyses AddPairsPass::run(llvm::Function& f, llvm::FunctionAnalysisManager&) {
  bool changed = false;
  for (llvm::BasicBlock& block : f) {
    llvm::SmallVector<llvm::WeakVH> sums;
    for (llvm::Instruction& i : block) {
      if (SumAt(&i).add != nullptr) sums.emplace_back(&i);
    }
    for (const llvm::WeakVH& sum : sums) {
      if (sum != nullptr) changed |= AddFirst(*llvm::cast<llvm::Instruction>(sum));
    }
  }
  if (!changed) return llvm::PreservedAnalyses::all();
  llvm::PreservedAnalyses kept;
  kept.preserveSet<llvm::CFGAnalyses>();
  return kept;
}

}  // namespace temper
