#include "compiler/frontend/onnx/ends.h"

#include "absl/strings/str_cat.h"
#include "compiler/frontend/onnx/extents.h"
#include "compiler/frontend/onnx/formula.h"
#include "compiler/frontend/onnx/places.h"

namespace temper::onnx_frontend {

absl::StatusOr<ValueId> EdgeFilled(Context& c, ValueId v, int64_t axis) {
  const Varying* varying = c.VaryingAlong(v, axis);
  if (varying == nullptr) return v;
  TEMPER_RETURN_IF_ERROR(MustBeOneLine(c, v, "an axis of which the last element is repeated"));
  const int64_t most = c.ShapeOf(v)[static_cast<size_t>(axis)];
  TEMPER_RETURN_IF_ERROR(CheckPlaces({most}));
  const std::string what = absl::StrCat("edge of extent ", varying->extent, " in ", most);
  ValueId at = c.Made(what);
  if (at == kNoValue) {
    Formula f(c, DType::kI64);
    const ValueId last = f.Call("max", {f.Plus(varying->extent, -1), f.Number(0)});
    at = f.Call("min", {Counting(c, DType::kI64, {most}), last});
    TEMPER_RETURN_IF_ERROR(f.status());
    c.KeepMade(what, at);
  }
  TEMPER_ASSIGN_OR_RETURN(v, WholeAlong(c, v, axis));
  return c.Gather(v, at, axis);
}

}  // namespace temper::onnx_frontend
