// ONNX's attention operator, as products, a softmax and what masks it, and the embedding that turns what it reads.
#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "compiler/frontend/onnx/attention.h"
#include "compiler/frontend/onnx/extents.h"
#include "compiler/frontend/onnx/formula.h"
#include "compiler/frontend/onnx/language.h"
#include "compiler/frontend/onnx/places.h"

namespace temper::onnx_frontend {

absl::StatusOr<ValueId> ByHeads(Context& c, ValueId v, int64_t heads) {
  const Shape shape = c.ShapeOf(v);
  if (shape.size() == 4) return v;
  if (shape.size() != 3 || heads < 1 || shape[2] % heads != 0)
    return absl::InvalidArgumentError("q_num_heads and kv_num_heads divide the last of three axes");
  TEMPER_ASSIGN_OR_RETURN(v, c.Reshape(v, {shape[0], shape[1], heads, shape[2] / heads}));
  return c.Transpose(v, {0, 2, 1, 3});
}

absl::StatusOr<ValueId> QueriesBehind(Context& c, ValueId seen, ValueId queries) {
  constexpr int64_t kSequence = 2;
  const Varying* along = c.VaryingAlong(seen, kSequence);
  if (along == nullptr || along->lines > 1 || c.ShapeOf(seen) != c.ShapeOf(queries)) return seen;
  const Varying own = *along;
  TEMPER_ASSIGN_OR_RETURN(ValueId within, WithinExtent(c, own, c.ShapeOf(seen)[kSequence]));
  TEMPER_ASSIGN_OR_RETURN(within, LyingAlong(c, within, kSequence, seen));
  TEMPER_ASSIGN_OR_RETURN(seen, WholeAlong(c, seen, kSequence));
  TEMPER_ASSIGN_OR_RETURN(queries, WholeAlong(c, queries, kSequence));
  TEMPER_ASSIGN_OR_RETURN(seen, c.Call("where", {}, {within, seen, queries}));
  return WithVaryings(c, seen, {own});
}

namespace {

// Each head of keys or values serves as many neighbouring heads of queries: what these have, as rows of one product.
// [batch, heads, sequence, size] as [batch, heads of keys, sequences, size], or, of a sequence of which only the run
// knows the length, as [batch, heads of keys, heads for each, sequence, size].
absl::StatusOr<ValueId> Grouped(Context& c, ValueId v, ValueId keys) {
  const Shape shape = c.ShapeOf(v);
  const int64_t heads = c.ShapeOf(keys)[1];
  if (heads < 1 || shape[1] % heads != 0)
    return absl::InvalidArgumentError("the heads of keys divide the heads of queries");
  const int64_t group = shape[1] / heads;
  if (group > 1 && c.VaryingAlong(v, 2) != nullptr) return c.Reshape(v, {shape[0], heads, group, shape[2], shape[3]});
  return c.Reshape(v, {shape[0], heads, group * shape[2], shape[3]});
}

// What `a`, grouped, and keys or values make.
absl::StatusOr<ValueId> ProductOf(Context& c, ValueId a, ValueId keys, Attrs attrs) {
  if (c.Rank(a) > c.Rank(keys)) {
    TEMPER_ASSIGN_OR_RETURN(keys, c.NewAxis(keys, 2));
  }
  return c.Call("matmul", std::move(attrs), {a, keys});
}

// How far each query sees, in keys from its own place on: -1 is without end.
struct Reach {
  int64_t left = -1, right = -1;
  bool is_all() const { return left < 0 && right < 0; }
};

absl::StatusOr<Reach> ReachOf(const OnnxNode& n, int64_t keys) {
  Reach r{n.Int("left_window_size", -1), n.Int("right_window_size", -1)};
  if (r.left < -1 || r.right < -1)
    return absl::InvalidArgumentError("left_window_size and right_window_size are -1 or at least 0");
  if (n.Int("is_causal", 0) != 0) r.right = 0;
  r.right = std::min(r.right, keys);
  return r;
}

// The pairs within reach, [queries, keys]. Queries stand behind the keys of earlier runs.
NDArray PairsWithin(const Reach& reach, int64_t queries, int64_t keys, int64_t past) {
  NDArray mask(DType::kBool, {queries, keys});
  for (int64_t i = 0; i < mask.size(); ++i) {
    const int64_t key = i % keys, own = i / keys + past;
    const bool seen = (reach.left < 0 || own - key <= reach.left) && (reach.right < 0 || key - own <= reach.right);
    mask.Set(i, seen ? 1 : 0);
  }
  return mask;
}

// The same where the run knows at which key the first query of each example stands, or of all of them: [batch or 1, 1,
// queries, keys].
absl::StatusOr<ValueId> PairsWithin(Context& c, const Reach& reach, ValueId first, int64_t queries, int64_t keys) {
  Formula f(c, DType::kI64);
  TEMPER_ASSIGN_OR_RETURN(first, c.Reshape(first, {NumElements(c.ShapeOf(first)), 1, 1, 1}));
  const ValueId own = f.Add(first, Counting(c, DType::kI64, {queries, 1}));
  const ValueId behind = f.Sub(Counting(c, DType::kI64, {keys}), own);
  const ValueId left = f.Call("less_equal", {f.Number(static_cast<double>(-reach.left)), behind});
  const ValueId right = f.Call("less_equal", {behind, f.Number(static_cast<double>(reach.right))});
  const ValueId both = reach.left < 0 ? right : reach.right < 0 ? left : f.Call("and", {left, right});
  TEMPER_RETURN_IF_ERROR(f.status());
  return both;
}

// The mask for so many keys: those behind its end are not seen. kNoValue if there is none.
absl::StatusOr<ValueId> MaskOf(Context& c, const OnnxNode& n, int64_t keys) {
  const ValueId mask = n.Input(3);
  if (mask == kNoValue) return mask;
  const Shape& shape = c.ShapeOf(mask);
  if (shape.empty() || shape.back() > keys || shape.back() < 1)
    return absl::InvalidArgumentError(absl::StrCat("the mask does not fit ", keys, " keys"));
  if (shape.back() == keys || shape.back() == 1) return mask;
  std::vector<int64_t> pads(2 * shape.size(), 0);
  pads.back() = keys - shape.back();
  return c.Pad(mask, std::move(pads), c.TypeOf(mask).dtype == DType::kBool ? 0 : kUnseen);
}

struct Masks {
  ValueId added = kNoValue;  // to scores
  ValueId seen = kNoValue;   // booleans; kNoValue where all pairs see each other
  ValueId live = kNoValue;   // which queries see anything; kNoValue where all do
};

// At which key the first query stands, where only the run knows that: behind a cache, or as the last of so many keys in
// each example. kNoValue: the past is known.
absl::StatusOr<ValueId> FirstKey(Context& c, const OnnxNode& n, ValueId scores) {
  const ValueId past = n.Input(4), lengths = n.Input(6);
  if (past != kNoValue) {
    TEMPER_RETURN_IF_ERROR(MustBeOneLine(c, past, "a cache"));
    const Varying* own = c.VaryingAlong(past, 2);
    return own == nullptr ? kNoValue : own->extent;
  }
  if (lengths == kNoValue) return kNoValue;
  TEMPER_RETURN_IF_ERROR(MustBeOneLine(c, scores, "what stands behind a cache"));
  Formula f(c, DType::kI64);
  const Varying* queries = c.VaryingAlong(scores, 2);
  const ValueId count = queries != nullptr ? queries->extent : f.Number(static_cast<double>(c.ShapeOf(scores)[2]));
  TEMPER_ASSIGN_OR_RETURN(const ValueId ends, c.Cast(lengths, DType::kI64));
  const ValueId first = f.Sub(ends, count);
  TEMPER_RETURN_IF_ERROR(f.status());
  return first;
}

// Pairs, [..., queries, keys], as many as scores, [batch, heads, queries, keys], have of both.
absl::StatusOr<ValueId> AsManyAs(Context& c, ValueId pairs, ValueId scores) {
  Varyings own;
  for (const int64_t axis : {2, 3}) {
    const Varying* varying = c.VaryingAlong(scores, axis);
    if (varying == nullptr) continue;
    own.push_back(*varying);
    own.back().axis += c.Rank(pairs) - 4;
  }
  return WithVaryings(c, pairs, own);
}

absl::StatusOr<ValueId> Seen(Context& c, const OnnxNode& n, ValueId mask, ValueId of, int64_t past) {
  const Shape scores = c.ShapeOf(of);
  const int64_t queries = scores[2], keys = scores[3];
  const ValueId lengths = n.Input(6);
  TEMPER_ASSIGN_OR_RETURN(const Reach reach, ReachOf(n, keys));
  std::vector<ValueId> conditions;
  if (mask != kNoValue && c.TypeOf(mask).dtype == DType::kBool) conditions.push_back(mask);
  if (!reach.is_all()) {
    if (queries > 0 && keys > kMostCompared / queries / std::max<int64_t>(lengths == kNoValue ? 1 : scores[0], 1))
      return absl::UnimplementedError(absl::StrCat("a causal mask of ", queries, " x ", keys, " is not supported"));
    conditions.push_back(kNoValue);
    TEMPER_ASSIGN_OR_RETURN(const ValueId first, FirstKey(c, n, of));
    if (first == kNoValue) {
      conditions.back() = c.Constant(PairsWithin(reach, queries, keys, past));
    } else {
      TEMPER_ASSIGN_OR_RETURN(conditions.back(), PairsWithin(c, reach, first, queries, keys));
    }
    TEMPER_ASSIGN_OR_RETURN(conditions.back(), AsManyAs(c, conditions.back(), of));
  }
  if (lengths != kNoValue && reach.right != 0) {
    TEMPER_ASSIGN_OR_RETURN(ValueId within, WithinLengths(c, lengths, keys));
    if (const Varying* own = c.VaryingAlong(of, 3)) {
      TEMPER_ASSIGN_OR_RETURN(within, WithVaryings(c, within, {*own}));
    }
    conditions.push_back(within);
  }
  ValueId seen = kNoValue;
  for (const ValueId condition : conditions) {
    if (seen == kNoValue) {
      seen = condition;
      continue;
    }
    TEMPER_ASSIGN_OR_RETURN(seen, c.Call("and", {}, {seen, condition}));
  }
  return seen;
}

bool EachRowHasOne(const NDArray& seen) {
  const int64_t keys = seen.shape().back();
  for (int64_t row = 0; row < seen.size(); row += keys) {
    int64_t i = 0;
    while (i < keys && seen.At(row + i) == 0) ++i;
    if (i == keys) return false;
  }
  return true;
}

// Which queries see anything, [..., queries, 1]. What -inf is added to is not seen.
absl::StatusOr<ValueId> Live(Context& c, const Masks& masks) {
  ValueId seen = masks.seen;
  if (masks.added != kNoValue) {
    const ValueId never = c.Scalar(c.TypeOf(masks.added).dtype, -std::numeric_limits<double>::infinity());
    TEMPER_ASSIGN_OR_RETURN(const ValueId finite, c.Call("less", {}, {never, masks.added}));
    seen = finite;
    if (masks.seen != kNoValue) {
      TEMPER_ASSIGN_OR_RETURN(seen, c.Call("and", {}, {masks.seen, finite}));
    }
  }
  if (seen == kNoValue) return seen;
  if (const NDArray* known = c.Known(seen); known != nullptr && EachRowHasOne(*known)) return kNoValue;
  TEMPER_ASSIGN_OR_RETURN(seen, c.Cast(seen, DType::kI32));
  TEMPER_ASSIGN_OR_RETURN(seen, c.Reduce("reduce_max", seen, {c.Rank(seen) - 1}, true));
  return c.Cast(seen, DType::kBool);
}

absl::StatusOr<Masks> MasksOf(Context& c, const OnnxNode& n, ValueId scores, int64_t past, bool mask_is_finite) {
  Masks masks;
  TEMPER_ASSIGN_OR_RETURN(const ValueId mask, MaskOf(c, n, c.ShapeOf(scores)[3]));
  TEMPER_ASSIGN_OR_RETURN(masks.seen, Seen(c, n, mask, scores, past));
  if (mask != kNoValue && c.TypeOf(mask).dtype != DType::kBool) masks.added = mask;
  TEMPER_ASSIGN_OR_RETURN(masks.live, Live(c, {mask_is_finite ? kNoValue : masks.added, masks.seen}));
  return masks;
}

absl::StatusOr<ValueId> Softcap(Context& c, ValueId v, double cap) {
  if (!std::isfinite(cap)) return absl::InvalidArgumentError("softcap is finite");
  if (cap <= 0) return v;
  const ValueId most = c.Scalar(c.TypeOf(v).dtype, cap);
  TEMPER_ASSIGN_OR_RETURN(v, c.Call("div", {}, {v, most}));
  TEMPER_ASSIGN_OR_RETURN(v, c.Call("tanh", {}, {v}));
  return c.Call("mul", {}, {v, most});
}

// `value` where the condition, if there is one, does not hold.
absl::StatusOr<ValueId> Elsewhere(Context& c, ValueId condition, ValueId v, double value) {
  if (condition == kNoValue) return v;
  return c.Call("where", {}, {condition, v, c.Scalar(c.TypeOf(v).dtype, value)});
}

// Binds the node's fourth output to the scores after this of their steps, if it is what was asked for.
enum class Step : int64_t { kProduct = 0, kCapped = 1, kMasked = 2, kWeights = 3 };
bool ShowsScores(const OnnxNode& n, Step step) {
  return n.proto.output_size() > 3 && n.Int("qk_matmul_output_mode", 0) == static_cast<int64_t>(step);
}
absl::Status SetScores(Context& c, const OnnxNode& n, Step step, ValueId scores) {
  return ShowsScores(n, step) ? c.Set(n, scores, 3) : absl::OkStatus();
}

// Softmax of the scores of what is seen. The weights of a query that sees nothing mean nothing.
absl::StatusOr<ValueId> Weights(Context& c, const OnnxNode& n, ValueId scores, const Masks& masks) {
  TEMPER_ASSIGN_OR_RETURN(scores, Softcap(c, scores, n.Float("softcap", 0)));
  TEMPER_RETURN_IF_ERROR(SetScores(c, n, Step::kCapped, scores));
  if (masks.added != kNoValue) {
    TEMPER_ASSIGN_OR_RETURN(scores, c.Call("add", {}, {scores, masks.added}));
  }
  if (ShowsScores(n, Step::kMasked)) {
    constexpr double kNever = -std::numeric_limits<double>::infinity();
    TEMPER_ASSIGN_OR_RETURN(const ValueId shown, Elsewhere(c, masks.seen, scores, kNever));
    TEMPER_RETURN_IF_ERROR(c.Set(n, shown, 3));
  }
  // A row of -inf alone has no softmax.
  if (masks.added != kNoValue) {
    TEMPER_ASSIGN_OR_RETURN(scores, Elsewhere(c, masks.live, scores, 0));
  }
  TEMPER_ASSIGN_OR_RETURN(scores, Elsewhere(c, masks.seen, scores, kUnseen));
  Attrs last;
  last.Set("axis", int64_t{3});
  TEMPER_ASSIGN_OR_RETURN(const ValueId weights, c.Call("softmax", std::move(last), {scores}));
  if (ShowsScores(n, Step::kWeights)) {
    TEMPER_ASSIGN_OR_RETURN(const ValueId shown, Elsewhere(c, masks.live, weights, 0));
    TEMPER_RETURN_IF_ERROR(c.Set(n, shown, 3));
  }
  return weights;
}

absl::Status CheckCache(Context& c, ValueId past, ValueId fresh) {
  const Shape &all = c.ShapeOf(past), &own = c.ShapeOf(fresh);
  if (all.size() == 4 && all[0] == own[0] && all[1] == own[1] && all[3] == own[3]) return absl::OkStatus();
  return absl::InvalidArgumentError("keys and values of earlier runs are [batch, heads, sequence, size]");
}

// Behind those of earlier runs, if there are any; the node's output of that number is all of them.
absl::StatusOr<ValueId> BehindPast(Context& c, const OnnxNode& n, ValueId v, size_t past, int output) {
  if (n.Input(past) != kNoValue) {
    const std::vector<ValueId> parts = {n.Input(past), v};
    const bool varies = std::ranges::any_of(parts, [&](ValueId part) { return c.VaryingAlong(part, 2) != nullptr; });
    if (varies) TEMPER_RETURN_IF_ERROR(CheckCache(c, parts[0], v));
    TEMPER_ASSIGN_OR_RETURN(v, varies ? ConcatVarying(c, parts, 2) : c.Concat(parts, 2));
  }
  TEMPER_RETURN_IF_ERROR(c.Set(n, v, output));
  return v;
}

}  // namespace

absl::Status AddAttention(Context& c, const OnnxNode& n, bool mask_is_finite) {
  if ((n.Input(4) == kNoValue) != (n.Input(5) == kNoValue))
    return absl::InvalidArgumentError("keys of earlier runs come with their values");
  if (n.Input(4) != kNoValue && n.Input(6) != kNoValue)
    return absl::InvalidArgumentError("lengths of keys come without keys of earlier runs");
  TEMPER_ASSIGN_OR_RETURN(ValueId q, ByHeads(c, n.Input(0), n.Int("q_num_heads", 0)));
  TEMPER_ASSIGN_OR_RETURN(ValueId k, ByHeads(c, n.Input(1), n.Int("kv_num_heads", 0)));
  TEMPER_ASSIGN_OR_RETURN(ValueId v, ByHeads(c, n.Input(2), n.Int("kv_num_heads", 0)));
  TEMPER_ASSIGN_OR_RETURN(k, BehindPast(c, n, k, 4, 1));
  TEMPER_ASSIGN_OR_RETURN(v, BehindPast(c, n, v, 5, 2));
  const int64_t past = n.Input(4) == kNoValue ? 0 : c.ShapeOf(n.Input(4))[2];
  const Shape shape = c.ShapeOf(q);
  if (c.ShapeOf(v)[1] != c.ShapeOf(k)[1]) return absl::InvalidArgumentError("keys and values have as many heads");
  const ValueId queries = q;
  TEMPER_ASSIGN_OR_RETURN(q, Grouped(c, q, k));
  TEMPER_RETURN_IF_ERROR(MustBeKnownAlong(c, q, {-1}, "a scale"));
  const double scale = n.Float("scale", 1 / std::sqrt(static_cast<double>(shape[3])));
  if (!std::isfinite(scale)) return absl::InvalidArgumentError("scale is finite");
  Attrs across;
  across.Set("trans_b", int64_t{1});
  TEMPER_ASSIGN_OR_RETURN(ValueId scores, ProductOf(c, q, k, std::move(across)));
  const Shape pairs = {shape[0], shape[1], shape[2], c.ShapeOf(k)[2]};
  TEMPER_ASSIGN_OR_RETURN(scores, c.Reshape(scores, pairs));
  TEMPER_ASSIGN_OR_RETURN(scores, c.Call("mul", {}, {scores, c.Scalar(c.TypeOf(scores).dtype, scale)}));
  TEMPER_RETURN_IF_ERROR(SetScores(c, n, Step::kProduct, scores));
  TEMPER_ASSIGN_OR_RETURN(const Masks masks, MasksOf(c, n, scores, past, mask_is_finite));
  TEMPER_ASSIGN_OR_RETURN(ValueId weights, Weights(c, n, scores, masks));
  TEMPER_ASSIGN_OR_RETURN(weights, Grouped(c, weights, k));
  TEMPER_ASSIGN_OR_RETURN(ValueId y, ProductOf(c, weights, v, {}));
  TEMPER_ASSIGN_OR_RETURN(y, c.Reshape(y, {shape[0], shape[1], shape[2], c.ShapeOf(v)[3]}));
  TEMPER_ASSIGN_OR_RETURN(y, Elsewhere(c, masks.live, y, 0));
  if (masks.seen != kNoValue || masks.added != kNoValue) {
    TEMPER_ASSIGN_OR_RETURN(y, QueriesBehind(c, y, queries));
  }
  if (c.Rank(n.Input(0)) == 3) {
    TEMPER_ASSIGN_OR_RETURN(y, c.Transpose(y, {0, 2, 1, 3}));
    TEMPER_ASSIGN_OR_RETURN(y, c.Reshape(y, {shape[0], shape[2], shape[1] * c.ShapeOf(v)[3]}));
  }
  return c.Set(n, y);
}

namespace {

absl::Status Attention(Context& c, const OnnxNode& n) { return AddAttention(c, n, /*mask_is_finite=*/false); }

// One of two caches, of [batch, sequence, half] or, where positions are told, of a row a position: as it broadcasts
// with what has this shape but for an axis of heads and one of pairs.
absl::StatusOr<ValueId> Turns(Context& c, ValueId cache, ValueId positions, int64_t half, Shape shape) {
  if (positions != kNoValue) {
    TEMPER_ASSIGN_OR_RETURN(cache, c.Gather(cache, positions, 0));
  }
  const Shape& given = c.ShapeOf(cache);
  if (given.size() != 3 || given[2] != half || NumElements(given) != NumElements(shape))
    return absl::InvalidArgumentError(absl::StrCat("the caches have a cosine and a sine for each of ", half, " pairs"));
  return c.Reshape(cache, std::move(shape));
}

// Pairs of a head's elements turn by an angle that grows with the position: neighbours, or one of each half.
absl::Status RotaryEmbedding(Context& c, const OnnxNode& n) {
  const Shape given = c.ShapeOf(n.Input(0));
  const bool heads_first = given.size() == 4;
  const int64_t heads = n.Int("num_heads", 0);
  if (!heads_first && (given.size() != 3 || heads < 1 || given[2] % heads != 0))
    return absl::InvalidArgumentError("num_heads divides the last of three axes");
  const Shape shape = heads_first ? given : Shape{given[0], given[1], heads, given[2] / heads};
  const int64_t size = shape[3], part = n.Int("rotary_embedding_dim", 0), turned = part == 0 ? size : part;
  if (turned < 2 || turned > size || turned % 2 != 0)
    return absl::InvalidArgumentError(absl::StrCat("rotary_embedding_dim ", turned, " is no even part of ", size));
  const int64_t half = turned / 2, axis = n.Int("interleaved", 0) != 0 ? 4 : 3;  // that of the two of a pair
  Shape pairs = {shape[0], shape[1], shape[2], half, half};
  pairs[static_cast<size_t>(axis)] = 2;
  Shape angles = pairs;
  angles[heads_first ? 1 : 2] = angles[static_cast<size_t>(axis)] = 1;
  TEMPER_ASSIGN_OR_RETURN(const ValueId cosine, Turns(c, n.Input(1), n.Input(3), half, angles));
  TEMPER_ASSIGN_OR_RETURN(const ValueId sine, Turns(c, n.Input(2), n.Input(3), half, angles));
  TEMPER_ASSIGN_OR_RETURN(const ValueId x, c.Reshape(n.Input(0), shape));
  TEMPER_ASSIGN_OR_RETURN(ValueId v, c.Slice(x, 3, 0, turned));
  TEMPER_ASSIGN_OR_RETURN(v, c.Reshape(v, std::move(pairs)));
  TEMPER_ASSIGN_OR_RETURN(const ValueId first, c.Slice(v, axis, 0, 1));
  TEMPER_ASSIGN_OR_RETURN(const ValueId second, c.Slice(v, axis, 1, 2));
  Formula f(c, c.TypeOf(x).dtype);
  const ValueId real = f.Sub(f.Mul(cosine, first), f.Mul(sine, second));
  const ValueId imaginary = f.Add(f.Mul(sine, first), f.Mul(cosine, second));
  TEMPER_RETURN_IF_ERROR(f.status());
  TEMPER_ASSIGN_OR_RETURN(v, c.Concat({real, imaginary}, axis));
  TEMPER_ASSIGN_OR_RETURN(v, c.Reshape(v, {shape[0], shape[1], shape[2], turned}));
  if (turned < size) {
    TEMPER_ASSIGN_OR_RETURN(const ValueId rest, c.Slice(x, 3, turned, size));
    TEMPER_ASSIGN_OR_RETURN(v, c.Concat({v, rest}, 3));
  }
  TEMPER_ASSIGN_OR_RETURN(v, c.Reshape(v, given));
  return c.Set(n, v);
}

}  // namespace

std::span<const TableEntry> AttentionTable() {
  static constexpr TableEntry kTable[] = {{"Attention", Attention, 3, Extents::kAlongAnyAxis},
                                          {"RotaryEmbedding", RotaryEmbedding, 3, Extents::kAlongAnyAxis},
                                          {"LinearAttention", LinearAttention, 3},
                                          {"CausalConvWithState", CausalConvWithState, 2}};
  return kTable;
}

}  // namespace temper::onnx_frontend
