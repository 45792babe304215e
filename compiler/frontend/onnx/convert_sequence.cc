// Sequences of tensors, as long as they are known to be, and optional values. They are gone once the model is imported.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "compiler/frontend/onnx/extents.h"
#include "compiler/frontend/onnx/nodes.h"

namespace temper::onnx_frontend {
namespace {

using Ints = std::vector<int64_t>;

constexpr int64_t kMostParts = int64_t{1} << 16;  // of a tensor that is split

// A known position in a sequence of `count`, or right behind it.
absl::StatusOr<int64_t> PositionOf(Context& c, ValueId v, int64_t count, bool behind) {
  TEMPER_ASSIGN_OR_RETURN(const int64_t known, c.KnownInt(v, "the position"));
  const int64_t most = behind ? count : count - 1;
  if (known < -count || known > most)
    return absl::InvalidArgumentError(absl::StrCat("position ", known, " in a sequence of ", count));
  return known < 0 ? known + count : known;
}

absl::Status SequenceEmpty(Context& c, const OnnxNode& n) {
  c.SetSequence(n, {});
  return absl::OkStatus();
}

absl::Status SequenceConstruct(Context& c, const OnnxNode& n) {
  if (std::ranges::find(n.inputs, kNoValue) != n.inputs.end())
    return absl::InvalidArgumentError("its operands are tensors");
  c.SetSequence(n, n.inputs);
  return absl::OkStatus();
}

absl::Status SequenceAt(Context& c, const OnnxNode& n) {
  TEMPER_ASSIGN_OR_RETURN(const std::vector<ValueId> s, c.SequenceOf(n, 0));
  TEMPER_ASSIGN_OR_RETURN(const int64_t at, PositionOf(c, n.Input(1), std::ssize(s), false));
  return c.Set(n, s[static_cast<size_t>(at)]);
}

absl::Status SequenceInsert(Context& c, const OnnxNode& n) {
  TEMPER_ASSIGN_OR_RETURN(std::vector<ValueId> s, c.SequenceOf(n, 0));
  if (n.Input(1) == kNoValue) return absl::InvalidArgumentError("what to insert is a tensor");
  int64_t at = std::ssize(s);
  if (n.Input(2) != kNoValue) {
    TEMPER_ASSIGN_OR_RETURN(at, PositionOf(c, n.Input(2), at, true));
  }
  s.insert(s.begin() + at, n.Input(1));
  c.SetSequence(n, std::move(s));
  return absl::OkStatus();
}

absl::Status SequenceErase(Context& c, const OnnxNode& n) {
  TEMPER_ASSIGN_OR_RETURN(std::vector<ValueId> s, c.SequenceOf(n, 0));
  int64_t at = std::ssize(s) - 1;
  if (n.Input(1) != kNoValue) {
    TEMPER_ASSIGN_OR_RETURN(at, PositionOf(c, n.Input(1), std::ssize(s), false));
  }
  if (at < 0) return absl::InvalidArgumentError("the sequence is empty");
  s.erase(s.begin() + at);
  c.SetSequence(n, std::move(s));
  return absl::OkStatus();
}

absl::Status SequenceLength(Context& c, const OnnxNode& n) {
  TEMPER_ASSIGN_OR_RETURN(const std::vector<ValueId> s, c.SequenceOf(n, 0));
  return c.Set(n, c.Scalar(DType::kI64, static_cast<double>(s.size())));
}

// Parts of the wanted lengths along an axis; without any, single elements, whose axis may go.
absl::Status SplitToSequence(Context& c, const OnnxNode& n) {
  const ValueId x = n.Input(0);
  TEMPER_ASSIGN_OR_RETURN(const int64_t axis, Axis(n.Int("axis", 0), c.Rank(x)));
  TEMPER_RETURN_IF_ERROR(MustBeKnownAlong(c, x, {axis}, "a split"));
  const int64_t extent = c.ShapeOf(x)[static_cast<size_t>(axis)];
  Ints lengths;
  const bool single = n.Input(1) == kNoValue, even = !single && c.Rank(n.Input(1)) == 0;
  if (!single) {
    TEMPER_ASSIGN_OR_RETURN(lengths, c.KnownInts(n.Input(1), "the split"));
    if (std::ranges::any_of(lengths, [](int64_t l) { return l < 1; }))
      return absl::UnimplementedError("only parts of one element or more are supported");
  }
  if (single || even) {  // parts of that length, the last one of what is left
    const int64_t length = single ? 1 : lengths[0];
    if (extent / length > kMostParts)
      return absl::UnimplementedError(absl::StrCat("a split into ", extent / length, " parts is not supported"));
    lengths.assign(static_cast<size_t>(extent / length), length);
    if (extent % length != 0) lengths.push_back(extent % length);
  }
  std::vector<ValueId> parts;
  int64_t start = 0;
  for (const int64_t length : lengths) {
    if (length > extent - start) return absl::InvalidArgumentError("the split is longer than the axis");
    TEMPER_ASSIGN_OR_RETURN(ValueId part, c.Slice(x, axis, start, start + length));
    if (single && n.Int("keepdims", 1) == 0) {
      Shape shape = c.ShapeOf(part);
      shape.erase(shape.begin() + axis);
      TEMPER_ASSIGN_OR_RETURN(part, c.Reshape(part, std::move(shape)));
    }
    parts.push_back(part);
    start += length;
  }
  if (start != extent) return absl::InvalidArgumentError("the split is shorter than the axis");
  c.SetSequence(n, std::move(parts));
  return absl::OkStatus();
}

absl::Status ConcatFromSequence(Context& c, const OnnxNode& n) {
  TEMPER_ASSIGN_OR_RETURN(std::vector<ValueId> parts, c.SequenceOf(n, 0));
  if (parts.empty()) return absl::InvalidArgumentError("the sequence is empty");
  const bool new_axis = n.Int("new_axis", 0) != 0;
  TEMPER_ASSIGN_OR_RETURN(const int64_t axis, Axis(n.Int("axis", 0), c.Rank(parts[0]) + (new_axis ? 1 : 0)));
  for (ValueId& part : parts) {
    if (!new_axis) continue;
    if (axis > c.Rank(part)) return absl::InvalidArgumentError("the parts differ in rank");
    TEMPER_ASSIGN_OR_RETURN(part, c.NewAxis(part, axis));
  }
  if (parts.size() == 1) return c.Set(n, parts[0]);
  TEMPER_ASSIGN_OR_RETURN(const ValueId v, c.Concat(std::move(parts), axis));
  return c.Set(n, v);
}

// The body for each element of the first sequence, with those of the others that have its position.
absl::Status SequenceMap(Context& c, const OnnxNode& n) {
  TEMPER_ASSIGN_OR_RETURN(const onnx::GraphProto* body, BodyOf(n, "body"));
  TEMPER_ASSIGN_OR_RETURN(const std::vector<ValueId> first, c.SequenceOf(n, 0));
  std::vector<std::vector<ValueId>> results(static_cast<size_t>(n.proto.output_size()));
  for (size_t i = 0; i < first.size(); ++i) {
    std::vector<Bound> inputs;
    for (int operand = 0; operand < n.proto.input_size(); ++operand) {
      const ValueId shared = n.Input(static_cast<size_t>(operand));
      if (shared != kNoValue) {
        inputs.push_back(Bound{shared, std::nullopt});
        continue;
      }
      TEMPER_ASSIGN_OR_RETURN(const std::vector<ValueId> s, c.SequenceOf(n, operand));
      if (s.size() != first.size()) return absl::InvalidArgumentError("its sequences differ in length");
      inputs.push_back(Bound{s[i], std::nullopt});
    }
    TEMPER_ASSIGN_OR_RETURN(const std::vector<Bound> made, Inline(c, *body, inputs, n.opset));
    for (size_t k = 0; k < results.size(); ++k) {
      if (k >= made.size() || made[k].value == kNoValue)
        return absl::InvalidArgumentError("its body makes fewer tensors than it has results");
      results[k].push_back(made[k].value);
    }
  }
  for (size_t k = 0; k < results.size(); ++k) c.SetSequence(n, std::move(results[k]), static_cast<int>(k));
  return absl::OkStatus();
}

// A value that is there is itself; one that is not has no name to be read under.
absl::Status Present(Context& c, const OnnxNode& n) {
  const Bound* bound = n.proto.input_size() > 0 ? c.Find(n.proto.input(0)) : nullptr;
  if (bound == nullptr) return absl::UnimplementedError("an optional value that is not there is not supported");
  c.Bind(n.proto.output(0), Bound(*bound));
  return absl::OkStatus();
}

absl::Status IsPresent(Context& c, const OnnxNode& n) {
  NDArray there(DType::kBool, {});
  there.Set(0, n.proto.input_size() > 0 && !n.proto.input(0).empty() ? 1 : 0);
  return c.Set(n, c.Constant(std::move(there)));
}

}  // namespace

std::span<const TableEntry> SequenceTable() {
  static constexpr TableEntry kTable[] = {{"SequenceEmpty", SequenceEmpty, 0},
                                          {"SequenceConstruct", SequenceConstruct, 1, Extents::kAlongAnyAxis},
                                          {"SequenceAt", SequenceAt, 0, Extents::kAlongAnyAxis},
                                          {"SequenceInsert", SequenceInsert, 0, Extents::kAlongAnyAxis},
                                          {"SequenceErase", SequenceErase, 0},
                                          {"SequenceLength", SequenceLength, 0},
                                          {"SplitToSequence", SplitToSequence, 1, Extents::kAlongAnyAxis},
                                          {"ConcatFromSequence", ConcatFromSequence, 0, Extents::kAlongAnyAxis},
                                          {"SequenceMap", SequenceMap, 0, Extents::kAlongAnyAxis},
                                          {"Optional", Present, 0, Extents::kAlongAnyAxis},
                                          {"OptionalGetElement", Present, 0, Extents::kAlongAnyAxis},
                                          {"OptionalHasElement", IsPresent, 0, Extents::kAlongAnyAxis}};
  return kTable;
}

}  // namespace temper::onnx_frontend
