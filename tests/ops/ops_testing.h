// Random operands and calls of one operator, for the tests of this folder.
#pragma once

#include <vector>

#include "base/rng.h"
#include "compiler/ops/op.h"
#include "gtest/gtest.h"

namespace temper {

inline Attrs MakeAttrs(std::vector<std::pair<std::string, AttrValue>> items) {
  Attrs attrs;
  for (auto& [name, value] : items) attrs.Set(name, value);
  return attrs;
}

// Floats in [low, high), integers in the same range, booleans.
inline NDArray RandomArray(Rng& rng, DType dtype, Shape shape, double low = -2, double high = 2) {
  NDArray x(dtype, std::move(shape));
  for (int64_t i = 0; i < x.size(); ++i) {
    double value = low + (high - low) * rng.Uniform();
    if (!IsFloat(dtype)) value = static_cast<double>(static_cast<int64_t>(value * 4));
    x.Set(i, dtype == DType::kBool ? static_cast<double>(rng.Below(2)) : value);
  }
  return x;
}

template <typename T>
NDArray ArrayOf(DType dtype, Shape shape, std::initializer_list<T> values) {
  NDArray x(dtype, std::move(shape));
  int64_t i = 0;
  for (T v : values) x.Set(i++, static_cast<double>(v));
  return x;
}
inline NDArray Floats(Shape shape, std::initializer_list<double> values) {
  return ArrayOf<double>(DType::kF32, std::move(shape), values);
}
inline NDArray Longs(Shape shape, std::initializer_list<int64_t> values) {
  return ArrayOf<int64_t>(DType::kI64, std::move(shape), values);
}

inline std::vector<TensorType> TypesOf(std::span<const NDArray> inputs) {
  std::vector<TensorType> types;
  for (const NDArray& x : inputs) types.push_back({x.dtype(), x.shape(), {}});
  return types;
}

inline absl::StatusOr<TensorType> InferOp(std::string_view name, const Attrs& attrs, std::vector<TensorType> inputs) {
  const OpDef* op = FindOp(name);
  if (op == nullptr) return absl::NotFoundError("no such operator");
  return op->infer(attrs, inputs);
}

inline absl::StatusOr<NDArray> RunOp(std::string_view name, const Attrs& attrs, std::vector<NDArray> inputs) {
  TEMPER_ASSIGN_OR_RETURN(TensorType type, InferOp(name, attrs, TypesOf(inputs)));
  return FindOp(name)->reference(attrs, inputs, type);
}

inline std::vector<double> ValuesOf(const NDArray& x) {
  std::vector<double> values;
  for (int64_t i = 0; i < x.size(); ++i) values.push_back(x.At(i));
  return values;
}

}  // namespace temper
