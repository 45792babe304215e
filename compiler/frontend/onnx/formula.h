// Chains of calls that read as the formulas that they are.
#pragma once

#include "compiler/frontend/onnx/context.h"

namespace temper::onnx_frontend {

// Arithmetic on values of one float type, with numbers of it. The first error stays, and what follows is nothing; ask
// for the status at the end. Lives no longer than the context.
class Formula {
 public:
  Formula(Context& c, DType dtype) : c_(c), dtype_(dtype) {}

  ValueId Call(const char* op, std::vector<ValueId> args, Attrs attrs = {}) {
    if (!status_.ok()) return kNoValue;
    absl::StatusOr<ValueId> v = c_.Call(op, std::move(attrs), std::move(args));
    if (!v.ok()) status_ = v.status();
    return v.value_or(kNoValue);
  }
  ValueId Number(double value) { return c_.Scalar(dtype_, value); }
  ValueId Add(ValueId a, ValueId b) { return Call("add", {a, b}); }
  ValueId Sub(ValueId a, ValueId b) { return Call("sub", {a, b}); }
  ValueId Mul(ValueId a, ValueId b) { return Call("mul", {a, b}); }
  ValueId Div(ValueId a, ValueId b) { return Call("div", {a, b}); }
  ValueId Plus(ValueId v, double value) { return Add(v, Number(value)); }
  ValueId Times(ValueId v, double factor) { return Mul(v, Number(factor)); }
  ValueId Minus(double value, ValueId v) { return Sub(Number(value), v); }
  ValueId Clip(ValueId v, double low, double high) {
    Attrs attrs;
    attrs.Set("min", low);
    attrs.Set("max", high);
    return Call("clip", {v}, std::move(attrs));
  }
  ValueId Cast(ValueId v, const char* to) {
    Attrs attrs;
    attrs.Set("to", std::string(to));
    return Call("cast", {v}, std::move(attrs));
  }

  DType dtype() const { return dtype_; }
  const absl::Status& status() const { return status_; }

 private:
  Context& c_;
  DType dtype_;
  absl::Status status_;
};

}  // namespace temper::onnx_frontend
