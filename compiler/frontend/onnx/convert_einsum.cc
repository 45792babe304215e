// Einsum: operand by operand, each pair as one batched matmul.
#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "compiler/frontend/onnx/places.h"

namespace temper::onnx_frontend {
namespace {

// A tensor whose axes have names, one character each.
struct Named {
  ValueId value = kNoValue;
  std::string axes;
};

bool Has(const std::string& axes, char axis) { return axes.find(axis) != std::string::npos; }

template <typename Wanted>
std::string Filter(const std::string& axes, Wanted wanted) {
  std::string result;
  std::copy_if(axes.begin(), axes.end(), std::back_inserter(result), wanted);
  return result;
}

// The names are letters, and "..." stands for any number of axes.
absl::Status CheckNames(std::string term) {
  if (const size_t dots = term.find("..."); dots != std::string::npos) term.erase(dots, 3);
  if (std::ranges::all_of(term, [](unsigned char axis) { return std::isalpha(axis) != 0; })) return absl::OkStatus();
  return absl::InvalidArgumentError("axes are named by letters, and \"...\" stands at most once in a term");
}

// The axes that "..." stands for are named by digits, of which the last one is the last axis.
absl::StatusOr<std::string> NamesOf(std::string term, int64_t rank) {
  TEMPER_RETURN_IF_ERROR(CheckNames(term));
  const size_t dots = term.find("...");
  if (dots != std::string::npos) {
    const int64_t hidden = rank - static_cast<int64_t>(term.size() - 3);
    if (hidden < 0 || hidden > 10) return absl::InvalidArgumentError("a term has more names than its operand axes");
    std::string names;
    for (int64_t i = 10 - hidden; i < 10; ++i) names.push_back(static_cast<char>('0' + i));
    term.replace(dots, 3, names);
  }
  if (static_cast<int64_t>(term.size()) != rank)
    return absl::InvalidArgumentError("a term has as many names as its operand axes");
  return term;
}

// What lies where the indices along the two axes are the same; the axis of both comes first.
absl::StatusOr<Named> Diagonal(Context& c, Named x, size_t first, size_t second) {
  const Shape shape = c.ShapeOf(x.value);
  const int64_t extent = shape[first];
  const char axis = x.axes[first];
  if (shape[second] != extent)
    return absl::InvalidArgumentError(
        absl::StrCat("axis ", std::string(1, axis), " has extents ", extent, " and ", shape[second]));
  std::vector<int64_t> order = {static_cast<int64_t>(first), static_cast<int64_t>(second)};
  Shape flat = {extent * extent};
  std::string axes(1, axis);
  for (size_t d = 0; d < shape.size(); ++d) {
    if (d == first || d == second) continue;
    order.push_back(static_cast<int64_t>(d));
    flat.push_back(shape[d]);
    axes.push_back(x.axes[d]);
  }
  TEMPER_ASSIGN_OR_RETURN(x.value, c.Transpose(x.value, std::move(order)));
  const ValueId places = Counting(c, DType::kI64, {extent}, extent + 1);
  TEMPER_ASSIGN_OR_RETURN(x.value, GatherFlat(c, x.value, places, std::move(flat)));
  return Named{x.value, std::move(axes)};
}

absl::StatusOr<Named> WithNamesOnce(Context& c, Named x) {
  for (size_t i = 0; i < x.axes.size();) {
    const size_t twin = x.axes.find(x.axes[i], i + 1);
    if (twin == std::string::npos) {
      ++i;
      continue;
    }
    TEMPER_ASSIGN_OR_RETURN(x, Diagonal(c, std::move(x), i, twin));
    i = 0;
  }
  return x;
}

class Einsum {
 public:
  explicit Einsum(Context& c) : c_(c) {}

  absl::Status Read(const OnnxNode& n);
  absl::StatusOr<ValueId> Convert();

 private:
  absl::StatusOr<Named> InOrder(Named x, const std::string& order);
  absl::StatusOr<Named> SumOver(Named x, const std::string& kept);
  absl::StatusOr<Named> Multiply(Named a, Named b, const std::string& kept);
  absl::StatusOr<ValueId> AsMatrices(Named x, const std::string& rows, const std::string& columns);
  absl::StatusOr<Named> WithoutOnes(Named x);
  int64_t Product(const std::string& axes) const;
  Shape ShapeOf(const std::string& axes) const;

  Context& c_;
  std::vector<Named> operands_;
  std::string output_;
  std::map<char, int64_t> extents_;
  std::string batch_;  // of the product being made
};

int64_t Einsum::Product(const std::string& axes) const { return NumElements(ShapeOf(axes)); }
Shape Einsum::ShapeOf(const std::string& axes) const {
  Shape shape;
  for (const char axis : axes) shape.push_back(extents_.at(axis));
  return shape;
}

absl::Status Einsum::Read(const OnnxNode& n) {
  std::string equation = n.String("equation", "");
  equation.erase(std::remove(equation.begin(), equation.end(), ' '), equation.end());
  const std::vector<std::string> sides = absl::StrSplit(equation, "->");
  const std::vector<std::string> terms = absl::StrSplit(sides[0], ',');
  if (sides.size() > 2 || terms.size() != n.inputs.size())
    return absl::InvalidArgumentError("the equation has as many terms as there are operands");
  std::map<char, int> seen;
  for (size_t i = 0; i < terms.size(); ++i) {
    Named operand{n.Input(i), ""};
    TEMPER_ASSIGN_OR_RETURN(operand.axes, NamesOf(terms[i], c_.Rank(n.Input(i))));
    for (const char axis : operand.axes) ++seen[axis];
    TEMPER_ASSIGN_OR_RETURN(operand, WithNamesOnce(c_, std::move(operand)));
    const std::string& axes = operand.axes;
    for (size_t d = 0; d < axes.size(); ++d) {
      const int64_t extent = c_.ShapeOf(operand.value)[d];
      int64_t& known = extents_.try_emplace(axes[d], extent).first->second;
      if (known != extent && known != 1 && extent != 1)
        return absl::InvalidArgumentError(
            absl::StrCat("axis ", std::string(1, axes[d]), " has extents ", known, " and ", extent));
      known = known == 1 ? extent : known;
    }
    operands_.push_back(std::move(operand));
  }
  // What is not stated is "..." and then all letters that occur once, in their order.
  std::string hidden;
  for (const auto& [axis, times] : seen) {
    if (std::isdigit(static_cast<unsigned char>(axis)) != 0) hidden.push_back(axis);
    if (sides.size() == 1 && std::isalpha(static_cast<unsigned char>(axis)) != 0 && times == 1) output_.push_back(axis);
  }
  if (sides.size() == 1) {
    output_ = hidden + output_;
    return absl::OkStatus();
  }
  output_ = sides[1];
  TEMPER_RETURN_IF_ERROR(CheckNames(output_));
  if (const size_t dots = output_.find("..."); dots != std::string::npos) output_.replace(dots, 3, hidden);
  for (const char axis : output_) {
    if (std::ranges::count(output_, axis) > 1) return absl::InvalidArgumentError("the result has a name twice");
    if (!extents_.contains(axis))
      return absl::InvalidArgumentError(absl::StrCat("no operand has the axis ", std::string(1, axis)));
  }
  return absl::OkStatus();
}

absl::StatusOr<Named> Einsum::InOrder(Named x, const std::string& order) {
  if (x.axes == order) return x;
  std::vector<int64_t> perm;
  for (const char axis : order) perm.push_back(static_cast<int64_t>(x.axes.find(axis)));
  TEMPER_ASSIGN_OR_RETURN(x.value, c_.Transpose(x.value, std::move(perm)));
  return Named{x.value, order};
}

// Axes of one element where another operand has more count as if they were not there.
absl::StatusOr<Named> Einsum::WithoutOnes(Named x) {
  const Shape shape = c_.ShapeOf(x.value);
  Named result;
  Shape left;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] != extents_.at(x.axes[d])) continue;
    left.push_back(shape[d]);
    result.axes.push_back(x.axes[d]);
  }
  TEMPER_ASSIGN_OR_RETURN(result.value, c_.Reshape(x.value, std::move(left)));
  return result;
}

absl::StatusOr<Named> Einsum::SumOver(Named x, const std::string& kept) {
  std::vector<int64_t> gone;
  for (size_t d = 0; d < x.axes.size(); ++d) {
    if (!Has(kept, x.axes[d])) gone.push_back(static_cast<int64_t>(d));
  }
  if (gone.empty()) return x;
  TEMPER_ASSIGN_OR_RETURN(x.value, c_.Reduce("reduce_sum", x.value, std::move(gone), false));
  x.axes = Filter(x.axes, [&](char axis) { return Has(kept, axis); });
  return x;
}

// As [batch, rows, columns].
absl::StatusOr<ValueId> Einsum::AsMatrices(Named x, const std::string& rows, const std::string& columns) {
  TEMPER_ASSIGN_OR_RETURN(x, InOrder(std::move(x), batch_ + rows + columns));
  return c_.Reshape(x.value, {Product(batch_), Product(rows), Product(columns)});
}

// The axes of both that `kept` has are the batch, the others of both are summed over.
absl::StatusOr<Named> Einsum::Multiply(Named a, Named b, const std::string& kept) {
  TEMPER_ASSIGN_OR_RETURN(a, SumOver(std::move(a), kept + b.axes));
  TEMPER_ASSIGN_OR_RETURN(b, SumOver(std::move(b), kept + a.axes));
  batch_ = Filter(a.axes, [&](char axis) { return Has(b.axes, axis) && Has(kept, axis); });
  const std::string sum = Filter(a.axes, [&](char axis) { return Has(b.axes, axis) && !Has(kept, axis); });
  const std::string left = Filter(a.axes, [&](char axis) { return !Has(b.axes, axis); });
  const std::string right = Filter(b.axes, [&](char axis) { return !Has(a.axes, axis); });
  TEMPER_ASSIGN_OR_RETURN(ValueId x, AsMatrices(std::move(a), left, sum));
  TEMPER_ASSIGN_OR_RETURN(ValueId y, AsMatrices(std::move(b), sum, right));
  TEMPER_ASSIGN_OR_RETURN(ValueId v, c_.Call("matmul", {}, {x, y}));
  const std::string axes = batch_ + left + right;
  TEMPER_ASSIGN_OR_RETURN(v, c_.Reshape(v, ShapeOf(axes)));
  return Named{v, axes};
}

absl::StatusOr<ValueId> Einsum::Convert() {
  for (Named& x : operands_) {
    TEMPER_ASSIGN_OR_RETURN(x, WithoutOnes(std::move(x)));
  }
  Named result = operands_[0];
  for (size_t i = 1; i < operands_.size(); ++i) {
    std::string kept = output_;
    for (size_t later = i + 1; later < operands_.size(); ++later) kept += operands_[later].axes;
    TEMPER_ASSIGN_OR_RETURN(result, Multiply(std::move(result), operands_[i], kept));
  }
  TEMPER_ASSIGN_OR_RETURN(result, SumOver(std::move(result), output_));
  TEMPER_ASSIGN_OR_RETURN(result, InOrder(std::move(result), output_));
  return result.value;
}

absl::Status ConvertEinsum(Context& c, const OnnxNode& n) {
  Einsum einsum(c);
  TEMPER_RETURN_IF_ERROR(einsum.Read(n));
  TEMPER_ASSIGN_OR_RETURN(ValueId v, einsum.Convert());
  return c.Set(n, v);
}

}  // namespace

std::span<const TableEntry> EinsumTable() {
  static constexpr TableEntry kTable[] = {{"Einsum", ConvertEinsum, 1, Extents::kAlongAnyAxis}};
  return kTable;
}

}  // namespace temper::onnx_frontend
