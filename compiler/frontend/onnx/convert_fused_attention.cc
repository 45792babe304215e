// The attention of com.microsoft's Attention and MultiHeadAttention, as ONNX's Attention with masks of its own.
#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "compiler/frontend/onnx/attention.h"
#include "compiler/frontend/onnx/extents.h"
#include "compiler/frontend/onnx/places.h"

namespace temper::onnx_frontend {
namespace {

// The keys up to each row's end, and from its beginning on where that is there too: [batch, 1, 1, keys].
absl::StatusOr<ValueId> BetweenPositions(Context& c, ValueId positions, int64_t batch, int64_t keys) {
  TEMPER_ASSIGN_OR_RETURN(positions, c.Cast(positions, DType::kI64));
  if (c.ShapeOf(positions)[0] == batch) return WithinLengths(c, positions, keys);
  TEMPER_ASSIGN_OR_RETURN(const ValueId ends, c.Slice(positions, 0, 0, batch));
  TEMPER_ASSIGN_OR_RETURN(const ValueId begins, c.Slice(positions, 0, batch, 2 * batch));
  TEMPER_ASSIGN_OR_RETURN(const ValueId counts, WithinLengths(c, ends, keys));
  TEMPER_ASSIGN_OR_RETURN(ValueId early, WithinLengths(c, begins, keys));
  TEMPER_ASSIGN_OR_RETURN(early, c.Call("not", {}, {early}));
  return c.Call("and", {}, {counts, early});
}

// Which keys count, as what is added to scores. The mask is [batch, keys], [batch, queries, keys], or where each row
// ends, or these and then where each begins, or, as [3 * batch + 2], these and then what packed rows would need.
absl::StatusOr<ValueId> PaddingMask(Context& c, ValueId mask, ValueId query, int64_t keys, double filter) {
  const Shape shape = c.ShapeOf(mask);
  const int64_t batch = c.ShapeOf(query)[0], queries = c.ShapeOf(query)[1];
  ValueId counts = kNoValue;
  if (shape == Shape{3 * batch + 2}) {
    TEMPER_ASSIGN_OR_RETURN(const ValueId ends, c.Slice(mask, 0, 0, batch));
    TEMPER_ASSIGN_OR_RETURN(counts, BetweenPositions(c, ends, batch, keys));
  } else if (shape == Shape{batch, keys} || shape == Shape{batch, queries, keys}) {
    TEMPER_ASSIGN_OR_RETURN(counts, c.Cast(mask, DType::kBool));
    TEMPER_ASSIGN_OR_RETURN(counts, c.Reshape(counts, {batch, 1, shape.size() == 3 ? queries : 1, keys}));
  } else if (shape == Shape{batch} || shape == Shape{2 * batch}) {
    TEMPER_ASSIGN_OR_RETURN(counts, BetweenPositions(c, mask, batch, keys));
  } else {
    return absl::UnimplementedError(
        "only masks of [batch, keys] or [batch, queries, keys] and lengths of [batch], [2 * batch] or [3 * batch + 2] "
        "are supported");
  }
  // Rows that see nothing are no numbers if what is added is infinite.
  constexpr double kLeastF16 = -65504;
  const DType dtype = c.TypeOf(query).dtype;
  if (dtype == DType::kF16) filter = std::max(filter, kLeastF16);
  return c.Call("where", {}, {counts, c.Scalar(dtype, 0), c.Scalar(dtype, filter)});
}

struct AttentionCall {
  ValueId query, key, value;                 // [batch, sequence, hidden], or keys and values by heads
  ValueId padding, added;                    // masks, or none
  ValueId past_key, past_value;              // [batch, heads, past, size], or none
  std::array<std::string, 2> presents = {};  // what all keys and values are bound to; "": nothing
  std::string scores = {};                   // and what the masked scores are
};

// How many keys there are in all, as what a mask of `keys` has along its last axis: nothing where that is known.
absl::StatusOr<Varyings> KeysThere(Context& c, const AttentionCall& call, int64_t keys) {
  const int64_t axis = c.Rank(call.key) == 4 ? 2 : 1, own_keys = c.ShapeOf(call.key)[static_cast<size_t>(axis)];
  const Varying* own = c.VaryingAlong(call.key, axis);
  const Varying* past = call.past_key == kNoValue ? nullptr : c.VaryingAlong(call.past_key, 2);
  if (own == nullptr && past == nullptr) return Varyings{};
  ValueId all = (own == nullptr ? past : own)->extent;
  if (own != nullptr && past != nullptr) {
    TEMPER_ASSIGN_OR_RETURN(all, SumOfExtents(c, own->extent, past->extent));
  } else {
    TEMPER_ASSIGN_OR_RETURN(all, StopsOf(c, all, (own == nullptr ? own_keys : keys - own_keys) - 1, 1));
  }
  return Varyings{{3, all}};
}

absl::Status SetAttention(Context& c, const OnnxNode& n, AttentionCall call) {
  const int64_t heads = n.Int("num_heads", 0);
  int64_t keys = c.ShapeOf(call.key)[c.Rank(call.key) == 4 ? 2 : 1];
  if (n.Int("unidirectional", 0) != 0 && keys != c.ShapeOf(call.query)[1])
    return absl::UnimplementedError("unidirectional is supported only where there are as many keys as queries");
  if (call.past_key != kNoValue) {
    if (c.Rank(call.past_key) != 4)
      return absl::InvalidArgumentError("earlier keys are [batch, heads, sequence, size]");
    keys += c.ShapeOf(call.past_key)[2];
  }
  ValueId mask = call.added;
  if (call.padding != kNoValue) {
    TEMPER_ASSIGN_OR_RETURN(ValueId padding,
                            PaddingMask(c, call.padding, call.query, keys, n.Float("mask_filter_value", -10000)));
    if (c.Rank(call.padding) == 1) {
      TEMPER_ASSIGN_OR_RETURN(const Varyings there, KeysThere(c, call, keys));
      TEMPER_ASSIGN_OR_RETURN(padding, WithVaryings(c, padding, there));
    }
    mask = padding;
    if (call.added != kNoValue) {
      TEMPER_ASSIGN_OR_RETURN(mask, c.Call("add", {}, {padding, call.added}));
    }
  }
  onnx::NodeProto proto;
  proto.set_op_type("Attention");
  proto.set_name(n.proto.name());
  for (const std::string& output : {n.proto.output(0), call.presents[0], call.presents[1], call.scores})
    proto.add_output(output);
  constexpr int64_t kMasked = 2;
  const std::pair<const char*, int64_t> attributes[] = {{"q_num_heads", heads},
                                                        {"kv_num_heads", heads},
                                                        {"is_causal", n.Int("unidirectional", 0)},
                                                        {"qk_matmul_output_mode", call.scores.empty() ? 0 : kMasked}};
  for (const auto& [name, value] : attributes) {
    onnx::AttributeProto* a = proto.add_attribute();
    a->set_name(name);
    a->set_type(onnx::AttributeProto::INT);
    a->set_i(value);
  }
  if (n.Float("scale", 0) != 0) {
    *proto.add_attribute() = *n.Find("scale");
  }
  const OnnxNode attention{proto, n.opset, {call.query, call.key, call.value, mask, call.past_key, call.past_value}};
  return AddAttention(c, attention, call.added == kNoValue);
}

}  // namespace

absl::Status SetFusedAttention(Context& c, const OnnxNode& n, ValueId all, ValueId padding, ValueId added,
                               ValueId past) {
  if (n.Int("do_rotary", 0) != 0 || n.Int("past_present_share_buffer", 0) != 0)
    return absl::UnimplementedError("rotary embeddings and a shared cache are not supported");
  const Shape shape = c.ShapeOf(all);
  if (shape.size() != 3) return absl::InvalidArgumentError("takes [batch, sequence, hidden]");
  std::vector<int64_t> sizes = n.Ints("qkv_hidden_sizes", {shape[2] / 3, shape[2] / 3, shape[2] / 3});
  const bool positive = std::ranges::all_of(sizes, [&](int64_t size) { return size > 0 && size <= shape[2]; });
  if (sizes.size() != 3 || !positive || sizes[0] + sizes[1] + sizes[2] != shape[2])
    return absl::InvalidArgumentError("qkv_hidden_sizes do not add up to the weight's columns");
  std::array<ValueId, 3> parts{};
  int64_t start = 0;
  for (size_t i = 0; i < 3; start += sizes[i++]) {
    TEMPER_ASSIGN_OR_RETURN(parts[i], c.Slice(all, 2, start, start + sizes[i]));
  }
  AttentionCall call{parts[0], parts[1], parts[2], padding, added, kNoValue, kNoValue};
  if (past != kNoValue) {
    if (c.Rank(past) != 5 || c.ShapeOf(past)[0] != 2)
      return absl::InvalidArgumentError("earlier keys and values are [2, batch, heads, sequence, size]");
    TEMPER_ASSIGN_OR_RETURN(call.past_key, c.Element(past, 0, 0));
    TEMPER_ASSIGN_OR_RETURN(call.past_value, c.Element(past, 0, 1));
  }
  if (n.proto.output_size() < 2 || n.proto.output(1).empty()) return SetAttention(c, n, call);
  ValueId y = kNoValue, both = kNoValue;
  {
    const Context::Scope scope(c, /*closed=*/true);
    for (size_t i = 0; i < 2; ++i) call.presents[i] = absl::StrCat(n.proto.output(0), ".present", i);
    TEMPER_RETURN_IF_ERROR(SetAttention(c, n, call));
    y = c.Find(n.proto.output(0))->value;
    TEMPER_ASSIGN_OR_RETURN(const ValueId keys, c.NewAxis(c.Find(call.presents[0])->value, 0));
    TEMPER_ASSIGN_OR_RETURN(const ValueId values, c.NewAxis(c.Find(call.presents[1])->value, 0));
    if (c.ShapeOf(keys) != c.ShapeOf(values))
      return absl::UnimplementedError("keys and values of different sizes as one result are not supported");
    TEMPER_ASSIGN_OR_RETURN(both, c.Concat({keys, values}, 0));
  }
  TEMPER_RETURN_IF_ERROR(c.Set(n, y));
  return c.Set(n, both, 1);
}

// Queries, keys and values come from one product with one weight.
absl::Status FusedAttention(Context& c, const OnnxNode& n) {
  if (n.Input(6) != kNoValue) return absl::UnimplementedError("a shared cache is not supported");
  TEMPER_ASSIGN_OR_RETURN(ValueId all, c.Call("matmul", {}, {n.Input(0), n.Input(1)}));
  if (n.Input(2) != kNoValue) {
    TEMPER_ASSIGN_OR_RETURN(all, c.Call("add", {}, {all, n.Input(2)}));
  }
  return SetFusedAttention(c, n, all, n.Input(3), n.Input(5), n.Input(4));
}

namespace {

// Queries, keys and values as [batch, sequence, hidden] or by heads: all of them, or keys and values, may lie beside
// one another for each head, as [batch, sequence, heads, 3 or 2, size].
absl::StatusOr<std::array<ValueId, 3>> UnpackedParts(Context& c, const OnnxNode& n) {
  std::array<ValueId, 3> parts = {n.Input(0), n.Input(1), n.Input(2)};
  for (size_t packed = 0; packed < 2; ++packed) {
    const ValueId all = parts[packed];
    if (all == kNoValue || c.Rank(all) != 5 || parts[2] != kNoValue) continue;
    const Shape shape = c.ShapeOf(all);
    if (shape[3] != static_cast<int64_t>(3 - packed) || (packed == 0 && parts[1] != kNoValue))
      return absl::InvalidArgumentError("what is packed is [batch, sequence, heads, 3, size], or 2 of keys and values");
    for (size_t i = packed; i < 3; ++i) {
      TEMPER_ASSIGN_OR_RETURN(parts[i], c.Element(all, 3, static_cast<int64_t>(i - packed)));
      TEMPER_ASSIGN_OR_RETURN(parts[i], c.Reshape(parts[i], {shape[0], shape[1], shape[2] * shape[4]}));
    }
  }
  return parts;
}

}  // namespace

// Keys and values that another part of the model made, as those of a cross-attention, come by heads. They have no bias
// then: queries alone take their part of it.
absl::Status MultiHeadAttention(Context& c, const OnnxNode& n) {
  TEMPER_ASSIGN_OR_RETURN(auto parts, UnpackedParts(c, n));
  const bool present = std::ranges::find(parts, kNoValue) == parts.end();
  const bool by_heads = present && c.Rank(parts[1]) == 4;
  const int64_t heads = n.Int("num_heads", 0);
  std::array<int64_t, 3> columns{};
  for (size_t i = 0; i < 3; ++i) {
    const bool fits = present && c.Rank(parts[i]) == (by_heads && i > 0 ? 4 : 3);
    if (!fits || (by_heads && i > 0 && c.ShapeOf(parts[i])[1] != heads))
      return absl::UnimplementedError(
          "only queries of [batch, sequence, hidden], and keys and values like them or of [batch, heads, sequence, "
          "size] are supported");
    columns[i] = c.ShapeOf(parts[i]).back() * (by_heads && i > 0 ? heads : 1);
  }
  if (n.inputs.size() > 8) return absl::UnimplementedError("a cache of keys that is shared is not supported");
  if (const ValueId bias = n.Input(3); bias != kNoValue) {
    const int64_t whole = columns[0] + columns[1] + columns[2];
    if (c.ShapeOf(bias) != Shape{whole})
      return absl::InvalidArgumentError(absl::StrCat("the bias has one number for each of ", whole, " columns"));
    int64_t start = 0;
    for (size_t i = 0; i < (by_heads ? 1 : 3); start += columns[i++]) {
      TEMPER_ASSIGN_OR_RETURN(const ValueId own, c.Slice(bias, 0, start, start + columns[i]));
      TEMPER_ASSIGN_OR_RETURN(parts[i], c.Call("add", {}, {parts[i], own}));
    }
  }
  AttentionCall call{parts[0], parts[1], parts[2], n.Input(4), n.Input(5), n.Input(6), n.Input(7)};
  for (int i = 1; i < 3 && i < n.proto.output_size(); ++i)
    call.presents[static_cast<size_t>(i - 1)] = n.proto.output(i);
  if (n.proto.output_size() > 3) call.scores = n.proto.output(3);
  return SetAttention(c, n, call);
}

}  // namespace temper::onnx_frontend
