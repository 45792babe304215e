// Elements added before an axis and behind it, or taken away.
#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "compiler/frontend/onnx/ends.h"
#include "compiler/frontend/onnx/extents.h"

namespace temper::onnx_frontend {
namespace {

using Ints = std::vector<int64_t>;

constexpr int64_t kMostPadded = int64_t{1} << 24;  // elements along an axis that are gathered one by one

// The tensor beside itself again and again along each axis. What negative pads take away is gone before that.
absl::StatusOr<ValueId> PadWrapped(Context& c, ValueId v, const Ints& pads) {
  const size_t rank = c.ShapeOf(v).size();
  if (pads.size() != 2 * rank) return absl::InvalidArgumentError("pads has two elements an axis");
  for (size_t d = 0; d < rank; ++d) {
    const int64_t extent = c.ShapeOf(v)[d], begin = pads[d], end = pads[rank + d];
    if (begin == 0 && end == 0) continue;
    TEMPER_RETURN_IF_ERROR(MustBeKnownAlong(c, v, {static_cast<int64_t>(d)}, "Pad"));
    if (std::max(begin, end) > kMostPadded || std::min(begin, end) < -extent)
      return absl::InvalidArgumentError("pads are out of range");
    const int64_t cut = std::max<int64_t>(-begin, 0), left = extent - cut - std::max<int64_t>(-end, 0);
    if (left < 1) return absl::InvalidArgumentError("pads leave nothing to repeat");
    const int64_t added = std::max<int64_t>(begin, 0), count = added + left + std::max<int64_t>(end, 0);
    Ints at;
    for (int64_t i = 0; i < count; ++i) at.push_back(cut + ((i - added) % left + left) % left);
    TEMPER_ASSIGN_OR_RETURN(v, c.Gather(v, c.IntVector(at), static_cast<int64_t>(d)));
  }
  return v;
}

// Readies `v` for constant pads along axes that vary: behind the end comes what is padded with. What the result has
// along them.
absl::StatusOr<Varyings> PadAlongVarying(Context& c, const Ints& pads, double value, ValueId& v) {
  Varyings padded;
  for (const Varying own : Varyings(c.VaryingsOf(v))) {
    const size_t axis = static_cast<size_t>(own.axis);
    const int64_t begin = pads[axis], end = pads[pads.size() / 2 + axis];
    if (begin == 0 && end == 0) continue;
    TEMPER_RETURN_IF_ERROR(MustBeOneLine(c, v, "Pad"));
    TEMPER_ASSIGN_OR_RETURN(v, end > 0 ? FilledAlong(c, v, own.axis, value) : WholeAlong(c, v, own.axis));
    TEMPER_ASSIGN_OR_RETURN(const ValueId extent, StopsOf(c, own.extent, begin + end - 1, 1));
    padded.push_back({own.axis, extent});
  }
  return padded;
}

// Of a list of numbers one, or the value of one element that has it where only the run knows it.
struct Number {
  int64_t known = 0;
  ValueId value = kNoValue;
};

// The numbers of a small tensor, through what moves them.
class Numbers {
 public:
  explicit Numbers(Context& c) : c_(c) {}

  using List = std::vector<Number>;

  absl::StatusOr<List> Read(ValueId v) {
    if (c_.Known(v) != nullptr) {
      TEMPER_ASSIGN_OR_RETURN(const Ints known, c_.KnownInts(v, "pads"));
      return List(known.begin(), known.end());
    }
    TEMPER_RETURN_IF_ERROR(MustBeKnown(c_, v, "Pad"));
    const absl::Status unknown = absl::UnimplementedError("pads depends on the model's inputs");
    const int64_t count = NumElements(c_.ShapeOf(v));
    if (++reads_ > kMostReads || count > kMostNumbers) return unknown;
    const std::optional<Node> made = c_.MakerOf(v);
    if (made.has_value() && (made->op == "identity" || (made->op == "cast" && !IsFloat(c_.TypeOf(v).dtype))))
      return Read(made->inputs[0]);
    if (made.has_value() && made->op == "mul" && count > 1) return Times(*made);
    if (!made.has_value() || !IsMove(*made)) return count == 1 ? absl::StatusOr<List>(List{{0, v}}) : unknown;
    // What the move makes of their places.
    List all;
    std::vector<NDArray> places;
    for (const ValueId part : made->inputs) {
      TEMPER_ASSIGN_OR_RETURN(const List numbers, Read(part));
      NDArray& at = places.emplace_back(DType::kI64, c_.ShapeOf(part));
      for (int64_t i = 0; i < at.size(); ++i) at.Set(i, static_cast<double>(std::ssize(all) + i));
      all.insert(all.end(), numbers.begin(), numbers.end());
    }
    const TensorType type{DType::kI64, c_.ShapeOf(v), {}};
    TEMPER_ASSIGN_OR_RETURN(const NDArray moved, FindOp(made->op)->reference(made->attrs, places, type));
    List result;
    for (const int64_t at : moved.as<int64_t>()) result.push_back(all[static_cast<size_t>(at)]);
    return result;
  }

 private:
  // A file may ask for more than it has nodes.
  static constexpr int kMostReads = 512, kMostNumbers = 1024;

  // One number, or as many as there are, by others of which one list is known, such as ones at the axes that it is of.
  absl::StatusOr<List> Times(const Node& node) {
    List lists[2];
    for (const size_t i : {0, 1}) {
      TEMPER_ASSIGN_OR_RETURN(lists[i], Read(node.inputs[i]));
    }
    const size_t known = c_.Known(node.inputs[0]) != nullptr ? 0 : 1;
    const Shape& shape = c_.ShapeOf(node.output);
    const auto fits = [](const Number& n) { return n.known > -kMostPadded && n.known < kMostPadded; };
    List result(static_cast<size_t>(NumElements(shape)));
    for (size_t i = 0; i < result.size(); ++i) {
      const auto at = [&](const List& list) { return list[list.size() == 1 ? 0 : i]; };
      const Number factor = at(lists[known]), of = at(lists[1 - known]);
      if (shape.size() != 1 || c_.Known(node.inputs[known]) == nullptr || !fits(factor) || !fits(of))
        return absl::UnimplementedError("pads depends on the model's inputs");
      if (of.value == kNoValue || factor.known == 0) {
        result[i].known = factor.known * of.known;
        continue;
      }
      result[i].value = of.value;
      if (factor.known == 1) continue;
      const ValueId by = c_.Scalar(c_.TypeOf(of.value).dtype, static_cast<double>(factor.known));
      TEMPER_ASSIGN_OR_RETURN(result[i].value, c_.Call("mul", {}, {of.value, by}));
    }
    return result;
  }

  static bool IsMove(const Node& node) {
    const Move move = FindOp(node.op)->move;
    return move == Move::kReshapes || move == Move::kTransposes || move == Move::kSlices || move == Move::kConcatenates;
  }

  Context& c_;
  int reads_ = 0;
};

// How many there are of an axis and of what only the run adds behind it, if that is always the same number: it adds
// what is missing.
absl::StatusOr<int64_t> TotalOf(Context& c, const Varying* own, ValueId added) {
  const std::optional<Node> made = c.MakerOf(added);
  if (made.has_value() && made->op == "sub" && c.Known(made->inputs[0]) != nullptr && own != nullptr &&
      own->lines == 1) {
    TEMPER_ASSIGN_OR_RETURN(const int64_t total, c.KnownInt(made->inputs[0], "pads"));
    TEMPER_ASSIGN_OR_RETURN(const Dims dims, DimsOf(c, made->inputs[1], "pads"));
    const bool same = dims.varyings.size() == 1 && dims.most.size() == 1 && dims.varyings[0].extent == own->extent;
    if (same && total > 0 && total < kMostPadded) return total;
  }
  return absl::UnimplementedError("as many pads as only the run knows, which do not make up a number that is known");
}

// Whether that is what is missing to a multiple: (number - extent % number) % number. The number; 0: it is not.
int64_t MissingTo(Context& c, ValueId extent, ValueId missing) {
  const int64_t number = c.MostOf(missing) + 1;
  const ValueId over = c.Made(absl::StrCat("extent ", extent, " mod ", number));
  const ValueId under = c.Made(absl::StrCat(number, " without extent ", over));
  return c.Made(absl::StrCat("extent ", under, " mod ", number)) == missing ? number : 0;
}

// The most elements that a length of the run adds behind the end of an axis; what the axis has then.
absl::StatusOr<int64_t> AddedBehind(Context& c, ValueId& x, int64_t axis, ValueId added, double value,
                                    Varyings& padded) {
  TEMPER_ASSIGN_OR_RETURN(const Dims more, DimsOf(c, added, "pads"));
  TEMPER_RETURN_IF_ERROR(MustBeOneLine(c, x, "Pad"));
  if (more.varyings.size() != 1 || more.most.size() != 1 || more.most[0] >= kMostPadded)
    return absl::UnimplementedError("as many pads as only the run knows");
  const Varying* own = c.VaryingAlong(x, axis);
  const int64_t room = c.ShapeOf(x)[static_cast<size_t>(axis)];
  ValueId extent = more.varyings[0].extent;
  if (const int64_t number = own == nullptr ? 0 : MissingTo(c, own->extent, extent); number > 0) {
    TEMPER_ASSIGN_OR_RETURN(extent, StopsOf(c, own->extent, -1, number));
    TEMPER_ASSIGN_OR_RETURN(extent, ScaledExtent(c, extent, number, 1));
  } else if (own != nullptr) {
    TEMPER_ASSIGN_OR_RETURN(extent, SumOfExtents(c, own->extent, extent));
  } else {
    TEMPER_ASSIGN_OR_RETURN(extent, StopsOf(c, extent, room - 1, 1));
  }
  TEMPER_ASSIGN_OR_RETURN(x, FilledAlong(c, x, axis, value));
  padded.push_back({axis, extent});
  const int64_t most = c.MostOf(extent);
  return most >= room ? most - room : more.most[0];
}

// Pads as numbers, two an axis. What is behind the end of an axis to which the run adds what is missing is filled.
absl::StatusOr<Ints> PadsOf(Context& c, const OnnxNode& n, ValueId& x, double value, Varyings& padded) {
  if (n.Input(1) == kNoValue) return n.Ints("pads");
  TEMPER_ASSIGN_OR_RETURN(std::vector<Number> numbers, Numbers(c).Read(n.Input(1)));
  const size_t rank = c.ShapeOf(x).size();
  if (n.Input(3) != kNoValue) {
    TEMPER_ASSIGN_OR_RETURN(const Ints axes, c.KnownInts(n.Input(3), "axes"));
    if (numbers.size() != 2 * axes.size()) return absl::InvalidArgumentError("pads has two elements an axis");
    std::vector<Number> all(2 * rank);
    for (size_t i = 0; i < axes.size(); ++i) {
      TEMPER_ASSIGN_OR_RETURN(const int64_t axis, Axis(axes[i], static_cast<int64_t>(rank)));
      all[static_cast<size_t>(axis)] = numbers[i];
      all[rank + static_cast<size_t>(axis)] = numbers[axes.size() + i];
    }
    numbers = std::move(all);
  }
  Ints pads;
  for (size_t i = 0; i < numbers.size(); ++i) {
    pads.push_back(numbers[i].known);
    if (numbers[i].value == kNoValue) continue;
    if (i < rank || i >= 2 * rank || n.String("mode", "constant") != "constant")
      return absl::UnimplementedError("as many pads as only the run knows");
    const int64_t axis = static_cast<int64_t>(i - rank);
    const absl::StatusOr<int64_t> total = TotalOf(c, c.VaryingAlong(x, axis), numbers[i].value);
    if (total.ok()) {
      TEMPER_ASSIGN_OR_RETURN(x, FilledAlong(c, x, axis, value));
      pads.back() = *total - c.ShapeOf(x)[i - rank];
      continue;
    }
    if (numbers[i - rank].known != 0 || numbers[i - rank].value != kNoValue) return total.status();
    TEMPER_ASSIGN_OR_RETURN(pads.back(), AddedBehind(c, x, axis, numbers[i].value, value, padded));
  }
  return pads;
}

absl::Status Pad(Context& c, const OnnxNode& n) {
  const size_t rank = c.ShapeOf(n.Input(0)).size();
  ValueId v = n.Input(0);
  double value = n.Float("value", 0);
  if (n.Input(2) != kNoValue) {
    TEMPER_ASSIGN_OR_RETURN(std::vector<double> values, c.KnownFloats(n.Input(2), "the value to pad with"));
    if (values.size() == 1) value = values[0];
  }
  Varyings by_run;
  TEMPER_ASSIGN_OR_RETURN(Ints pads, PadsOf(c, n, v, value, by_run));
  const std::string mode = n.String("mode", "constant");
  if (mode == "wrap") {
    TEMPER_ASSIGN_OR_RETURN(v, PadWrapped(c, v, pads));
    return c.Set(n, v);
  }
  Varyings padded;
  const bool counts = std::ranges::all_of(pads, [](int64_t p) { return p > -kMostExtent && p < kMostExtent; });
  if (mode == "constant" && pads.size() == 2 * rank && counts) {
    TEMPER_ASSIGN_OR_RETURN(padded, PadAlongVarying(c, pads, value, v));
  }
  for (size_t d = 0; (mode == "edge" || mode == "reflect") && pads.size() == 2 * rank && counts && d < rank; ++d) {
    const Varying* own = c.VaryingAlong(v, static_cast<int64_t>(d));
    if (own == nullptr || (pads[d] == 0 && pads[rank + d] == 0)) continue;
    TEMPER_ASSIGN_OR_RETURN(v, PaddedFromEnds(c, v, Varying(*own), pads[d], pads[rank + d], mode));
    pads[d] = 0, pads[rank + d] = 0;
  }
  TEMPER_ASSIGN_OR_RETURN(v, c.Pad(v, std::move(pads), value, mode));
  c.AddVaryings(v, padded);
  c.AddVaryings(v, by_run);
  return c.Set(n, v);
}

// Each axis cut down or padded with zeros to its new length; what is odd is missing, or added, at the end.
absl::Status CenterCropPad(Context& c, const OnnxNode& n) {
  const Shape from = c.ShapeOf(n.Input(0));
  const size_t rank = from.size();
  TEMPER_ASSIGN_OR_RETURN(const Ints shape, c.KnownInts(n.Input(1), "the new shape"));
  const Ints axes = n.Ints("axes", AxesFrom(0, static_cast<int64_t>(rank)));
  if (shape.size() != axes.size()) return absl::InvalidArgumentError("the new shape has one length an axis");
  TEMPER_RETURN_IF_ERROR(MustBeKnownAlong(c, n.Input(0), axes, "CenterCropPad"));
  Ints pads(2 * rank, 0);
  for (size_t i = 0; i < axes.size(); ++i) {
    TEMPER_ASSIGN_OR_RETURN(const int64_t axis, Axis(axes[i], static_cast<int64_t>(rank)));
    const size_t d = static_cast<size_t>(axis);
    if (shape[i] < 0) return absl::InvalidArgumentError("a length is negative");
    const int64_t added = shape[i] - from[d];
    pads[d] = added / 2;
    pads[rank + d] = added - added / 2;
  }
  TEMPER_ASSIGN_OR_RETURN(ValueId v, c.Pad(n.Input(0), std::move(pads)));
  return c.Set(n, v);
}

}  // namespace

std::span<const TableEntry> PadTable() {
  static constexpr TableEntry kTable[] = {{"Pad", Pad, 1, Extents::kAlongAnyAxis}, {"CenterCropPad", CenterCropPad, 2}};
  return kTable;
}

}  // namespace temper::onnx_frontend
