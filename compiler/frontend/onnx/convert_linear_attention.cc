// Linear attention, whose state each token changes, and the convolution before it. Tokens go chunk by chunk: what those
// of a chunk do to one another is a few products for all chunks at once, and only the state goes from chunk to chunk.
//
// Token t makes S of the state: diag(a) S + k u', where u = b (v - (diag(a) S)' k) where the rule corrects what the
// state holds, or else v. With S0 the state before the chunk and A the product of its decays so far, all u of a chunk
// solve u_t + b_t sum_{s<t} (k_t . k_s A_t / A_s) u_s = b_t (v_t - S0' (A_t k_t)), which is a triangular system.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "compiler/frontend/onnx/formula.h"
#include "compiler/frontend/onnx/language.h"
#include "compiler/frontend/onnx/window.h"

namespace temper::onnx_frontend {
namespace {

constexpr int64_t kMostChunks = 4096;

// A call. Operands are [batch, heads, chunks, chunk, size], with zeros behind the last token; what is left out is
// kNoValue. `decay` are logarithms, for each element of a key or for all.
struct Linear {
  DType dtype = DType::kF32;
  int64_t batch = 0, tokens = 0, heads = 0, queries = 0, key_size = 0, value_size = 0, chunk = 1, chunks = 1;
  ValueId query = kNoValue, key = kNoValue, value = kNoValue, decay = kNoValue, beta = kNoValue;
  int64_t group() const { return queries / heads; }
};

// [batch, tokens, heads * size] by heads and chunks.
absl::StatusOr<ValueId> InChunks(Context& c, const Linear& l, ValueId v, int64_t heads) {
  const int64_t size = c.ShapeOf(v)[2] / heads, missing = l.chunks * l.chunk - l.tokens;
  TEMPER_ASSIGN_OR_RETURN(v, c.Cast(v, l.dtype));
  if (missing > 0) {
    TEMPER_ASSIGN_OR_RETURN(v, c.Pad(v, {0, 0, 0, 0, missing, 0}));
  }
  TEMPER_ASSIGN_OR_RETURN(v, c.Reshape(v, {l.batch, l.chunks, l.chunk, heads, size}));
  return c.Transpose(v, {0, 3, 1, 2, 4});
}

bool Gates(const std::string& rule) { return rule == "gated" || rule == "gated_delta"; }
bool Corrects(const std::string& rule) { return rule == "delta" || rule == "gated_delta"; }

absl::Status CheckRule(const OnnxNode& n, const std::string& rule) {
  if (!Gates(rule) && !Corrects(rule) && rule != "linear")
    return absl::InvalidArgumentError("update_rule is 'linear', 'gated', 'delta' or 'gated_delta'");
  if ((n.Input(4) != kNoValue) != Gates(rule))
    return absl::InvalidArgumentError("a decay comes with the rules 'gated' and 'gated_delta' alone");
  if ((n.Input(5) != kNoValue) != Corrects(rule))
    return absl::InvalidArgumentError("beta comes with the rules 'delta' and 'gated_delta' alone");
  if (n.Int("state_window", 0) != 0) return absl::UnimplementedError("state_window is not supported");
  if (!std::isfinite(n.Float("scale", 0))) return absl::InvalidArgumentError("scale is finite");
  return absl::OkStatus();
}

absl::StatusOr<Linear> LinearSizesOf(Context& c, const OnnxNode& n) {
  const Shape query = c.ShapeOf(n.Input(0)), key = c.ShapeOf(n.Input(1)), value = c.ShapeOf(n.Input(2));
  Linear l;
  l.queries = n.Int("q_num_heads", 0), l.heads = n.Int("kv_num_heads", 0);
  if (l.queries < 1 || l.heads < 1 || (l.queries % l.heads != 0 && l.heads % l.queries != 0))
    return absl::InvalidArgumentError("q_num_heads is a multiple of kv_num_heads");
  const bool fits = query.size() == 3 && key.size() == 3 && value.size() == 3 && query[2] % l.queries == 0 &&
                    key == Shape{query[0], query[1], query[2] / l.queries * l.heads} && value[0] == query[0] &&
                    value[1] == query[1] && value[2] % l.heads == 0 && NumElements(query) > 0 && value[2] > 0;
  if (!fits)
    return absl::InvalidArgumentError(
        "takes queries, keys and values of [batch, sequence, heads * size], where queries and keys are of one size");
  l.dtype = c.TypeOf(n.Input(0)).dtype == DType::kF64 ? DType::kF64 : DType::kF32;
  l.batch = query[0], l.tokens = query[1], l.key_size = query[2] / l.queries, l.value_size = value[2] / l.heads;
  // Decays of their own for each element of a key make a product of as many numbers for each pair of tokens.
  constexpr int64_t kChunk = 64, kSmallChunk = 16;
  const Shape decay = n.Input(4) == kNoValue ? Shape() : c.ShapeOf(n.Input(4));
  const bool by_element = !decay.empty() && decay.back() != l.heads;
  l.chunk = std::min(l.tokens, by_element ? kSmallChunk : kChunk);
  l.chunks = (l.tokens + l.chunk - 1) / l.chunk;
  if (l.chunks > kMostChunks)
    return absl::UnimplementedError(absl::StrCat("more than ", kMostChunks * l.chunk, " tokens are not supported"));
  return l;
}

// Query heads are rows of one product where they share keys; [batch, heads, chunks, group, chunk, size].
absl::StatusOr<ValueId> QueriesInChunks(Context& c, const OnnxNode& n, const Linear& l) {
  TEMPER_ASSIGN_OR_RETURN(ValueId v, InChunks(c, l, n.Input(0), l.queries));
  if (l.queries < l.heads) {
    const int64_t shared = l.heads / l.queries;
    TEMPER_ASSIGN_OR_RETURN(v, c.NewAxis(v, 2));
    TEMPER_ASSIGN_OR_RETURN(v, c.Expand(v, {l.batch, l.queries, shared, l.chunks, l.chunk, l.key_size}));
    return c.Reshape(v, {l.batch, l.heads, l.chunks, 1, l.chunk, l.key_size});
  }
  TEMPER_ASSIGN_OR_RETURN(v, c.Reshape(v, {l.batch, l.heads, l.group(), l.chunks, l.chunk, l.key_size}));
  return c.Transpose(v, {0, 1, 3, 2, 4, 5});
}

absl::StatusOr<Linear> LinearOf(Context& c, const OnnxNode& n) {
  TEMPER_RETURN_IF_ERROR(CheckRule(n, n.String("update_rule", "gated_delta")));
  TEMPER_ASSIGN_OR_RETURN(Linear l, LinearSizesOf(c, n));
  const auto beside = [&](ValueId v, std::initializer_list<int64_t> sizes) {
    const Shape& shape = c.ShapeOf(v);
    return shape.size() == 3 && shape[0] == l.batch && shape[1] == l.tokens &&
           std::ranges::find(sizes, shape[2]) != sizes.end();
  };
  TEMPER_ASSIGN_OR_RETURN(l.query, QueriesInChunks(c, n, l));
  TEMPER_ASSIGN_OR_RETURN(l.key, InChunks(c, l, n.Input(1), l.heads));
  TEMPER_ASSIGN_OR_RETURN(l.value, InChunks(c, l, n.Input(2), l.heads));
  if (n.Input(4) != kNoValue) {
    if (!beside(n.Input(4), {l.heads, l.heads * l.key_size}))
      return absl::InvalidArgumentError("the decay has a number a head, or one for each element of a key");
    TEMPER_ASSIGN_OR_RETURN(l.decay, InChunks(c, l, n.Input(4), l.heads));
    Attrs along;
    along.Set("axis", int64_t{3});
    TEMPER_ASSIGN_OR_RETURN(l.decay, c.Call("cum_sum", std::move(along), {l.decay}));
  }
  if (n.Input(5) != kNoValue) {
    if (!beside(n.Input(5), {l.heads, 1}))
      return absl::InvalidArgumentError("beta has a number a head, or one for all");
    TEMPER_ASSIGN_OR_RETURN(l.beta, InChunks(c, l, n.Input(5), c.ShapeOf(n.Input(5))[2]));
  }
  return l;
}

// Where the column is before the row, or is the row itself if that counts: [chunk, chunk].
ValueId Earlier(Context& c, int64_t chunk, bool itself) {
  NDArray mask(DType::kBool, {chunk, chunk});
  for (int64_t i = 0; i < mask.size(); ++i) {
    const int64_t row = i / chunk, column = i % chunk;
    mask.Set(i, column < row || (itself && column == row) ? 1 : 0);
  }
  return c.Constant(std::move(mask));
}

// Products of `rows` with the keys of tokens before, or up to, their own, each under the decay between the two:
// [..., group, chunk, size] gives [batch, heads, chunks, group, chunk, chunk].
absl::StatusOr<ValueId> PairsInChunks(Context& c, const Linear& l, ValueId rows, bool itself) {
  Formula f(c, l.dtype);
  const int64_t group = c.ShapeOf(rows)[3];
  const ValueId mask = Earlier(c, l.chunk, itself);
  const bool by_element = l.decay != kNoValue && c.ShapeOf(l.decay)[4] > 1;
  ValueId between = kNoValue;
  if (l.decay != kNoValue) {  // [batch, heads, chunks, 1, row, column, size]
    const int64_t size = c.ShapeOf(l.decay)[4];
    TEMPER_ASSIGN_OR_RETURN(const ValueId row, c.Reshape(l.decay, {l.batch, l.heads, l.chunks, 1, l.chunk, 1, size}));
    TEMPER_ASSIGN_OR_RETURN(const ValueId column,
                            c.Reshape(l.decay, {l.batch, l.heads, l.chunks, 1, 1, l.chunk, size}));
    between = f.Call("exp", {f.Sub(row, column)});
    TEMPER_RETURN_IF_ERROR(f.status());
  }
  ValueId v = kNoValue;
  if (by_element) {
    TEMPER_ASSIGN_OR_RETURN(rows, c.Reshape(rows, {l.batch, l.heads, l.chunks, group, l.chunk, 1, l.key_size}));
    TEMPER_ASSIGN_OR_RETURN(const ValueId keys,
                            c.Reshape(l.key, {l.batch, l.heads, l.chunks, 1, 1, l.chunk, l.key_size}));
    TEMPER_ASSIGN_OR_RETURN(v, c.Reduce("reduce_sum", f.Mul(f.Mul(rows, keys), between), {6}, false));
  } else {
    Attrs across;
    across.Set("trans_b", int64_t{1});
    TEMPER_ASSIGN_OR_RETURN(rows, c.Reshape(rows, {l.batch, l.heads, l.chunks, group * l.chunk, l.key_size}));
    TEMPER_ASSIGN_OR_RETURN(v, c.Call("matmul", std::move(across), {rows, l.key}));
    TEMPER_ASSIGN_OR_RETURN(v, c.Reshape(v, {l.batch, l.heads, l.chunks, group, l.chunk, l.chunk}));
    if (between != kNoValue) {
      TEMPER_ASSIGN_OR_RETURN(between, c.Reshape(between, {l.batch, l.heads, l.chunks, 1, l.chunk, l.chunk}));
      v = f.Mul(v, between);
    }
  }
  v = f.Call("where", {mask, v, f.Number(0)});
  TEMPER_RETURN_IF_ERROR(f.status());
  return v;
}

// The inverse of 1 + `lower`, which has nothing on its diagonal and above it: that of blocks of 1, 2, 4, ... rows, each
// from those of its two halves.
absl::StatusOr<ValueId> Inverse(Context& c, const Linear& l, ValueId lower) {
  Formula f(c, l.dtype);
  NDArray one(l.dtype, {l.chunk, l.chunk});
  for (int64_t i = 0; i < l.chunk; ++i) one.Set(i * l.chunk + i, 1);
  ValueId inverse = c.Constant(std::move(one));
  for (int64_t half = 1; half < l.chunk; half *= 2) {
    NDArray corners(DType::kBool, {l.chunk, l.chunk});
    for (int64_t i = 0; i < corners.size(); ++i) {
      const int64_t row = i / l.chunk / half, column = i % l.chunk / half;
      corners.Set(i, row % 2 == 1 && column == row - 1 ? 1 : 0);
    }
    const ValueId corner = f.Call("where", {c.Constant(std::move(corners)), lower, f.Number(0)});
    if (half == 1) {
      inverse = f.Sub(inverse, corner);
      continue;
    }
    const ValueId left = f.Call("matmul", {inverse, corner});
    inverse = f.Sub(inverse, f.Call("matmul", {left, inverse}));
  }
  TEMPER_RETURN_IF_ERROR(f.status());
  return inverse;
}

// What the state does to each chunk, and each chunk to it, with what decays on the way.
struct Chunks {
  ValueId fresh = kNoValue;      // u where the state is nothing: [batch, heads, chunks, chunk, value_size]
  ValueId corrected = kNoValue;  // what u loses by the state: [..., chunk, key_size]; kNoValue if nothing
  ValueId asked = kNoValue;      // queries of the state: [..., group * chunk, key_size]
  ValueId pairs = kNoValue;      // queries of u: [..., group * chunk, chunk]
  ValueId written = kNoValue;    // keys that the next state has: [..., chunk, key_size]
  ValueId kept = kNoValue;       // the share of the state that stays: [..., 1 or key_size, 1]; kNoValue if all does
};

absl::StatusOr<Chunks> ChunksOf(Context& c, const Linear& l, double scale) {
  Formula f(c, l.dtype);
  Chunks k;
  const ValueId query = f.Times(l.query, scale);
  k.fresh = l.value, k.written = l.key, k.asked = query;
  TEMPER_RETURN_IF_ERROR(f.status());
  const int64_t group = c.ShapeOf(query)[3];
  ValueId so_far = kNoValue, seen = l.key;
  if (l.decay != kNoValue) {
    so_far = f.Call("exp", {l.decay});
    TEMPER_RETURN_IF_ERROR(f.status());
    TEMPER_ASSIGN_OR_RETURN(const ValueId last, c.Slice(l.decay, 3, l.chunk - 1, l.chunk));
    k.written = f.Mul(l.key, f.Call("exp", {f.Sub(last, l.decay)}));
    seen = f.Mul(l.key, so_far);
    TEMPER_ASSIGN_OR_RETURN(const ValueId apart, c.NewAxis(so_far, 3));
    k.asked = f.Mul(query, apart);
    TEMPER_ASSIGN_OR_RETURN(k.kept, c.Reshape(last, {l.batch, l.heads, l.chunks, c.ShapeOf(last)[4], 1}));
    k.kept = f.Call("exp", {k.kept});
  }
  TEMPER_RETURN_IF_ERROR(f.status());
  TEMPER_ASSIGN_OR_RETURN(k.pairs, PairsInChunks(c, l, query, /*itself=*/true));
  TEMPER_ASSIGN_OR_RETURN(k.pairs, c.Reshape(k.pairs, {l.batch, l.heads, l.chunks, group * l.chunk, l.chunk}));
  TEMPER_ASSIGN_OR_RETURN(k.asked, c.Reshape(k.asked, {l.batch, l.heads, l.chunks, group * l.chunk, l.key_size}));
  if (l.beta == kNoValue) return k;
  TEMPER_ASSIGN_OR_RETURN(const ValueId keys, c.NewAxis(l.key, 3));
  TEMPER_ASSIGN_OR_RETURN(ValueId lower, PairsInChunks(c, l, keys, /*itself=*/false));
  TEMPER_ASSIGN_OR_RETURN(lower, c.Reshape(lower, {l.batch, l.heads, l.chunks, l.chunk, l.chunk}));
  TEMPER_ASSIGN_OR_RETURN(const ValueId inverse, Inverse(c, l, f.Mul(lower, l.beta)));
  k.fresh = f.Call("matmul", {inverse, f.Mul(l.value, l.beta)});
  k.corrected = f.Call("matmul", {inverse, f.Mul(seen, l.beta)});
  TEMPER_RETURN_IF_ERROR(f.status());
  return k;
}

// The chunks one by one. `state` becomes the last state; the results are [batch, heads, group * chunk, value_size]
// each.
absl::StatusOr<std::vector<ValueId>> RunChunks(Context& c, const Linear& l, const Chunks& k, ValueId& state) {
  Formula f(c, l.dtype);
  std::vector<ValueId> results;
  for (int64_t i = 0; i < l.chunks; ++i) {
    TEMPER_ASSIGN_OR_RETURN(ValueId u, c.Element(k.fresh, 2, i));
    if (k.corrected != kNoValue) {
      TEMPER_ASSIGN_OR_RETURN(const ValueId corrected, c.Element(k.corrected, 2, i));
      u = f.Sub(u, f.Call("matmul", {corrected, state}));
    }
    TEMPER_ASSIGN_OR_RETURN(const ValueId asked, c.Element(k.asked, 2, i));
    TEMPER_ASSIGN_OR_RETURN(const ValueId pairs, c.Element(k.pairs, 2, i));
    results.push_back(f.Add(f.Call("matmul", {asked, state}), f.Call("matmul", {pairs, u})));
    if (k.kept != kNoValue) {
      TEMPER_ASSIGN_OR_RETURN(const ValueId kept, c.Element(k.kept, 2, i));
      state = f.Mul(state, kept);
    }
    Attrs across;
    across.Set("trans_a", int64_t{1});
    TEMPER_ASSIGN_OR_RETURN(const ValueId written, c.Element(k.written, 2, i));
    state = f.Add(state, f.Call("matmul", {written, u}, std::move(across)));
    TEMPER_RETURN_IF_ERROR(f.status());
  }
  return results;
}

}  // namespace

absl::Status LinearAttention(Context& c, const OnnxNode& n) {
  TEMPER_ASSIGN_OR_RETURN(const Linear l, LinearOf(c, n));
  const DType dtype = c.TypeOf(n.Input(0)).dtype;
  const Shape of_state = {l.batch, l.heads, l.key_size, l.value_size};
  ValueId state = n.Input(3);
  const DType state_dtype = state == kNoValue ? dtype : c.TypeOf(state).dtype;
  if (state == kNoValue) state = c.Constant(NDArray(l.dtype, of_state));
  if (c.ShapeOf(state) != of_state)
    return absl::InvalidArgumentError(absl::StrCat("the state is [", ShapeText(of_state), "]"));
  TEMPER_ASSIGN_OR_RETURN(state, c.Cast(state, l.dtype));
  const double stated = n.Float("scale", 0);
  const double scale = stated == 0 ? 1 / std::sqrt(static_cast<double>(l.key_size)) : stated;
  TEMPER_ASSIGN_OR_RETURN(const Chunks k, ChunksOf(c, l, scale));
  TEMPER_ASSIGN_OR_RETURN(std::vector<ValueId> results, RunChunks(c, l, k, state));
  const int64_t group = c.ShapeOf(l.query)[3];
  for (ValueId& v : results) {  // by token
    TEMPER_ASSIGN_OR_RETURN(v, c.Reshape(v, {l.batch, l.heads, group, l.chunk, l.value_size}));
    TEMPER_ASSIGN_OR_RETURN(v, c.Transpose(v, {0, 3, 1, 2, 4}));
  }
  TEMPER_ASSIGN_OR_RETURN(ValueId y, c.Concat(std::move(results), 1));
  if (l.chunks * l.chunk > l.tokens) {
    TEMPER_ASSIGN_OR_RETURN(y, c.Slice(y, 1, 0, l.tokens));
  }
  TEMPER_ASSIGN_OR_RETURN(y, c.Reshape(y, {l.batch, l.tokens, l.heads * group * l.value_size}));
  TEMPER_ASSIGN_OR_RETURN(y, c.Cast(y, dtype));
  TEMPER_ASSIGN_OR_RETURN(state, c.Cast(state, state_dtype));
  TEMPER_RETURN_IF_ERROR(c.Set(n, y));
  return c.Set(n, state, 1);
}

namespace {

// What com.microsoft's operator has beyond ONNX's, and is not supported.
absl::Status CheckCausalConv(const OnnxNode& n) {
  for (const char* name :
       {"state_update_capacity", "state_window", "state_length", "input_channel_offset", "input_channels"}) {
    if (n.Int(name, 0) != 0) return absl::UnimplementedError(absl::StrCat(name, " is not supported"));
  }
  const int64_t states = n.Int("state_channels_last", -1);
  if (n.Int("ndim", 1) != 1) return absl::UnimplementedError("only ndim=1 is supported");
  if (states != -1 && states != n.Int("channels_last", 0))
    return absl::UnimplementedError("state_channels_last is supported as channels_last is alone");
  return absl::OkStatus();
}

}  // namespace

absl::Status CausalConvWithState(Context& c, const OnnxNode& n) {
  TEMPER_RETURN_IF_ERROR(CheckCausalConv(n));
  const std::string activation = n.String("activation", "none");
  if (activation != "none" && activation != "silu" && activation != "swish")
    return absl::InvalidArgumentError("activation is 'none', 'silu' or 'swish'");
  const Shape given = c.ShapeOf(n.Input(0)), weight = c.ShapeOf(n.Input(1));
  const bool channels_last = n.Int("channels_last", 0) != 0;
  const int64_t dilation = n.Int("dilation", 1);
  if (given.size() < 3 || (given.size() > 3 && !channels_last) || dilation < 1)
    return absl::InvalidArgumentError("takes [batch, channels, length], and a dilation of at least 1");
  const int64_t channels = channels_last ? NumElements(std::span(given).subspan(2)) : given[1];
  const int64_t length = channels_last ? given[1] : given[2];
  if (weight.size() != 3 || weight[0] != channels || weight[1] != 1 || weight[2] < 1 || NumElements(given) < 1)
    return absl::InvalidArgumentError(absl::StrCat("the weight is [", channels, ", 1, taps]"));
  if (n.Input(2) != kNoValue && c.ShapeOf(n.Input(2)) != Shape{channels})
    return absl::InvalidArgumentError(absl::StrCat("the bias is [", channels, "]"));
  const int64_t kept = (weight[2] - 1) * dilation;
  Shape of_state = given;
  of_state[channels_last ? 1 : 2] = kept;
  const DType dtype = c.TypeOf(n.Input(0)).dtype;
  ValueId state = n.Input(3);
  if (state == kNoValue) state = c.Constant(NDArray(dtype, of_state));
  if (c.ShapeOf(state) != of_state)
    return absl::InvalidArgumentError(absl::StrCat("the state is [", ShapeText(of_state), "]"));
  const int64_t along = channels_last ? 1 : 2;
  TEMPER_ASSIGN_OR_RETURN(const ValueId all, c.Concat({state, n.Input(0)}, along));
  TEMPER_ASSIGN_OR_RETURN(const ValueId present, c.Slice(all, along, length, length + kept));
  ValueId x = all;
  if (channels_last) {
    TEMPER_ASSIGN_OR_RETURN(x, c.Reshape(all, {given[0], length + kept, channels}));
    TEMPER_ASSIGN_OR_RETURN(x, c.Transpose(x, {0, 2, 1}));
  }
  TEMPER_ASSIGN_OR_RETURN(x, c.Reshape(x, {given[0], channels, 1, length + kept}));
  TEMPER_ASSIGN_OR_RETURN(const ValueId filters, c.Reshape(n.Input(1), {channels, 1, 1, weight[2]}));
  Attrs attrs = WindowAttrs({{1, weight[2]}, {1, 1}, {1, dilation}, {0, 0, 0, 0}});
  attrs.Set("group", channels);
  TEMPER_ASSIGN_OR_RETURN(ValueId y, c.Call("conv2d", std::move(attrs), {x, filters}));
  TEMPER_ASSIGN_OR_RETURN(y, AddBias(c, y, n.Input(2)));
  if (activation != "none") {
    TEMPER_ASSIGN_OR_RETURN(const ValueId share, c.Call("sigmoid", {}, {y}));
    TEMPER_ASSIGN_OR_RETURN(y, c.Call("mul", {}, {y, share}));
  }
  if (channels_last) {
    TEMPER_ASSIGN_OR_RETURN(y, c.Reshape(y, {given[0], channels, length}));
    TEMPER_ASSIGN_OR_RETURN(y, c.Transpose(y, {0, 2, 1}));
  }
  TEMPER_ASSIGN_OR_RETURN(y, c.Reshape(y, given));
  TEMPER_RETURN_IF_ERROR(c.Set(n, y));
  return c.Set(n, present, 1);
}

}  // namespace temper::onnx_frontend
