// The attention of language models as ONNX Runtime's tools write it: new queries, keys and values behind a cache of
// earlier keys and values, rotary embeddings, and heads of queries that share heads of keys.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "compiler/frontend/onnx/attention.h"
#include "compiler/frontend/onnx/ends.h"
#include "compiler/frontend/onnx/extents.h"
#include "compiler/frontend/onnx/formula.h"
#include "compiler/frontend/onnx/language.h"
#include "compiler/frontend/onnx/places.h"

namespace temper::onnx_frontend {
namespace {

// Of a call: `steps` are new, and the cache that it writes has `cached` of them.
struct Sizes {
  int64_t batch = 0, steps = 0, heads = 0, kv_heads = 0, size = 0, total = 0, cached = 0;
  int64_t group() const { return heads / kv_heads; }
  // Where only the run knows some of them, how many are new and how many were there, in i64: `steps` and `cached` are
  // the most then. And how many the written cache has, kNoValue where that is known.
  bool in_range = false;
  ValueId fresh = kNoValue, past = kNoValue, all = kNoValue;
};

constexpr size_t kSink = 11, kQueryNorm = 14, kKeyNorm = 15;  // operands

struct Parts {
  ValueId query, key, value;  // [batch, steps, heads * size]
};

// The result of one of ONNX's own operators.
absl::StatusOr<ValueId> Applied(Context& c, const char* op, std::vector<ValueId> inputs,
                                const std::vector<std::pair<const char*, int64_t>>& attributes,
                                const std::vector<std::pair<const char*, double>>& floats = {}) {
  constexpr int kOpset = 24;
  onnx::NodeProto proto;
  proto.set_op_type(op);
  *proto.add_output() = std::string("y");
  for (const auto& [name, value] : attributes) {
    onnx::AttributeProto* a = proto.add_attribute();
    a->set_name(name);
    a->set_type(onnx::AttributeProto::INT);
    a->set_i(value);
  }
  for (const auto& [name, value] : floats) {
    onnx::AttributeProto* a = proto.add_attribute();
    a->set_name(name);
    a->set_type(onnx::AttributeProto::FLOAT);
    a->set_f(static_cast<float>(value));
  }
  const Context::Scope scope(c, /*closed=*/true);
  TEMPER_RETURN_IF_ERROR(FindConverter(proto)->convert(c, {proto, kOpset, std::move(inputs)}));
  return c.Find("y")->value;
}

// Versions of ONNX Runtime add to the operator: what is not known here may change what is computed.
absl::Status CheckKnown(const OnnxNode& n) {
  constexpr std::string_view kKnown[] = {"num_heads",      "kv_num_heads",   "do_rotary",       "rotary_interleaved",
                                         "scale",          "softcap",        "causal",          "local_window_size",
                                         "k_quant_type",   "v_quant_type",   "qk_output",       "smooth_softmax",
                                         "q_norm_epsilon", "k_norm_epsilon", "qk_norm_epsilon", "kv_cache_bit_width"};
  for (const onnx::AttributeProto& a : n.proto.attribute()) {
    if (std::ranges::find(kKnown, a.name()) != std::end(kKnown)) continue;
    if (a.name() == "sliding_window_cache" && a.i() == 0) continue;
    const std::string value = a.type() == onnx::AttributeProto::INT ? absl::StrCat("=", a.i()) : "";
    return absl::UnimplementedError(absl::StrCat(a.name(), value, " is not supported"));
  }
  for (size_t i = 12; i < n.inputs.size(); ++i) {
    const bool is_norm = i == kQueryNorm || i == kKeyNorm;
    if (n.Input(i) != kNoValue && !is_norm)
      return absl::UnimplementedError(absl::StrCat("operand ", i, " is not supported"));
  }
  return absl::OkStatus();
}

absl::Status CheckValues(Context& c, const OnnxNode& n, const Sizes& s) {
  const int64_t window = n.Int("local_window_size", -1), causal = n.Int("causal", 1);
  if (window < -1 || window == 0) return absl::InvalidArgumentError("local_window_size is -1 or at least 1");
  if (causal != 0 && causal != 1) return absl::InvalidArgumentError("causal is 0 or 1");
  if (causal == 0 && window != -1) return absl::InvalidArgumentError("local_window_size needs causal=1");
  if (!std::isfinite(n.Float("scale", 0)) || !std::isfinite(n.Float("softcap", 0)))
    return absl::InvalidArgumentError("scale and softcap are finite");
  if (n.Input(kSink) != kNoValue && c.ShapeOf(n.Input(kSink)) != Shape{s.heads})
    return absl::InvalidArgumentError(absl::StrCat("head_sink is [", s.heads, "], one number a head"));
  if ((n.Input(kQueryNorm) == kNoValue) != (n.Input(kKeyNorm) == kNoValue))
    return absl::InvalidArgumentError("q_norm_weight and k_norm_weight come together");
  for (const size_t norm : {kQueryNorm, kKeyNorm}) {
    if (n.Input(norm) != kNoValue && c.ShapeOf(n.Input(norm)) != Shape{s.size})
      return absl::InvalidArgumentError(absl::StrCat("q_norm_weight and k_norm_weight are [", s.size, "]"));
  }
  return absl::OkStatus();
}

absl::Status CheckSupported(const OnnxNode& n) {
  const int64_t scores = n.Int("qk_output", 0);
  if (scores < 0 || scores > 2) return absl::InvalidArgumentError("qk_output is 0, 1 or 2");
  if (scores == 0 && n.proto.output_size() > 3)
    return absl::InvalidArgumentError("its scores are a result where qk_output says which");
  for (const char* cache : {"k_quant_type", "v_quant_type"}) {
    if (n.String(cache, "NONE") != "NONE") return absl::UnimplementedError("a quantized cache is not supported");
  }
  return CheckKnown(n);
}

// Queries, keys and values may come one behind another in the first operand.
absl::StatusOr<Parts> PartsOf(Context& c, const OnnxNode& n, Sizes& s) {
  const Shape shape = c.ShapeOf(n.Input(0));
  s.heads = n.Int("num_heads", 0), s.kv_heads = n.Int("kv_num_heads", 0);
  if (shape.size() != 3 || s.heads < 1 || s.kv_heads < 1 || s.heads > shape[2] || s.heads % s.kv_heads != 0)
    return absl::InvalidArgumentError("takes [batch, sequence, hidden], and kv_num_heads divides num_heads");
  s.batch = shape[0], s.steps = shape[1];
  const bool packed = n.Input(1) == kNoValue;
  const int64_t all = packed ? s.heads + 2 * s.kv_heads : s.heads;
  s.size = shape[2] / all;
  if (shape[2] % all != 0) return absl::InvalidArgumentError(absl::StrCat(all, " heads do not divide ", shape[2]));
  if (!packed) {
    const Shape own = {s.batch, s.steps, s.kv_heads * s.size};
    if (n.Input(2) == kNoValue || c.ShapeOf(n.Input(1)) != own || c.ShapeOf(n.Input(2)) != own)
      return absl::InvalidArgumentError(absl::StrCat("keys and values are [", ShapeText(own), "]"));
    return Parts{n.Input(0), n.Input(1), n.Input(2)};
  }
  if (n.Input(2) != kNoValue) return absl::InvalidArgumentError("values come with keys");
  const int64_t keys = s.heads * s.size, values = keys + s.kv_heads * s.size;
  Parts p{};
  TEMPER_ASSIGN_OR_RETURN(p.query, c.Slice(n.Input(0), 2, 0, keys));
  TEMPER_ASSIGN_OR_RETURN(p.key, c.Slice(n.Input(0), 2, keys, values));
  TEMPER_ASSIGN_OR_RETURN(p.value, c.Slice(n.Input(0), 2, values, shape[2]));
  return p;
}

// Where the new steps begin, [batch] of i64. A call whose steps are all that there is begins at the front: one that has
// fewer in some example, too.
absl::StatusOr<ValueId> FirstOf(Context& c, const OnnxNode& n, const Sizes& s) {
  if (!s.in_range && s.steps == s.total) return c.Constant(NDArray(DType::kI64, {s.batch}));
  TEMPER_ASSIGN_OR_RETURN(ValueId last, c.Cast(n.Input(5), DType::kI64));
  TEMPER_ASSIGN_OR_RETURN(last, c.Reshape(last, {s.batch}));
  if (!s.in_range) return c.Call("add", {}, {last, c.Scalar(DType::kI64, static_cast<double>(1 - s.steps))});
  TEMPER_RETURN_IF_ERROR(MakeWhole(c, last).status());
  Formula f(c, DType::kI64);
  const ValueId first = f.Call("max", {f.Sub(f.Plus(last, 1), s.fresh), f.Number(0)});
  const ValueId behind = f.Call("min", {first, s.past});
  TEMPER_RETURN_IF_ERROR(f.status());
  return behind;
}

// What was made for the most steps, with the extents along these axes of it that examples and new steps have.
absl::StatusOr<ValueId> AsInCall(Context& c, const OnnxNode& n, ValueId v, const std::vector<int64_t>& axes) {
  Varyings own;
  for (size_t i = 0; i < axes.size(); ++i) {
    const Varying* varying = c.VaryingAlong(n.Input(0), static_cast<int64_t>(i));
    if (varying != nullptr && c.ShapeOf(v)[static_cast<size_t>(axes[i])] > 1) own.push_back({axes[i], varying->extent});
  }
  return WithVaryings(c, v, own);
}

// Each head of queries or keys over its root mean square.
absl::StatusOr<ValueId> Normed(Context& c, const OnnxNode& n, ValueId v, size_t weight, int64_t size) {
  constexpr double kEpsilon = 1e-6;
  const double epsilon =
      n.Float(weight == kKeyNorm ? "k_norm_epsilon" : "q_norm_epsilon", n.Float("qk_norm_epsilon", kEpsilon));
  if (!(epsilon > 0) || !std::isfinite(epsilon)) return absl::InvalidArgumentError("the norms' epsilon is above 0");
  const Shape shape = c.ShapeOf(v);
  TEMPER_ASSIGN_OR_RETURN(v, c.Reshape(v, {shape[0], shape[1], shape[2] / size, size}));
  TEMPER_ASSIGN_OR_RETURN(v, Applied(c, "RMSNormalization", {v, n.Input(weight)}, {}, {{"epsilon", epsilon}}));
  return c.Reshape(v, shape);
}

absl::StatusOr<ValueId> Turned(Context& c, const OnnxNode& n, ValueId v, ValueId positions, int64_t heads) {
  const Shape& cosines = c.ShapeOf(n.Input(7));
  return Applied(c, "RotaryEmbedding", {v, n.Input(7), n.Input(8), positions},
                 {{"num_heads", heads},
                  {"interleaved", n.Int("rotary_interleaved", 0)},
                  {"rotary_embedding_dim", 2 * cosines[1]}});
}

absl::Status Turn(Context& c, const OnnxNode& n, const Sizes& s, ValueId first, Parts& p) {
  if (n.Input(7) == kNoValue || n.Input(8) == kNoValue)
    return absl::InvalidArgumentError("do_rotary needs cos_cache and sin_cache");
  const Shape& cosines = c.ShapeOf(n.Input(7));
  if (cosines.size() != 2 || cosines[1] < 1 || cosines[1] > s.size / 2 || cosines[0] < s.total ||
      c.ShapeOf(n.Input(8)) != cosines)
    return absl::InvalidArgumentError("cos_cache and sin_cache have a row for each position, of at most half a head");
  ValueId positions = n.Input(9);
  if (positions != kNoValue && c.ShapeOf(positions) != Shape{s.batch, s.steps})
    return absl::InvalidArgumentError("position_ids are [batch, sequence]");
  if (positions == kNoValue) {
    TEMPER_ASSIGN_OR_RETURN(positions, c.Reshape(first, {s.batch, 1}));
    TEMPER_ASSIGN_OR_RETURN(positions, c.Call("add", {}, {positions, Counting(c, DType::kI64, {1, s.steps})}));
    if (s.in_range) {
      TEMPER_ASSIGN_OR_RETURN(positions, AsInCall(c, n, positions, {0, 1}));
    }
  }
  TEMPER_ASSIGN_OR_RETURN(p.query, Turned(c, n, p.query, positions, s.heads));
  TEMPER_ASSIGN_OR_RETURN(p.key, Turned(c, n, p.key, positions, s.kv_heads));
  return absl::OkStatus();
}

// The cache in a range: at each place what was there, or the new step that the example has there. Nothing is where
// neither is.
absl::StatusOr<ValueId> CachedInRange(Context& c, const OnnxNode& n, const Sizes& s, ValueId past, ValueId fresh,
                                      ValueId first) {
  if (past == kNoValue || c.ShapeOf(past)[2] == 0) return ByHeads(c, fresh, s.kv_heads);
  TEMPER_RETURN_IF_ERROR(CheckPlaces({s.batch, s.cached}));
  Formula f(c, DType::kI64);
  TEMPER_ASSIGN_OR_RETURN(first, c.Reshape(first, {s.batch, 1}));
  const ValueId step = f.Sub(Counting(c, DType::kI64, {1, s.cached}), first);
  ValueId is_new = f.Call("and", {f.Call("less_equal", {f.Number(0), step}), f.Call("less", {step, s.fresh})});
  const ValueId at = f.Clip(step, 0, static_cast<double>(s.steps - 1));
  TEMPER_RETURN_IF_ERROR(f.status());
  TEMPER_RETURN_IF_ERROR(MakeWhole(c, fresh).status());
  TEMPER_ASSIGN_OR_RETURN(fresh, GatherInLines(c, fresh, at));
  TEMPER_ASSIGN_OR_RETURN(fresh, ByHeads(c, fresh, s.kv_heads));
  TEMPER_ASSIGN_OR_RETURN(past, FilledAlong(c, past, 2, 0));
  TEMPER_RETURN_IF_ERROR(MakeWhole(c, past).status());
  if (const int64_t more = s.cached - c.ShapeOf(past)[2]; more > 0) {
    TEMPER_ASSIGN_OR_RETURN(past, c.Pad(past, {0, 0, 0, 0, 0, 0, more, 0}));
  }
  TEMPER_ASSIGN_OR_RETURN(is_new, c.Reshape(is_new, {s.batch, 1, s.cached, 1}));
  TEMPER_ASSIGN_OR_RETURN(ValueId all, c.Call("where", {}, {is_new, fresh, past}));
  TEMPER_ASSIGN_OR_RETURN(all, AsInCall(c, n, all, {0}));
  return s.all == kNoValue ? all : WithVaryings(c, all, {{2, s.all}});
}

// The cache of keys or values with the new ones in it.
absl::StatusOr<ValueId> Cached(Context& c, const OnnxNode& n, const Sizes& s, ValueId past, ValueId fresh,
                               ValueId first) {
  if (s.in_range) return CachedInRange(c, n, s, past, fresh, first);
  TEMPER_ASSIGN_OR_RETURN(fresh, ByHeads(c, fresh, s.kv_heads));
  if (s.steps == s.cached) return fresh;
  const int64_t earlier = c.ShapeOf(past)[2];
  if (s.steps == s.total) {
    TEMPER_ASSIGN_OR_RETURN(past, c.Slice(past, 2, s.steps, earlier));
    return c.Concat({fresh, past}, 2);
  }
  if (earlier < s.cached) {
    TEMPER_ASSIGN_OR_RETURN(past, c.Pad(past, {0, 0, 0, 0, 0, 0, s.cached - earlier, 0}));
  }
  return Applied(c, "TensorScatter", {past, fresh, first}, {});
}

// Step i sees the steps up to itself, of them at most the last `window`, or all that there are if it is not causal:
// [batch, 1, 1, steps or 1, cached].
absl::StatusOr<ValueId> SeenBy(Context& c, const OnnxNode& n, const Sizes& s, ValueId first) {
  const int64_t given = n.Int("local_window_size", -1), window = given < 0 ? s.cached : given;
  Formula f(c, DType::kI64);
  if (n.Int("causal", 1) == 0) {
    TEMPER_ASSIGN_OR_RETURN(ValueId last, c.Cast(n.Input(5), DType::kI64));
    TEMPER_ASSIGN_OR_RETURN(last, c.Reshape(last, {s.batch, 1, 1, 1, 1}));
    TEMPER_ASSIGN_OR_RETURN(const ValueId all,
                            c.Call("less_equal", {}, {Counting(c, DType::kI64, {1, 1, 1, 1, s.cached}), last}));
    return s.all == kNoValue ? all : WithVaryings(c, all, {{4, s.all}});
  }
  TEMPER_ASSIGN_OR_RETURN(first, c.Reshape(first, {s.batch, 1, 1, 1, 1}));
  const ValueId own = f.Add(first, Counting(c, DType::kI64, {1, 1, 1, s.steps, 1}));
  const ValueId keys = Counting(c, DType::kI64, {1, 1, 1, 1, s.cached});
  ValueId seen = f.Call("less_equal", {keys, own});
  if (window < s.cached) seen = f.Call("and", {seen, f.Call("less", {own, f.Plus(keys, static_cast<double>(window))})});
  TEMPER_RETURN_IF_ERROR(f.status());
  if (!s.in_range) return seen;
  TEMPER_ASSIGN_OR_RETURN(seen, AsInCall(c, n, seen, {0, 3}));
  return s.all == kNoValue ? seen : WithVaryings(c, seen, {{4, s.all}});
}

// What is added to scores, [batch or 1, heads or 1, steps, keys], as they have their axes.
absl::StatusOr<ValueId> Bias(Context& c, const Sizes& s, ValueId bias) {
  Shape shape = c.ShapeOf(bias);
  const bool fits = shape.size() == 4 && (shape[0] == 1 || shape[0] == s.batch) &&
                    (shape[1] == 1 || shape[1] == s.heads) && shape[2] == s.steps && shape[3] <= s.cached;
  if (!fits) return absl::InvalidArgumentError("attention_bias is [batch, heads, sequence, keys]");
  if (shape[3] < s.cached) {
    TEMPER_ASSIGN_OR_RETURN(bias, c.Pad(bias, {0, 0, 0, 0, 0, 0, 0, s.cached - shape[3]}));
  }
  const bool all = shape[1] == s.heads;
  return c.Reshape(bias, {shape[0], all ? s.kv_heads : 1, all ? s.group() : 1, s.steps, s.cached});
}

// What is left of a softmax for the keys where each head has one more score, its sink, that no value belongs to:
// 1 - 1 / (1 + sum of exp(score) / exp(sink)), [batch, kv_heads, group, steps, 1]. The largest weight is one over the
// sum of exp(score - largest score).
absl::StatusOr<ValueId> BesideSink(Context& c, const OnnxNode& n, const Sizes& s, ValueId scores, ValueId weights) {
  Formula f(c, c.TypeOf(scores).dtype);
  ValueId sink = f.Number(0);
  if (n.Input(kSink) != kNoValue) {
    TEMPER_ASSIGN_OR_RETURN(sink, c.Reshape(n.Input(kSink), {1, s.kv_heads, s.group(), 1, 1}));
  }
  TEMPER_ASSIGN_OR_RETURN(const ValueId score, c.Reduce("reduce_max", scores, {4}, true));
  TEMPER_ASSIGN_OR_RETURN(const ValueId weight, c.Reduce("reduce_max", weights, {4}, true));
  const ValueId above = f.Sub(f.Sub(score, sink), f.Call("log", {weight}));
  const ValueId share = f.Call("sigmoid", {above});
  TEMPER_RETURN_IF_ERROR(f.status());
  return share;
}

// The fourth result: scores, or what softmax makes of them, of all keys that there are. Nothing where they are not
// seen.
enum class Shown : int64_t { kScores = 1, kWeights = 2 };
absl::Status Show(Context& c, const OnnxNode& n, const Sizes& s, Shown which, ValueId scores, ValueId seen) {
  if (n.Int("qk_output", 0) != static_cast<int64_t>(which)) return absl::OkStatus();
  TEMPER_ASSIGN_OR_RETURN(ValueId v, c.Call("where", {}, {seen, scores, c.Scalar(c.TypeOf(scores).dtype, 0)}));
  TEMPER_ASSIGN_OR_RETURN(v, c.Reshape(v, {s.batch, s.heads, s.steps, s.cached}));
  if (s.in_range && s.all == kNoValue)
    return absl::UnimplementedError("its scores are no result where the cache has room for more in a range");
  if (!s.in_range && s.total < s.cached) {
    TEMPER_ASSIGN_OR_RETURN(v, c.Slice(v, 3, 0, s.total));
  }
  return c.Set(n, v, 3);
}

// The heads of queries that share keys are rows of one product, or products beside one another where only the run
// knows how many steps each head has.
absl::StatusOr<ValueId> Attended(Context& c, const OnnxNode& n, const Sizes& s, ValueId query, ValueId keys,
                                 ValueId values, ValueId seen, ValueId as_given) {
  const bool apart = s.group() > 1 && c.VaryingAlong(query, 1) != nullptr;
  const auto rows = [&](int64_t columns) {
    return apart ? Shape{s.batch, s.kv_heads, s.group(), s.steps, columns}
                 : Shape{s.batch, s.kv_heads, s.group() * s.steps, columns};
  };
  if (apart) {
    TEMPER_ASSIGN_OR_RETURN(keys, c.NewAxis(keys, 2));
    TEMPER_ASSIGN_OR_RETURN(values, c.NewAxis(values, 2));
  }
  Shape pairs = {s.batch, s.kv_heads, s.group(), s.steps, s.cached};
  const DType dtype = c.TypeOf(query).dtype;
  Formula f(c, dtype);
  TEMPER_ASSIGN_OR_RETURN(query, ByHeads(c, query, s.heads));
  TEMPER_ASSIGN_OR_RETURN(query, c.Reshape(query, rows(s.size)));
  Attrs across, last;
  across.Set("trans_b", int64_t{1});
  last.Set("axis", int64_t{4});
  const double scale = n.Float("scale", 0), root = 1 / std::sqrt(static_cast<double>(s.size));
  ValueId scores = f.Times(f.Call("matmul", {query, keys}, std::move(across)), scale == 0 ? root : scale);
  if (const double cap = n.Float("softcap", 0); cap > 0)
    scores = f.Times(f.Call("tanh", {f.Times(scores, 1 / cap)}), cap);
  TEMPER_RETURN_IF_ERROR(f.status());
  TEMPER_ASSIGN_OR_RETURN(scores, c.Reshape(scores, pairs));
  if (n.Input(10) != kNoValue) {
    TEMPER_ASSIGN_OR_RETURN(const ValueId bias, Bias(c, s, n.Input(10)));
    scores = f.Add(scores, bias);
  }
  TEMPER_RETURN_IF_ERROR(Show(c, n, s, Shown::kScores, scores, seen));
  scores = f.Call("where", {seen, scores, f.Number(kUnseen)});
  ValueId weights = f.Call("softmax", {scores}, std::move(last));
  TEMPER_RETURN_IF_ERROR(f.status());
  ValueId share = kNoValue;
  if (n.Input(kSink) != kNoValue || n.Int("smooth_softmax", 0) == 1) {
    TEMPER_ASSIGN_OR_RETURN(share, BesideSink(c, n, s, scores, weights));
    TEMPER_RETURN_IF_ERROR(Show(c, n, s, Shown::kWeights, f.Mul(weights, share), seen));
    TEMPER_ASSIGN_OR_RETURN(share, c.Reshape(share, rows(1)));
  } else {
    TEMPER_RETURN_IF_ERROR(Show(c, n, s, Shown::kWeights, weights, seen));
  }
  TEMPER_ASSIGN_OR_RETURN(weights, c.Reshape(weights, rows(s.cached)));
  TEMPER_ASSIGN_OR_RETURN(ValueId y, c.Call("matmul", {}, {weights, values}));
  if (share != kNoValue) {
    TEMPER_ASSIGN_OR_RETURN(y, c.Call("mul", {}, {y, share}));
  }
  TEMPER_ASSIGN_OR_RETURN(y, c.Reshape(y, {s.batch, s.heads, s.steps, s.size}));
  TEMPER_ASSIGN_OR_RETURN(const ValueId queries, ByHeads(c, as_given, s.heads));
  TEMPER_ASSIGN_OR_RETURN(y, QueriesBehind(c, y, queries));
  TEMPER_ASSIGN_OR_RETURN(y, c.Transpose(y, {0, 2, 1, 3}));
  return c.Reshape(y, {s.batch, s.steps, s.heads * s.size});
}

// What the cache has when all lengths are known: it grows by the steps, or has room for them.
absl::Status SetKnown(Context& c, const OnnxNode& n, Sizes& s, int64_t earlier) {
  TEMPER_ASSIGN_OR_RETURN(s.total, c.KnownInt(n.Input(6), "total_sequence_length"));
  if (s.total < s.steps || (s.total > earlier && s.total - s.steps != earlier))
    return absl::InvalidArgumentError(
        absl::StrCat("total_sequence_length ", s.total, " does not fit ", s.steps, " steps behind ", earlier));
  s.cached = std::max(s.total, earlier);
  return absl::OkStatus();
}

// The same in a range. A cache of known length that has room for all has room for the most; another one grows, so that
// total_sequence_length is no other number than the sum.
absl::Status SetExtents(Context& c, const OnnxNode& n, Sizes& s, int64_t earlier) {
  const ValueId past = n.Input(3);
  const Varying* fresh = c.VaryingAlong(n.Input(0), 1);
  const Varying* before = past == kNoValue ? nullptr : c.VaryingAlong(past, 2);
  s.in_range = true;
  s.fresh = fresh != nullptr ? fresh->extent : c.Scalar(DType::kI64, static_cast<double>(s.steps));
  s.past = before != nullptr ? before->extent : c.Scalar(DType::kI64, static_cast<double>(earlier));
  const absl::StatusOr<Dims> told = DimsOf(c, n.Input(6), "total_sequence_length");
  if (!told.ok() && before == nullptr) return told.status();
  TEMPER_ASSIGN_OR_RETURN(ValueId total, c.Cast(n.Input(6), DType::kI64));
  TEMPER_ASSIGN_OR_RETURN(total, c.Reshape(total, {}));
  if (told.ok() && !told->varyings.empty()) total = told->varyings[0].extent;
  const bool has_room = before == nullptr && told->most[0] <= earlier;
  s.cached = has_room ? earlier : earlier + s.steps;
  s.total = told.ok() ? std::min(told->most[0], s.cached) : s.cached;
  if (s.total < 1) return absl::InvalidArgumentError("total_sequence_length is at least 1");
  if (has_room) {
    TEMPER_ASSIGN_OR_RETURN(const ValueId larger, c.Call("max", {}, {s.fresh, total}));
    c.MustAgree(larger, total);
    return absl::OkStatus();
  }
  ValueId all = c.Scalar(DType::kI64, static_cast<double>(s.cached));
  if (fresh != nullptr && before != nullptr) {
    TEMPER_ASSIGN_OR_RETURN(all, SumOfExtents(c, s.past, s.fresh));
  } else if (fresh != nullptr || before != nullptr) {
    const int64_t known = fresh != nullptr ? earlier : s.steps;
    TEMPER_ASSIGN_OR_RETURN(all, StopsOf(c, fresh != nullptr ? s.fresh : s.past, known - 1, 1));
  }
  if (total != all) c.MustAgree(total, all);
  // Of what an input tells kernels know more than of a sum.
  const bool is_told = told.ok() && !told->varyings.empty() && told->most[0] <= s.cached;
  if (fresh != nullptr || before != nullptr) s.all = is_told ? total : all;
  return absl::OkStatus();
}

// Examples and steps are as many in each operand.
absl::Status CheckExtents(Context& c, const OnnxNode& n) {
  TEMPER_RETURN_IF_ERROR(MustBeKnownAlong(c, n.Input(0), {-1}, "an attention"));
  const auto alike = [&](size_t operand, int64_t axis) {
    const Varying* one = c.VaryingAlong(n.Input(0), axis);
    const Varying* other = c.VaryingAlong(n.Input(operand), axis);
    return one == nullptr ? other == nullptr : other != nullptr && *one == *other;
  };
  for (const size_t i : {0, 1, 2, 3, 4, 5}) {
    if (n.Input(i) == kNoValue) continue;
    TEMPER_RETURN_IF_ERROR(MustBeOneLine(c, n.Input(i), "an attention"));
    if (!alike(i, 0) || (i < 3 && !alike(i, 1)))
      return absl::UnimplementedError("queries, keys, values and their cache have extents of their own");
  }
  const ValueId keys = n.Input(3), values = n.Input(4);
  const bool known = keys == kNoValue || values == kNoValue || c.VaryingsOf(keys) == c.VaryingsOf(values);
  return known ? absl::OkStatus() : absl::UnimplementedError("keys and values of a cache have extents of their own");
}

// The lengths of the call's steps and of its cache.
absl::Status SetLengths(Context& c, const OnnxNode& n, Sizes& s) {
  const ValueId past_key = n.Input(3), past_value = n.Input(4);
  int64_t earlier = 0;
  if (past_key != kNoValue || past_value != kNoValue) {
    const Shape past = past_key == kNoValue ? Shape() : c.ShapeOf(past_key);
    if (past_value == kNoValue || past.size() != 4 || c.ShapeOf(past_value) != past || past[0] != s.batch ||
        past[1] != s.kv_heads || past[3] != s.size)
      return absl::InvalidArgumentError("earlier keys and values are [batch, kv_num_heads, sequence, size]");
    earlier = past[2];
  }
  for (const size_t i : {5, 6}) {
    if (n.Input(i) == kNoValue) return absl::InvalidArgumentError("seqlens_k and total_sequence_length are missing");
    if (IsFloat(c.TypeOf(n.Input(i)).dtype))
      return absl::InvalidArgumentError("seqlens_k and total_sequence_length are integers");
  }
  if (NumElements(c.ShapeOf(n.Input(5))) != s.batch)
    return absl::InvalidArgumentError("seqlens_k has one number a batch element");
  const bool varies =
      c.VaryingAlong(n.Input(0), 1) != nullptr || (past_key != kNoValue && c.VaryingAlong(past_key, 2) != nullptr);
  if (NumElements(c.ShapeOf(n.Input(6))) != 1) return absl::InvalidArgumentError("total_sequence_length is one number");
  if (varies || c.Known(n.Input(6)) == nullptr) {
    TEMPER_RETURN_IF_ERROR(CheckExtents(c, n));
    TEMPER_RETURN_IF_ERROR(SetExtents(c, n, s, earlier));
  } else {
    TEMPER_RETURN_IF_ERROR(SetKnown(c, n, s, earlier));
  }
  if (s.batch < 1 || s.steps < 1 || s.cached > kMostCompared / s.steps / s.batch)
    return absl::UnimplementedError(absl::StrCat("a mask of ", s.steps, " x ", s.cached, " is not supported"));
  return absl::OkStatus();
}

absl::Status GroupQueryAttention(Context& c, const OnnxNode& n) {
  TEMPER_RETURN_IF_ERROR(CheckSupported(n));
  Sizes s;
  TEMPER_ASSIGN_OR_RETURN(Parts p, PartsOf(c, n, s));
  TEMPER_RETURN_IF_ERROR(SetLengths(c, n, s));
  TEMPER_RETURN_IF_ERROR(CheckValues(c, n, s));
  TEMPER_ASSIGN_OR_RETURN(const ValueId first, FirstOf(c, n, s));
  const ValueId as_given = p.query;
  if (n.Input(kQueryNorm) != kNoValue) {
    TEMPER_ASSIGN_OR_RETURN(p.query, Normed(c, n, p.query, kQueryNorm, s.size));
    TEMPER_ASSIGN_OR_RETURN(p.key, Normed(c, n, p.key, kKeyNorm, s.size));
  }
  if (n.Int("do_rotary", 0) != 0) {
    TEMPER_RETURN_IF_ERROR(Turn(c, n, s, first, p));
  }
  TEMPER_ASSIGN_OR_RETURN(const ValueId keys, Cached(c, n, s, n.Input(3), p.key, first));
  TEMPER_ASSIGN_OR_RETURN(const ValueId values, Cached(c, n, s, n.Input(4), p.value, first));
  TEMPER_ASSIGN_OR_RETURN(const ValueId seen, SeenBy(c, n, s, first));
  TEMPER_ASSIGN_OR_RETURN(const ValueId y, Attended(c, n, s, p.query, keys, values, seen, as_given));
  TEMPER_RETURN_IF_ERROR(c.Set(n, y));
  TEMPER_RETURN_IF_ERROR(c.Set(n, keys, 1));
  return c.Set(n, values, 2);
}

}  // namespace

std::span<const TableEntry> GroupAttentionTable() {
  static constexpr TableEntry kTable[] = {{"GroupQueryAttention", GroupQueryAttention, 1, Extents::kAlongAnyAxis},
                                          {"LinearAttention", LinearAttention, 3},
                                          {"CausalConvWithState", CausalConvWithState, 2},
                                          {"MoE", MixtureOfExperts, 3}};
  return kTable;
}

}  // namespace temper::onnx_frontend
