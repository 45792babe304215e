#include "compiler/codegen/llvm/math.h"

#include <llvm/Analysis/VectorUtils.h>
#include <llvm/IR/Constants.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsAArch64.h>
#include <llvm/IR/IntrinsicsX86.h>
#include <llvm/IR/Module.h>

#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <string>

namespace temper {
namespace {

using ir::ExprKind;
using llvm::Value;

// Arithmetic on f32 scalars or vectors of one shape, with constants spread over it.
class F32 {
 public:
  F32(llvm::IRBuilder<>& b, Value* like)
      : b_(b),
        type_(like->getType()),
        int_type_(type_->isVectorTy()
                      ? static_cast<llvm::Type*>(llvm::VectorType::getInteger(llvm::cast<llvm::VectorType>(type_)))
                      : b.getInt32Ty()) {}

  Value* Const(double v) const { return llvm::ConstantFP::get(type_, v); }
  Value* IntConst(int64_t v) const { return llvm::ConstantInt::getSigned(int_type_, v); }
  Value* Bits(Value* v) const { return b_.CreateBitCast(v, int_type_); }
  Value* FromBits(Value* v) const { return b_.CreateBitCast(v, type_); }
  Value* MulAdd(Value* x, Value* y, Value* z) const { return b_.CreateFAdd(b_.CreateFMul(x, y), z); }
  Value* MulAdd(Value* x, double y, Value* z) const { return MulAdd(x, Const(y), z); }
  // Coefficients from the constant term up.
  Value* Polynomial(Value* x, std::initializer_list<double> coefficients) const {
    Value* sum = nullptr;
    for (auto c = std::rbegin(coefficients); c != std::rend(coefficients); ++c) {
      sum = sum == nullptr ? Const(*c) : MulAdd(sum, x, Const(*c));
    }
    return sum;
  }
  // Bounds that let NaN through.
  Value* AtMost(Value* x, double bound) const {
    return b_.CreateSelect(b_.CreateFCmpOGT(x, Const(bound)), Const(bound), x);
  }
  Value* AtLeast(Value* x, double bound) const {
    return b_.CreateSelect(b_.CreateFCmpOLT(x, Const(bound)), Const(bound), x);
  }
  Value* PowerOfTwo(Value* n) const { return FromBits(b_.CreateShl(b_.CreateAdd(n, IntConst(127)), IntConst(23))); }
  llvm::IRBuilder<>& b() const { return b_; }
  llvm::Type* int_type() const { return int_type_; }
  llvm::Type* type() const { return type_; }

 private:
  llvm::IRBuilder<>& b_;
  llvm::Type* type_;
  llvm::Type* int_type_;
};

// Whether the function under construction has `feature` ("+avx512f").
bool Has(llvm::IRBuilder<>& b, const char* feature) {
  const llvm::Function* function = b.GetInsertBlock()->getParent();
  llvm::SmallVector<llvm::StringRef, 64> features;
  function->getFnAttribute("target-features").getValueAsString().split(features, ',');
  return llvm::is_contained(features, llvm::StringRef(feature));
}

// `f` of every register of so many lanes of `values`, which have one type; null where the target has no such registers
// or the values do not fill them.
Value* InRegisters(llvm::IRBuilder<>& b, llvm::ArrayRef<Value*> values, unsigned width, const char* feature,
                   const std::function<Value*(llvm::ArrayRef<Value*> parts)>& f) {
  auto* type = llvm::dyn_cast<llvm::FixedVectorType>(values[0]->getType());
  if (type == nullptr || type->getNumElements() % width != 0 || !Has(b, feature)) return nullptr;
  std::vector<Value*> results;
  for (unsigned first = 0; first < type->getNumElements(); first += width) {
    std::vector<int> lanes(width);
    std::iota(lanes.begin(), lanes.end(), static_cast<int>(first));
    std::vector<Value*> parts;
    for (Value* v : values) parts.push_back(type->getNumElements() == width ? v : b.CreateShuffleVector(v, lanes));
    results.push_back(f(parts));
  }
  return llvm::concatenateVectors(b, results);
}

// The polynomials below are least-maximum-error fits, made for these ranges with coefficients that f32 has.

constexpr double kRoundToInteger = 12582912.0;  // 1.5 * 2^23: added, it leaves an integer in the low bits

// The bounds beyond which e^x is infinite or 0.
Value* BoundedExponent(const F32& f, Value* x) { return f.AtLeast(f.AtMost(x, 89.0), -104.0); }

// x - n ln(2) for multiples n of a power of two: ln(2) in two numbers, the first so short that its product is exact.
Value* WithoutMultiple(const F32& f, Value* x, Value* n) {
  return f.MulAdd(n, 2.12194440054690583e-4, f.MulAdd(n, -0.693359375, x));
}

constexpr char kTables[] = "+avx512dq", kShortTables[] = "+avx2";  // what allows to look up 16 powers, or 8

// e^x = 2^n e^r with |r| <= ln(2)/32: n is a multiple of 1/16, whose fraction picks its power from a register and whose
// floor is what vscalefps scales by. Where x is infinite or n too large for its fraction, r is anything: it is cut to
// [-1, 1], where the power stays positive and finite, and n alone makes it infinite, 0 or NaN.
Value* ExpF32InRegister(llvm::IRBuilder<>& b, Value* x) {
  constexpr double kRoundToSixteenth = kRoundToInteger / 16;
  constexpr int kSteps = 16, kSmallerMagnitude = 2, kCurrentRounding = 4;
  const F32 f(b, x);
  const auto of_register = [&](llvm::Intrinsic::ID instruction, llvm::ArrayRef<Value*> operands) {
    std::vector<Value*> all(operands.begin(), operands.end());
    all.insert(all.end(), {llvm::PoisonValue::get(x->getType()), b.getInt16(0xffff), b.getInt32(kCurrentRounding)});
    return b.CreateIntrinsic(instruction, {}, all);
  };
  Value* shifted = f.MulAdd(x, 1.44269504088896341, f.Const(kRoundToSixteenth));
  Value* n = b.CreateFSub(shifted, f.Const(kRoundToSixteenth));
  Value* r = f.MulAdd(n, -0.693147180559945309, x);  // f32 has ln(2) to 1.9e-9
  r = of_register(llvm::Intrinsic::x86_avx512_mask_range_ps_512, {r, f.Const(1.0), b.getInt32(kSmallerMagnitude)});
  Value* p = b.CreateFMul(r, f.Polynomial(r, {1.0, 0.50001639127731323, 0.16667062044143677}));
  std::vector<llvm::Constant*> powers;
  for (int i = 0; i < kSteps; ++i)
    powers.push_back(llvm::ConstantFP::get(b.getFloatTy(), std::exp2(static_cast<double>(i) / kSteps)));
  Value* power = b.CreateIntrinsic(llvm::Intrinsic::x86_avx512_permvar_sf_512, {},
                                   {llvm::ConstantVector::get(powers), f.Bits(shifted)});
  return of_register(llvm::Intrinsic::x86_avx512_mask_scalef_ps_512, {f.MulAdd(power, p, power), n});
}

// e^x = 2^n e^r with |r| <= ln(2)/2; the scaling is done in two steps, so that it overflows and underflows as it
// should.
Value* ExpF32(const F32& f, Value* x) {
  llvm::IRBuilder<>& b = f.b();
  const auto in_register = [&](llvm::ArrayRef<Value*> parts) { return ExpF32InRegister(b, parts[0]); };
  if (Value* y = InRegisters(b, x, 16, kTables, in_register)) return y;
  x = BoundedExponent(f, x);
  Value* shifted = f.MulAdd(x, 1.44269504088896341, f.Const(kRoundToInteger));
  Value* n = b.CreateFSub(shifted, f.Const(kRoundToInteger));
  Value* r = WithoutMultiple(f, x, n);
  Value* p = f.Polynomial(r, {1.0, 1.0, 0.49999991059303284, 0.16666519641876221, 0.041668955236673355,
                              0.00836885161697865, 0.0013783585745841265});
  // Of NaN any integer: p is NaN too. The bits of `shifted` hold the same number, but LLVM searches them, and all that
  // x is made of, for known bits: almost a fifth of all instructions that the compilation of EfficientNet-B0 takes.
  Value* exponent = b.CreateFreeze(b.CreateFPToSI(n, f.int_type()));
  Value* half = b.CreateAShr(exponent, f.IntConst(1));
  return b.CreateFMul(b.CreateFMul(p, f.PowerOfTwo(half)), f.PowerOfTwo(b.CreateSub(exponent, half)));
}

// 1 + e^x = 1 + 2^n e^r with |r| <= ln(2)/16: n is a multiple of 1/8, whose fraction picks its power from a register,
// and whose floor is added to that power's exponent. Beside 1 no small e^x counts, so that x is cut where 2^n would
// turn denormal; 2^n is infinite from x = 88.68 on, a little before e^x is.
Value* OnePlusExpF32InRegister(llvm::IRBuilder<>& b, Value* x) {
  constexpr int kSteps = 8, kToExponent = 20;  // 2^23 for each kSteps
  constexpr double kRoundToEighth = kRoundToInteger / kSteps;
  const F32 f(b, x);
  x = f.AtLeast(f.AtMost(x, 88.75), -87.0);
  Value* shifted = f.MulAdd(x, 1.44269504088896341, f.Const(kRoundToEighth));
  Value* n = b.CreateFSub(shifted, f.Const(kRoundToEighth));
  Value* r = f.MulAdd(n, -0.693147180559945309, x);  // f32 has ln(2) to 1.9e-9
  Value* p = f.Polynomial(r, {1.0, 1.0, 0.50006473064422607, 0.16668230295181274});
  std::vector<uint32_t> powers;  // less what their own numbers add to the exponent
  for (uint32_t i = 0; i < kSteps; ++i)
    powers.push_back(std::bit_cast<uint32_t>(std::exp2(static_cast<float>(i) / kSteps)) - (i << kToExponent));
  Value* number = b.CreateFreeze(f.Bits(shifted));
  Value* power = b.CreateIntrinsic(llvm::Intrinsic::x86_avx2_permd, {},
                                   {llvm::ConstantDataVector::get(b.getContext(), powers), number});
  power = f.FromBits(b.CreateAdd(power, b.CreateShl(number, kToExponent)));
  return f.MulAdd(power, p, f.Const(1.0));
}

// ln(x) = e ln(2) + ln(m) with sqrt(1/2) <= m < sqrt(2).
Value* LogF32(const F32& f, Value* x) {
  llvm::IRBuilder<>& b = f.b();
  const double infinity = std::numeric_limits<double>::infinity();
  Value* denormal = b.CreateFCmpOLT(x, f.Const(1.17549435e-38));
  Value* bits = f.Bits(b.CreateSelect(denormal, b.CreateFMul(x, f.Const(8388608.0)), x));
  Value* e = b.CreateAShr(b.CreateSub(bits, f.IntConst(0x3f3504f3)), f.IntConst(23));
  Value* m = f.FromBits(b.CreateSub(bits, b.CreateShl(e, f.IntConst(23))));
  Value* exponent = b.CreateSIToFP(e, f.type());
  exponent = b.CreateFSub(exponent, b.CreateSelect(denormal, f.Const(23.0), f.Const(0.0)));
  Value* r = b.CreateFSub(m, f.Const(1.0));
  Value* square = b.CreateFMul(r, r);
  Value* p = f.Polynomial(r, {0.3333333134651184, -0.250008225440979, 0.20001226663589478, -0.16623356938362122,
                              0.14201761782169342, -0.131601944565773, 0.12761549651622772, -0.07634429633617401});
  Value* y = b.CreateFMul(b.CreateFMul(r, square), p);
  y = f.MulAdd(exponent, -2.12194440054690583e-4, y);
  y = f.MulAdd(square, -0.5, y);
  y = f.MulAdd(exponent, 0.693359375, b.CreateFAdd(r, y));
  Value* zero = b.CreateFCmpOEQ(x, f.Const(0.0));
  Value* not_positive = b.CreateSelect(zero, f.Const(-infinity), f.Const(std::nan("")));
  y = b.CreateSelect(b.CreateFCmpOEQ(x, f.Const(infinity)), x, y);
  return b.CreateSelect(b.CreateFCmpOGT(x, f.Const(0.0)), y, not_positive);
}

// E / (E + 2) with E = e^2x - 1 = 2^n (e^r - 1) + (2^n - 1), as accurate near 0 as elsewhere. 1 from 9.02 on.
Value* TanhF32(const F32& f, Value* x) {
  llvm::IRBuilder<>& b = f.b();
  Value* y = f.AtLeast(f.AtMost(x, 9.02), -9.02);
  y = b.CreateFAdd(y, y);
  Value* shifted = f.MulAdd(y, 1.44269504088896341, f.Const(kRoundToInteger));
  Value* n = b.CreateFSub(shifted, f.Const(kRoundToInteger));
  Value* r = f.MulAdd(n, -0.693147180559945309, y);
  Value* p = f.Polynomial(r, {0.49999997019767761, 0.16666541993618011, 0.041667494922876358, 0.0083667254075407982,
                              0.0013865485088899732});
  p = f.MulAdd(b.CreateFMul(r, r), p, r);
  Value* power = f.FromBits(b.CreateShl(b.CreateAdd(f.Bits(shifted), f.IntConst(127)), f.IntConst(23)));
  Value* e = f.MulAdd(power, p, b.CreateFSub(power, f.Const(1.0)));
  Value* result = b.CreateFDiv(e, b.CreateFAdd(e, f.Const(2.0)));
  return b.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, result, x);  // of zeros
}

// Up to 1 a polynomial; beyond, 1 - q^4 with a polynomial q for the fourth root of 1 - erf, up to 4, where this is 1.
Value* ErfF32(const F32& f, Value* x) {
  llvm::IRBuilder<>& b = f.b();
  Value* z = b.CreateFMul(x, x);
  Value* p = f.Polynomial(z, {0.128379122491192, -0.376123261815305, 0.112801800845023, -0.0267113107034515,
                              0.00491755083130455, -5.63142008440363e-4});
  Value* near = f.MulAdd(p, x, x);
  Value* magnitude = b.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x);
  Value* u = f.AtMost(f.MulAdd(magnitude, 0.625, f.Const(-1.5625)), 0.9375);
  Value* q = f.Polynomial(
      u, {0.142031945838921, -0.304108442731960, 0.239695302610952, -0.0502316889202803, -0.0419296287229379,
          0.0289434113135567, -8.61241285523876e-5, -0.00714958831643787, -9.47371137583549e-4});
  Value* square = b.CreateFMul(q, q);
  Value* far = f.MulAdd(b.CreateFNeg(square), square, f.Const(1.0));
  far = b.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, far, x);
  // NaN comes out of the first.
  return b.CreateSelect(b.CreateFCmpOGT(magnitude, f.Const(1.0)), far, near);
}

llvm::FunctionCallee LibmFunction(llvm::IRBuilder<>& b, std::string name, llvm::Type* scalar, int args) {
  if (scalar->isFloatTy()) name += "f";
  llvm::Module* module = b.GetInsertBlock()->getModule();
  std::vector<llvm::Type*> types(args, scalar);
  llvm::FunctionCallee callee = module->getOrInsertFunction(name, llvm::FunctionType::get(scalar, types, false));
  auto* function = llvm::cast<llvm::Function>(callee.getCallee());
  function->setDoesNotThrow();
  function->setDoesNotAccessMemory();
  function->setWillReturn();
  return callee;
}

Value* CallLibm(llvm::IRBuilder<>& b, const std::string& name, llvm::ArrayRef<Value*> args) {
  llvm::Type* type = args[0]->getType();
  llvm::FunctionCallee callee = LibmFunction(b, name, type->getScalarType(), static_cast<int>(args.size()));
  auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(type);
  // Not to be recognised: LLVM would turn pairs and special cases into calls of functions that no loader promises.
  auto call = [&](llvm::ArrayRef<Value*> operands) {
    llvm::CallInst* c = b.CreateCall(callee, operands);
    c->addFnAttr(llvm::Attribute::NoBuiltin);
    return c;
  };
  if (vector == nullptr) return call(args);
  Value* result = llvm::PoisonValue::get(type);
  for (unsigned lane = 0; lane < vector->getNumElements(); ++lane) {
    std::vector<Value*> scalars;
    for (Value* a : args) scalars.push_back(b.CreateExtractElement(a, lane));
    result = b.CreateInsertElement(result, call(scalars), lane);
  }
  return result;
}

const char* LibmName(ExprKind kind) {
  switch (kind) {
    case ExprKind::kExp:
      return "exp";
    case ExprKind::kLog:
      return "log";
    case ExprKind::kTanh:
      return "tanh";
    case ExprKind::kErf:
      return "erf";
    case ExprKind::kSin:
      return "sin";
    default:
      return "cos";
  }
}

// sin, or cos. x = n pi/2 + r, and n says which polynomial of r it is and its sign.
Value* SinF32(const F32& f, Value* x, bool cosine) {
  llvm::IRBuilder<>& b = f.b();
  Value* shifted = f.MulAdd(x, 0.636619772367581343, f.Const(kRoundToInteger));
  Value* n = b.CreateFSub(shifted, f.Const(kRoundToInteger));
  // pi/2 in three parts, of which products with a number of 13 bits are exact.
  Value* r = f.MulAdd(n, -1.5703125, x);
  r = f.MulAdd(n, -4.837512969970703125e-4, r);
  r = f.MulAdd(n, -7.549789948768648e-8, r);
  Value* z = b.CreateFMul(r, r);
  Value* sine = f.Polynomial(z, {-1.6666654611e-1, 8.3321608736e-3, -1.9515295891e-4});
  sine = f.MulAdd(b.CreateFMul(r, z), sine, r);
  Value* cosine_of_r = f.Polynomial(z, {4.166664568298827e-2, -1.388731625493765e-3, 2.443315711809948e-5});
  cosine_of_r = f.MulAdd(b.CreateFMul(z, z), cosine_of_r, f.MulAdd(z, -0.5, f.Const(1.0)));
  Value* quarter = b.CreateFreeze(f.Bits(shifted));
  if (cosine) quarter = b.CreateAdd(quarter, f.IntConst(1));
  Value* is_sine = b.CreateICmpEQ(b.CreateAnd(quarter, f.IntConst(1)), f.IntConst(0));
  Value* sign = b.CreateShl(b.CreateAnd(quarter, f.IntConst(2)), 30);
  return f.FromBits(b.CreateXor(f.Bits(b.CreateSelect(is_sine, sine, cosine_of_r)), sign));
}

// Of numbers whose quarters of a turn are not exact, libm's: it has pi in all the digits that they take. Each lane is
// what it is alone: those beside it may be behind the end of what counts, and anything.
Value* SinOrLibm(const F32& f, Value* x, ExprKind kind) {
  constexpr double kLargest = 8192;
  llvm::IRBuilder<>& b = f.b();
  Value* computed = SinF32(f, x, kind == ExprKind::kCos);
  Value* large = b.CreateFCmpOGT(b.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x), f.Const(kLargest));
  Value* any = large->getType()->isVectorTy() ? b.CreateOrReduce(large) : large;
  llvm::BasicBlock* near = b.GetInsertBlock();
  const auto block = [&](const char* name) {
    return llvm::BasicBlock::Create(b.getContext(), name, near->getParent());
  };
  llvm::BasicBlock *far = block("far"), *after = block("after");
  b.CreateCondBr(any, far, after);
  b.SetInsertPoint(far);
  Value* called = b.CreateSelect(large, CallLibm(b, LibmName(kind), {x}), computed);
  b.CreateBr(after);
  b.SetInsertPoint(after);
  llvm::PHINode* result = b.CreatePHI(x->getType(), 2);
  result->addIncoming(called, far);
  result->addIncoming(computed, near);
  return result;
}

bool IsConstant(Value* v, double what) {
  auto* constant = llvm::dyn_cast<llvm::Constant>(v);
  if (constant != nullptr && v->getType()->isVectorTy()) constant = constant->getSplatValue();
  auto* fp = llvm::dyn_cast_or_null<llvm::ConstantFP>(constant);
  return fp != nullptr && fp->isExactlyValue(what);
}

}  // namespace

Value* EmitUnaryMath(llvm::IRBuilder<>& b, ExprKind kind, Value* x) {
  const bool f32 = x->getType()->getScalarType()->isFloatTy();
  const F32 f(b, x);
  switch (kind) {
    case ExprKind::kExp:
      return f32 ? ExpF32(f, x) : CallLibm(b, LibmName(kind), {x});
    case ExprKind::kLog:
      return f32 ? LogF32(f, x) : CallLibm(b, LibmName(kind), {x});
    case ExprKind::kTanh:
      return f32 ? TanhF32(f, x) : CallLibm(b, LibmName(kind), {x});
    case ExprKind::kErf:
      return f32 ? ErfF32(f, x) : CallLibm(b, LibmName(kind), {x});
    case ExprKind::kSin:
    case ExprKind::kCos:
      return f32 ? SinOrLibm(f, x, kind) : CallLibm(b, LibmName(kind), {x});
    case ExprKind::kSqrt:
      return b.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, x);
    case ExprKind::kAbs:
      return b.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x);
    case ExprKind::kFloor:
      return b.CreateUnaryIntrinsic(llvm::Intrinsic::floor, x);
    case ExprKind::kCeil:
      return b.CreateUnaryIntrinsic(llvm::Intrinsic::ceil, x);
    case ExprKind::kRound:
      return b.CreateUnaryIntrinsic(llvm::Intrinsic::roundeven, x);
    default:
      return nullptr;
  }
}

Value* EmitOnePlusExp(llvm::IRBuilder<>& b, Value* x) {
  if (x->getType()->getScalarType()->isFloatTy() && !Has(b, kTables)) {
    const auto in_register = [&](llvm::ArrayRef<Value*> parts) { return OnePlusExpF32InRegister(b, parts[0]); };
    if (Value* y = InRegisters(b, x, 8, kShortTables, in_register)) return y;
  }
  return b.CreateFAdd(llvm::ConstantFP::get(x->getType(), 1.0), EmitUnaryMath(b, ExprKind::kExp, x));
}

Value* EmitPow(llvm::IRBuilder<>& b, Value* x, Value* y) {
  Value* one = llvm::ConstantFP::get(x->getType(), 1.0);
  if (IsConstant(y, 1.0)) return x;
  if (IsConstant(y, 2.0)) return b.CreateFMul(x, x);
  if (IsConstant(y, 3.0)) return b.CreateFMul(b.CreateFMul(x, x), x);
  if (IsConstant(y, -1.0)) return b.CreateFDiv(one, x);
  if (IsConstant(y, 0.5)) return b.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, x);
  if (IsConstant(y, -0.5)) return b.CreateFDiv(one, b.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, x));
  return CallLibm(b, "pow", {x, y});
}

Value* EmitMax(llvm::IRBuilder<>& b, Value* a, Value* c, bool is_unsigned) {
  if (llvm::isa<llvm::Constant>(c)) std::swap(a, c);
  Value* greater = a->getType()->isFPOrFPVectorTy() ? b.CreateFCmpOGT(a, c)
                   : is_unsigned                    ? b.CreateICmpUGT(a, c)
                                                    : b.CreateICmpSGT(a, c);
  return b.CreateSelect(greater, a, c);
}

Value* EmitMin(llvm::IRBuilder<>& b, Value* a, Value* c, bool is_unsigned) {
  if (llvm::isa<llvm::Constant>(c)) std::swap(a, c);
  Value* less = a->getType()->isFPOrFPVectorTy() ? b.CreateFCmpOLT(a, c)
                : is_unsigned                    ? b.CreateICmpULT(a, c)
                                                 : b.CreateICmpSLT(a, c);
  return b.CreateSelect(less, a, c);
}

namespace {

constexpr unsigned kArmLanes = 4;  // of 32 bits in a register of 64-bit ARM

// x . y + sum of bytes, where the second of each product is signed: in one instruction, or by that of two unsigned
// bytes in which y + 128 takes the place of y. The sum of x's bytes, which is then too much 128 times, is the same for
// all columns of a tile.
Value* ArmDotOfBytes(llvm::IRBuilder<>& b, Value* x, Value* y, Value* sum, bool seven_bits) {
  using namespace llvm::Intrinsic;
  const auto dot = [&](llvm::Intrinsic::ID id, llvm::ArrayRef<Value*> operands) {
    auto* bytes = llvm::FixedVectorType::get(b.getInt8Ty(), 4 * kArmLanes);
    auto* words = llvm::FixedVectorType::get(b.getInt32Ty(), kArmLanes);
    return b.CreateIntrinsic(id, {words, bytes},
                             {operands[0], b.CreateBitCast(operands[1], bytes), b.CreateBitCast(operands[2], bytes)});
  };
  if (Has(b, "+i8mm")) return dot(aarch64_neon_usdot, {sum, x, y});
  if (seven_bits) return dot(aarch64_neon_sdot, {sum, x, y});
  Value* offset = llvm::ConstantInt::get(y->getType(), 0x80808080);
  Value* too_much = dot(aarch64_neon_udot, {llvm::Constant::getNullValue(sum->getType()), x, offset});
  return b.CreateSub(dot(aarch64_neon_udot, {sum, x, b.CreateXor(y, offset)}), too_much);
}

// The products of both halves, as i16, added to the sum.
Value* ArmDotOfWords(llvm::IRBuilder<>& b, Value* x, Value* y, Value* sum) {
  auto* halves = llvm::FixedVectorType::get(b.getInt16Ty(), kArmLanes);
  for (const uint64_t shift : {0, 16}) {
    const auto half = [&](Value* v) { return b.CreateTrunc(shift == 0 ? v : b.CreateLShr(v, shift), halves); };
    sum =
        b.CreateAdd(sum, b.CreateIntrinsic(llvm::Intrinsic::aarch64_neon_smull, {sum->getType()}, {half(x), half(y)}));
  }
  return sum;
}

// x . y + sum in one instruction, or as few as the target has for it; null where it has none, or none of this width.
Value* DotInstruction(llvm::IRBuilder<>& b, ExprKind kind, Value* x, Value* y, Value* sum, bool seven_bits) {
  struct Instruction {
    unsigned lanes;
    const char *feature, *and_feature;
    llvm::Intrinsic::ID of_words, of_bytes;
  };
  using namespace llvm::Intrinsic;
  constexpr Instruction kInstructions[] = {
      {16, "+avx512vnni", "+avx512f", x86_avx512_vpdpwssd_512, x86_avx512_vpdpbusd_512},
      {8, "+avx512vnni", "+avx512vl", x86_avx512_vpdpwssd_256, x86_avx512_vpdpbusd_256},
      {8, "+avxvnni", "+avx2", x86_avx512_vpdpwssd_256, x86_avx512_vpdpbusd_256}};
  auto* type = llvm::dyn_cast<llvm::FixedVectorType>(x->getType());
  for (const Instruction& i : kInstructions) {
    if (type == nullptr || type->getNumElements() != i.lanes || !Has(b, i.feature) || !Has(b, i.and_feature)) continue;
    return b.CreateIntrinsic(kind == ExprKind::kDot8 ? i.of_bytes : i.of_words, {}, {sum, x, y});
  }
  return InRegisters(b, {x, y, sum}, kArmLanes, kind == ExprKind::kDot8 ? "+dotprod" : "+neon",
                     [&](llvm::ArrayRef<Value*> parts) {
                       return kind == ExprKind::kDot8 ? ArmDotOfBytes(b, parts[0], parts[1], parts[2], seven_bits)
                                                      : ArmDotOfWords(b, parts[0], parts[1], parts[2]);
                     });
}

// The products of both halves, as i16, added.
Value* DotOfWords(llvm::IRBuilder<>& b, Value* x, Value* y) {
  struct Instruction {
    unsigned lanes;
    const char* feature;  // null: every x86-64 has it
    llvm::Intrinsic::ID id;
  };
  using namespace llvm::Intrinsic;
  constexpr Instruction kInstructions[] = {
      {16, "+avx512bw", x86_avx512_pmaddw_d_512}, {8, "+avx2", x86_avx2_pmadd_wd}, {4, nullptr, x86_sse2_pmadd_wd}};
  auto* type = llvm::dyn_cast<llvm::FixedVectorType>(x->getType());
  for (const Instruction& i : kInstructions) {
    if (type == nullptr || type->getNumElements() != i.lanes) continue;
    if (i.feature != nullptr && !Has(b, i.feature)) continue;
    auto* halves = llvm::FixedVectorType::get(b.getInt16Ty(), 2 * i.lanes);
    return b.CreateIntrinsic(i.id, {}, {b.CreateBitCast(x, halves), b.CreateBitCast(y, halves)});
  }
  const auto lower = [&](Value* v) { return b.CreateAShr(b.CreateShl(v, 16), 16); };
  return b.CreateAdd(b.CreateMul(lower(x), lower(y)), b.CreateMul(b.CreateAShr(x, 16), b.CreateAShr(y, 16)));
}

// The products of four bytes, added, where none of x's has its highest bit: two of them do not leave an i16. Null where
// the target or the width has no such instruction.
Value* DotOfSevenBits(llvm::IRBuilder<>& b, Value* x, Value* y) {
  struct Instruction {
    unsigned lanes;
    const char* feature;
    llvm::Intrinsic::ID id;
  };
  using namespace llvm::Intrinsic;
  constexpr Instruction kInstructions[] = {{16, "+avx512bw", x86_avx512_pmaddubs_w_512},
                                           {8, "+avx2", x86_avx2_pmadd_ub_sw},
                                           {4, "+ssse3", x86_ssse3_pmadd_ub_sw_128}};
  auto* type = llvm::dyn_cast<llvm::FixedVectorType>(x->getType());
  for (const Instruction& i : kInstructions) {
    if (type == nullptr || type->getNumElements() != i.lanes || !Has(b, i.feature)) continue;
    auto* bytes = llvm::FixedVectorType::get(b.getInt8Ty(), 4 * i.lanes);
    Value* pairs = b.CreateIntrinsic(i.id, {}, {b.CreateBitCast(x, bytes), b.CreateBitCast(y, bytes)});
    return DotOfWords(b, b.CreateBitCast(pairs, type), llvm::ConstantInt::get(pairs->getType(), 1));
  }
  return nullptr;
}

// Of i32, the bytes with even places, or those with odd ones, as two i16.
Value* BytesOf(llvm::IRBuilder<>& b, Value* v, bool odd, bool is_signed) {
  constexpr uint64_t kLowerBytes = 0x00ff00ff, kSigns = 0x00800080;
  Value* bytes = b.CreateAnd(odd ? b.CreateLShr(v, 8) : v, kLowerBytes);
  if (!is_signed) return bytes;
  // With the sign flipped and 128 taken away from each half, none of which borrows from its neighbour.
  Value* flipped = b.CreateXor(bytes, kSigns);
  auto* type = llvm::dyn_cast<llvm::FixedVectorType>(v->getType());
  const unsigned lanes = type == nullptr ? 1 : type->getNumElements();
  llvm::Type* halves = llvm::FixedVectorType::get(b.getInt16Ty(), 2 * lanes);
  Value* less = b.CreateSub(b.CreateBitCast(flipped, halves), llvm::ConstantInt::get(halves, 0x80));
  return b.CreateBitCast(less, v->getType());
}

}  // namespace

Value* EmitDot(llvm::IRBuilder<>& b, ExprKind kind, Value* x, Value* y, Value* sum, bool seven_bits) {
  if (sum == nullptr) sum = llvm::Constant::getNullValue(x->getType());
  if (Value* dot = DotInstruction(b, kind, x, y, sum, seven_bits)) return dot;
  if (kind == ExprKind::kDot16) return b.CreateAdd(sum, DotOfWords(b, x, y));
  Value* dot = seven_bits ? DotOfSevenBits(b, x, y) : nullptr;
  if (dot != nullptr) return b.CreateAdd(sum, dot);
  for (bool odd : {false, true}) {
    sum = EmitDot(b, ExprKind::kDot16, BytesOf(b, x, odd, false), BytesOf(b, y, odd, true), sum, false);
  }
  return sum;
}

}  // namespace temper
