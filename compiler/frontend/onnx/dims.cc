// Shapes as values, of which the run may know some extents alone.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "compiler/frontend/onnx/extents.h"

namespace temper::onnx_frontend {
namespace {

using Ints = std::vector<int64_t>;

// Integers that a value holds, a varying extent among them as its largest; what varies is told by its position.
class Reader {
 public:
  Reader(Context& c, std::string_view what) : c_(c), what_(what) {}

  absl::StatusOr<Dims> Read(ValueId v) {
    constexpr int kMostReads = 512;
    if (c_.Known(v) != nullptr) {
      TEMPER_ASSIGN_OR_RETURN(Ints known, c_.KnownInts(v, what_));
      return Dims{std::move(known), {}};
    }
    if (const int64_t most = c_.MostOf(v); most > 0) return Dims{{most}, {{0, v}}};
    const std::optional<Node> made = c_.MakerOf(v);
    if (!made.has_value() || ++reads_ > kMostReads) return Unknown();
    const Node& found = *made;
    if (found.op == "reshape" || found.op == "identity" || (found.op == "cast" && HoldsExtents(c_.TypeOf(v).dtype)))
      return Read(found.inputs[0]);
    if (found.op == "slice") return Part(found);
    if (found.op == "gather") return Picked(found);
    if (found.op == "reduce_prod") return Product(found);
    if (found.op == "concat") return Joined(found);
    if (found.op == "where") return Chosen(found);
    if (found.op == "add") return Added(found);
    if (found.op == "mul" || found.op == "div") return Scaled(found);
    if (found.op == "sub") return Difference(found);
    if (found.op == "mod") return Remainder(found);
    return Unknown();
  }

 private:
  static bool HoldsExtents(DType dtype) {
    return dtype == DType::kI64 || dtype == DType::kI32 || dtype == DType::kF32 || dtype == DType::kF64;
  }
  absl::Status Unknown() const {
    return absl::UnimplementedError(absl::StrCat(std::string(what_), " depends on the model's inputs"));
  }

  // The one integer that the value holds, if it is known and an extent may be counted with it.
  std::optional<int64_t> Number(ValueId v) const {
    const NDArray* known = c_.Known(v);
    if (known == nullptr || known->size() != 1 || IsFloat(known->dtype())) return std::nullopt;
    const absl::StatusOr<Ints> numbers = c_.KnownInts(v, what_);
    const bool counts = numbers.ok() && (*numbers)[0] >= -kMostExtent && (*numbers)[0] <= kMostExtent;
    return counts ? std::optional((*numbers)[0]) : std::nullopt;
  }

  // Where a shape says -1, another one's extent, as exporters write what Expand takes. No extent is negative.
  absl::StatusOr<Dims> Chosen(const Node& node) {
    const std::optional<Node> condition = c_.MakerOf(node.inputs[0]);
    if (!condition.has_value() || condition->op != "equal" || c_.Rank(node.output) != 1) return Unknown();
    TEMPER_ASSIGN_OR_RETURN(const Dims one, Read(condition->inputs[0]));
    TEMPER_ASSIGN_OR_RETURN(const Dims other, Read(condition->inputs[1]));
    TEMPER_ASSIGN_OR_RETURN(const Dims yes, Read(node.inputs[1]));
    TEMPER_ASSIGN_OR_RETURN(const Dims no, Read(node.inputs[2]));
    const auto at = [](const Dims& dims, size_t i) { return dims.most[dims.most.size() == 1 ? 0 : i]; };
    const auto varying = [](const Dims& dims, size_t i) {
      return std::ranges::find(dims.varyings, static_cast<int64_t>(dims.most.size() == 1 ? 0 : i), &Varying::axis);
    };
    const auto varies = [&](const Dims& dims, size_t i) { return varying(dims, i) != dims.varyings.end(); };
    Dims result;
    for (size_t i = 0; i < static_cast<size_t>(c_.ShapeOf(node.output)[0]); ++i) {
      const bool unknown = varies(one, i) || varies(other, i);
      if (unknown && at(varies(one, i) ? other : one, i) >= 0) return Unknown();
      const Dims& chosen = !unknown && at(one, i) == at(other, i) ? yes : no;
      if (varies(chosen, i)) result.varyings.push_back({static_cast<int64_t>(i), varying(chosen, i)->extent});
      result.most.push_back(at(chosen, i));
    }
    return result;
  }

  // To zeros, as exporters write where the first part of several ends; or one extent and a number or another extent, as
  // of what was there before and what comes.
  absl::StatusOr<Dims> Added(const Node& node) {
    for (const size_t i : {0, 1}) {
      const NDArray* known = c_.Known(node.inputs[i]);
      const ValueId other = node.inputs[1 - i];
      if (known == nullptr || IsFloat(known->dtype()) || c_.ShapeOf(other) != c_.ShapeOf(node.output)) continue;
      bool zeros = true;
      for (int64_t k = 0; k < known->size(); ++k) zeros = zeros && known->At(k) == 0;
      if (zeros) return Read(other);
      if (const std::optional<int64_t> by = Number(node.inputs[i])) return Longer(other, *by);
    }
    const bool both = c_.Known(node.inputs[0]) == nullptr && c_.Known(node.inputs[1]) == nullptr;
    return both ? Summed(node) : absl::StatusOr<Dims>(Unknown());
  }

  absl::StatusOr<Dims> Summed(const Node& node) {
    TEMPER_ASSIGN_OR_RETURN(Dims one, Read(node.inputs[0]));
    TEMPER_ASSIGN_OR_RETURN(const Dims other, Read(node.inputs[1]));
    for (const Dims* dims : {&std::as_const(one), &other}) {
      if (dims->most.size() != 1 || dims->varyings.size() != 1 || dims->most[0] > kMostExtent) return Unknown();
    }
    one.most[0] += other.most[0];
    ValueId& extent = one.varyings[0].extent;
    TEMPER_ASSIGN_OR_RETURN(extent, SumOfExtents(c_, extent, other.varyings[0].extent));
    return one;
  }

  absl::StatusOr<Dims> Longer(ValueId extent, int64_t by) {
    TEMPER_ASSIGN_OR_RETURN(Dims dims, Read(extent));
    if (dims.most.size() != 1 || dims.varyings.size() != 1) return Unknown();
    ValueId& own = dims.varyings[0].extent;
    if (c_.LeastOf(own) + by < 0) return Unknown();
    dims.most[0] += by;
    TEMPER_ASSIGN_OR_RETURN(own, StopsOf(c_, own, by - 1, 1));
    return dims;
  }

  // One extent times another, as where batch and sequence are one axis.
  absl::StatusOr<Dims> Multiplied(const Node& node) {
    TEMPER_ASSIGN_OR_RETURN(const Dims one, Read(node.inputs[0]));
    TEMPER_ASSIGN_OR_RETURN(const Dims other, Read(node.inputs[1]));
    return Times(one, other);
  }

  absl::StatusOr<Dims> Times(Dims one, const Dims& other) {
    for (const Dims* dims : {&std::as_const(one), &other}) {
      if (dims->most.size() != 1 || dims->varyings.size() != 1 || dims->most[0] < 1) return Unknown();
    }
    if (one.most[0] > kMostExtent / other.most[0]) return Unknown();
    one.most[0] *= other.most[0];
    ValueId& extent = one.varyings[0].extent;
    TEMPER_ASSIGN_OR_RETURN(extent, ProductOfExtents(c_, extent, other.varyings[0].extent));
    return one;
  }

  // One extent times a number, such as of heads, or divided by one.
  absl::StatusOr<Dims> Scaled(const Node& node) {
    const bool multiplies = node.op == "mul";
    if (multiplies && c_.Known(node.inputs[0]) == nullptr && c_.Known(node.inputs[1]) == nullptr)
      return Multiplied(node);
    const size_t at = multiplies && c_.Known(node.inputs[0]) != nullptr ? 0 : 1;
    const int64_t by = Number(node.inputs[at]).value_or(0);
    if (by < 1) return Unknown();
    TEMPER_ASSIGN_OR_RETURN(Dims dims, Read(node.inputs[1 - at]));
    if (dims.most.size() != 1 || dims.varyings.empty() || (multiplies && dims.most[0] > kMostExtent / by))
      return Unknown();
    dims.most[0] = multiplies ? dims.most[0] * by : dims.most[0] / by;
    const int64_t factor = multiplies ? by : 1, divisor = multiplies ? 1 : by;
    ValueId& extent = dims.varyings[0].extent;
    TEMPER_ASSIGN_OR_RETURN(extent, ScaledExtent(c_, extent, factor, divisor));
    return dims;
  }

  // What a length is more than a multiple of a number, as of what is padded up to one.
  absl::StatusOr<Dims> Remainder(const Node& node) {
    const int64_t by = Number(node.inputs[1]).value_or(0);
    TEMPER_ASSIGN_OR_RETURN(const Dims all, Read(node.inputs[0]));
    if (by < 2 || all.most.size() != 1 || all.varyings.empty()) return Unknown();
    const ValueId extent = all.varyings[0].extent;
    return Opaque(absl::StrCat("extent ", extent, " mod ", by), "mod", extent, by, 0, std::min(by - 1, all.most[0]));
  }

  // A number without a length that is never more.
  absl::StatusOr<Dims> Complement(int64_t number, const Dims& less) {
    if (less.most.size() != 1 || less.varyings.empty() || less.most[0] > number) return Unknown();
    const ValueId extent = less.varyings[0].extent;
    return Opaque(absl::StrCat(number, " without extent ", extent), "sub", extent, number, number - less.most[0],
                  number - c_.LeastOf(extent));
  }

  // An extent that nothing else is known of than its bounds: the same value for the same numbers.
  absl::StatusOr<Dims> Opaque(const std::string& what, const char* op, ValueId extent, int64_t number, int64_t least,
                              int64_t most) {
    ValueId v = c_.Made(what);
    if (v == kNoValue) {
      const ValueId other = c_.Scalar(DType::kI64, static_cast<double>(number));
      const bool first = std::string_view(op) == "mod";
      TEMPER_ASSIGN_OR_RETURN(v, c_.Call(op, {}, first ? std::vector{extent, other} : std::vector{other, extent}));
      c_.SetLeast(v, least);
      c_.SetMost(v, most);
      c_.KeepMade(what, v);
    }
    return Dims{{most}, {{0, v}}};
  }

  // One extent without what it is more than a multiple and a number: it goes in whole steps then.
  absl::StatusOr<std::optional<Dims>> WholeParts(const Dims& all, const Dims& less) {
    if (all.most.size() != 1 || all.varyings.empty() || less.most.size() != 1 || less.varyings.empty())
      return std::nullopt;
    const std::optional<Node> over = c_.MakerOf(less.varyings[0].extent);
    if (!over.has_value() || over->op != "mod" || c_.MostOf(over->inputs[0]) == 0) return std::nullopt;
    const int64_t by = Number(over->inputs[1]).value_or(0);
    const Dims steps{{c_.MostOf(over->inputs[0])}, {{0, over->inputs[0]}}};
    const std::optional<Context::Sum> first = SumLeft(c_, all, steps);
    if (by < 2 || !first.has_value() || !first->terms.empty() || !first->less.empty() || first->number < 0)
      return std::nullopt;
    TEMPER_ASSIGN_OR_RETURN(ValueId extent, ScaledExtent(c_, over->inputs[0], 1, by));
    TEMPER_ASSIGN_OR_RETURN(extent, ScaledExtent(c_, extent, by, 1));
    TEMPER_ASSIGN_OR_RETURN(extent, StopsOf(c_, extent, first->number - 1, 1));
    const int64_t most = c_.MostOf(extent);
    return most > 0 ? std::optional(Dims{{most}, {{0, extent}}}) : std::nullopt;
  }

  // Of two that are the same, or one extent without a part of it: another one, or a number that is known.
  absl::StatusOr<Dims> Difference(const Node& node) {
    if (const std::optional<int64_t> by = Number(node.inputs[1]);
        by.has_value() && c_.Known(node.inputs[0]) == nullptr) {
      absl::StatusOr<Dims> shorter = Longer(node.inputs[0], -*by);
      if (shorter.ok()) return shorter;
    }
    TEMPER_ASSIGN_OR_RETURN(const Dims all, Read(node.inputs[0]));
    TEMPER_ASSIGN_OR_RETURN(const Dims less, Read(node.inputs[1]));
    if (const std::optional<int64_t> number = Number(node.inputs[0])) return Complement(*number, less);
    TEMPER_ASSIGN_OR_RETURN(std::optional<Dims> whole, WholeParts(all, less));
    if (whole.has_value()) return *std::move(whole);
    TEMPER_ASSIGN_OR_RETURN(std::optional<Dims> left, DifferenceOf(c_, all, less));
    if (left.has_value()) return *std::move(left);
    if (all.most == less.most && all.varyings == less.varyings) return Dims{Ints(all.most.size(), 0), {}};
    TEMPER_ASSIGN_OR_RETURN(left, DistanceOf(c_, all, less));
    return left.has_value() ? absl::StatusOr<Dims>(*std::move(left)) : Unknown();
  }

  absl::StatusOr<Dims> Part(const Node& node) {
    const Ints steps = node.attrs.Ints("steps");
    if (c_.Rank(node.inputs[0]) != 1 || node.attrs.Ints("starts").size() != 1 || (!steps.empty() && steps[0] != 1))
      return Unknown();
    TEMPER_ASSIGN_OR_RETURN(const Dims all, Read(node.inputs[0]));
    const int64_t count = std::ssize(all.most), stated = node.attrs.Ints("starts")[0];
    const int64_t start = std::clamp<int64_t>(stated < 0 ? stated + count : stated, 0, count);
    const int64_t length = NumElements(c_.ShapeOf(node.output));
    if (start + length > count) return Unknown();
    Dims part{{all.most.begin() + start, all.most.begin() + start + length}, {}};
    for (const Varying& v : all.varyings) {
      if (v.axis >= start && v.axis < start + length) part.varyings.push_back({v.axis - start, v.extent});
    }
    return part;
  }

  // Some of them in any order, such as the axes that a product leaves.
  absl::StatusOr<Dims> Picked(const Node& node) {
    if (c_.Rank(node.inputs[0]) != 1 || c_.Rank(node.inputs[1]) > 1 || c_.Known(node.inputs[1]) == nullptr)
      return Unknown();
    TEMPER_ASSIGN_OR_RETURN(const Dims all, Read(node.inputs[0]));
    TEMPER_ASSIGN_OR_RETURN(const Ints places, c_.KnownInts(node.inputs[1], what_));
    const int64_t count = std::ssize(all.most);
    Dims picked;
    for (const int64_t place : places) {
      const int64_t at = place < 0 ? place + count : place;
      if (at < 0 || at >= count) return Unknown();
      const auto varies = std::ranges::find(all.varyings, at, &Varying::axis);
      if (varies != all.varyings.end()) picked.varyings.push_back({std::ssize(picked.most), varies->extent});
      picked.most.push_back(all.most[static_cast<size_t>(at)]);
    }
    return picked;
  }

  // All of them multiplied, as of axes that become one.
  absl::StatusOr<Dims> Product(const Node& node) {
    if (NumElements(c_.ShapeOf(node.output)) != 1) return Unknown();
    TEMPER_ASSIGN_OR_RETURN(const Dims all, Read(node.inputs[0]));
    int64_t known = 1;
    std::optional<Dims> product;
    for (int64_t i = 0; i < std::ssize(all.most); ++i) {
      const int64_t most = all.most[static_cast<size_t>(i)];
      const auto varies = std::ranges::find(all.varyings, i, &Varying::axis);
      if (most < 1 || known > kMostExtent / most) return Unknown();
      if (varies == all.varyings.end()) {
        known *= most;
        continue;
      }
      const Dims one{{most}, {{0, varies->extent}}};
      TEMPER_ASSIGN_OR_RETURN(product, product.has_value() ? Times(*product, one) : absl::StatusOr<Dims>(one));
    }
    if (!product.has_value()) return Dims{{known}, {}};
    if (product->most[0] > kMostExtent / known) return Unknown();
    product->most[0] *= known;
    ValueId& extent = product->varyings[0].extent;
    TEMPER_ASSIGN_OR_RETURN(extent, ScaledExtent(c_, extent, known, 1));
    return *product;
  }

  absl::StatusOr<Dims> Joined(const Node& node) {
    Dims all;
    for (const ValueId part : node.inputs) {
      TEMPER_ASSIGN_OR_RETURN(const Dims dims, Read(part));
      for (const Varying& v : dims.varyings) all.varyings.push_back({std::ssize(all.most) + v.axis, v.extent});
      all.most.insert(all.most.end(), dims.most.begin(), dims.most.end());
    }
    return all;
  }

  Context& c_;
  std::string_view what_;
  int reads_ = 0;  // a file may ask for more than it has nodes
};

}  // namespace

absl::StatusOr<Dims> DimsOf(Context& c, ValueId v, std::string_view what) { return Reader(c, what).Read(v); }

absl::StatusOr<ValueId> WithVaryings(Context& c, ValueId v, const Varyings& told) {
  Varyings more;
  for (const Varying& varying : told) {
    const Varying* own = c.VaryingAlong(v, varying.axis);
    if (own != nullptr && *own != varying) return MustBeKnown(c, v, "a shape");
    if (own == nullptr) more.push_back(varying);
  }
  if (more.empty()) return v;
  // Others may have the value, too, and mean all of it.
  TEMPER_ASSIGN_OR_RETURN(v, c.Defer("identity", {}, {v}));
  c.AddVaryings(v, more);
  return v;
}

}  // namespace temper::onnx_frontend
