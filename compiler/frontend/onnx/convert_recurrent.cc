// LSTM, GRU and RNN, unrolled: a sequence's length is known, so that each step is operators like any others and is
// fused, tuned and packed as they are. What does not wait for the step before, the product with the inputs, is one
// product for all steps.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "compiler/frontend/onnx/activation.h"
#include "compiler/frontend/onnx/extents.h"
#include "compiler/frontend/onnx/formula.h"
#include "compiler/frontend/onnx/places.h"

namespace temper::onnx_frontend {
namespace {

constexpr int64_t kMostSteps = 4096;

// One direction of the operator. Gates lie behind one another along the axis of 4, 3 or 1 times `hidden`.
struct Direction {
  ValueId input_gates;      // f32[steps, batch, gates]: of all steps, with the biases that can be added ahead
  ValueId recurrence;       // f32[gates, hidden]
  ValueId recurrence_bias;  // f32[gates]; kNoValue if there is none or it is in input_gates
  // The last gate's part of both, which is then missing there, in a GRU that resets the state before its product.
  ValueId candidate = kNoValue, candidate_bias = kNoValue;
  ValueId h, c;  // f32[batch, hidden]: the state; c of an LSTM only
  int64_t hidden;
  std::vector<Activation> activations;  // as the kind has them
  double clip = 0;                      // bounds what goes into an activation on both sides; 0: nothing does
  ValueId peepholes[3] = {kNoValue, kNoValue, kNoValue};  // f32[hidden] of an LSTM's input, output and forget gate
  bool forgets_what_comes_in = false;                     // the forget gate is 1 - the input gate
};

absl::StatusOr<ValueId> Binary(Context& c, const char* op, ValueId a, ValueId b) { return c.Call(op, {}, {a, b}); }

absl::StatusOr<ValueId> TimesTransposed(Context& c, ValueId a, ValueId b) {
  Attrs attrs;
  attrs.Set("trans_b", int64_t{1});
  return c.Call("matmul", std::move(attrs), {a, b});
}

absl::StatusOr<ValueId> Gate(Context& c, const Direction& d, ValueId gates, int64_t i) {
  return c.Slice(gates, c.Rank(gates) - 1, i * d.hidden, (i + 1) * d.hidden);
}

// The i-th activation of a direction.
absl::StatusOr<ValueId> Activated(Context& c, const Direction& d, size_t i, ValueId v) {
  Formula f(c, c.TypeOf(v).dtype);
  if (d.clip > 0) v = f.Clip(v, -d.clip, d.clip);
  v = Activate(f, d.activations[i], v);
  TEMPER_RETURN_IF_ERROR(f.status());
  return v;
}

// A gate of an LSTM, that looks at a state of its cell if there are peepholes.
absl::StatusOr<ValueId> LstmGate(Context& c, const Direction& d, ValueId gates, int64_t i, ValueId cell) {
  TEMPER_ASSIGN_OR_RETURN(ValueId gate, Gate(c, d, gates, i));
  if (const ValueId peephole = d.peepholes[i]; peephole != kNoValue) {
    TEMPER_ASSIGN_OR_RETURN(const ValueId seen, Binary(c, "mul", peephole, cell));
    TEMPER_ASSIGN_OR_RETURN(gate, Binary(c, "add", gate, seen));
  }
  return Activated(c, d, 0, gate);
}

// A step replaces the state. `x`: f32[batch, gates], its inputs' part of the gates.
absl::Status LstmStep(Context& c, Direction& d, ValueId x) {
  TEMPER_ASSIGN_OR_RETURN(ValueId gates, TimesTransposed(c, d.h, d.recurrence));
  TEMPER_ASSIGN_OR_RETURN(gates, Binary(c, "add", gates, x));
  TEMPER_ASSIGN_OR_RETURN(const ValueId input, LstmGate(c, d, gates, 0, d.c));
  ValueId forget = kNoValue;
  if (d.forgets_what_comes_in) {
    TEMPER_ASSIGN_OR_RETURN(forget, Binary(c, "sub", c.Scalar(c.TypeOf(input).dtype, 1), input));
  } else {
    TEMPER_ASSIGN_OR_RETURN(forget, LstmGate(c, d, gates, 2, d.c));
  }
  TEMPER_ASSIGN_OR_RETURN(ValueId cell, Gate(c, d, gates, 3));
  TEMPER_ASSIGN_OR_RETURN(cell, Activated(c, d, 1, cell));
  TEMPER_ASSIGN_OR_RETURN(const ValueId kept, Binary(c, "mul", forget, d.c));
  TEMPER_ASSIGN_OR_RETURN(const ValueId fresh, Binary(c, "mul", input, cell));
  TEMPER_ASSIGN_OR_RETURN(d.c, Binary(c, "add", kept, fresh));
  TEMPER_ASSIGN_OR_RETURN(const ValueId output, LstmGate(c, d, gates, 1, d.c));
  TEMPER_ASSIGN_OR_RETURN(const ValueId squashed, Activated(c, d, 2, d.c));
  TEMPER_ASSIGN_OR_RETURN(d.h, Binary(c, "mul", output, squashed));
  return absl::OkStatus();
}

// The hidden gate's candidate: the reset gate weighs the state before its product or after it.
absl::StatusOr<ValueId> GruCandidate(Context& c, const Direction& d, ValueId reset, ValueId x, ValueId product) {
  ValueId from_state = kNoValue;
  if (d.candidate == kNoValue) {
    TEMPER_ASSIGN_OR_RETURN(from_state, Gate(c, d, product, 2));
    TEMPER_ASSIGN_OR_RETURN(from_state, Binary(c, "mul", reset, from_state));
  } else {
    TEMPER_ASSIGN_OR_RETURN(const ValueId state, Binary(c, "mul", reset, d.h));
    TEMPER_ASSIGN_OR_RETURN(from_state, TimesTransposed(c, state, d.candidate));
    if (d.candidate_bias != kNoValue) {
      TEMPER_ASSIGN_OR_RETURN(from_state, Binary(c, "add", from_state, d.candidate_bias));
    }
  }
  TEMPER_ASSIGN_OR_RETURN(const ValueId from_input, Gate(c, d, x, 2));
  TEMPER_ASSIGN_OR_RETURN(const ValueId sum, Binary(c, "add", from_state, from_input));
  return Activated(c, d, 1, sum);
}

absl::Status GruStep(Context& c, Direction& d, ValueId x) {
  TEMPER_ASSIGN_OR_RETURN(ValueId product, TimesTransposed(c, d.h, d.recurrence));
  if (d.recurrence_bias != kNoValue) {
    TEMPER_ASSIGN_OR_RETURN(product, Binary(c, "add", product, d.recurrence_bias));
  }
  ValueId gate[2];  // update, reset
  for (int64_t i = 0; i < 2; ++i) {
    TEMPER_ASSIGN_OR_RETURN(const ValueId from_state, Gate(c, d, product, i));
    TEMPER_ASSIGN_OR_RETURN(const ValueId from_input, Gate(c, d, x, i));
    TEMPER_ASSIGN_OR_RETURN(gate[i], Binary(c, "add", from_state, from_input));
    TEMPER_ASSIGN_OR_RETURN(gate[i], Activated(c, d, 0, gate[i]));
  }
  TEMPER_ASSIGN_OR_RETURN(const ValueId candidate, GruCandidate(c, d, gate[1], x, product));
  // (1 - z) * candidate + z * h
  TEMPER_ASSIGN_OR_RETURN(const ValueId change, Binary(c, "sub", d.h, candidate));
  TEMPER_ASSIGN_OR_RETURN(const ValueId kept, Binary(c, "mul", gate[0], change));
  TEMPER_ASSIGN_OR_RETURN(d.h, Binary(c, "add", candidate, kept));
  return absl::OkStatus();
}

absl::Status RnnStep(Context& c, Direction& d, ValueId x) {
  TEMPER_ASSIGN_OR_RETURN(ValueId sum, TimesTransposed(c, d.h, d.recurrence));
  TEMPER_ASSIGN_OR_RETURN(sum, Binary(c, "add", sum, x));
  TEMPER_ASSIGN_OR_RETURN(d.h, Activated(c, d, 0, sum));
  return absl::OkStatus();
}

struct Kind {
  std::string_view onnx;
  int64_t gates;
  std::vector<std::string_view> activations;  // of one direction, by default
  absl::Status (*step)(Context& c, Direction& d, ValueId x);
};
const Kind* FindKind(std::string_view op) {
  static const std::vector<Kind> kinds = {{"LSTM", 4, {"sigmoid", "tanh", "tanh"}, LstmStep},
                                          {"GRU", 3, {"sigmoid", "tanh"}, GruStep},
                                          {"RNN", 1, {"tanh"}, RnnStep}};
  return &*std::find_if(kinds.begin(), kinds.end(), [&](const Kind& k) { return k.onnx == op; });
}

// [directions, gates, inputs or hidden], as a matrix for each direction.
struct Weights {
  Shape shape;
  std::vector<ValueId> by_direction;
};

absl::StatusOr<Weights> WeightsOf(Context& c, ValueId v) {
  Weights w{c.ShapeOf(v), {}};
  if (w.shape.size() != 3) return absl::InvalidArgumentError("X, W and R have rank 3");
  for (int64_t i = 0; i < w.shape[0]; ++i) {
    TEMPER_ASSIGN_OR_RETURN(w.by_direction.emplace_back(), c.Element(v, 0, i));
  }
  return w;
}

// What one call says of all its directions.
struct Recurrent {
  const Kind* kind;
  ValueId x;  // f32[steps, batch, inputs]
  int64_t steps, batch, hidden, directions;
  bool reverse;      // of the first direction
  bool batch_first;  // how operands and results lie
  std::vector<Activation> activations;
  double clip;
  Weights weights = {}, recurrence = {};
  ValueId going = kNoValue;  // bool[steps, batch, 1]: whether a sequence is not over; kNoValue if none ends early
  ValueId end = kNoValue;    // how many steps there are, where only the run knows
  Varyings of_batch = {};    // of the first axis of f32[batch, hidden]
};

// Whether each step of each sequence is one of its own, of stated lengths.
absl::StatusOr<ValueId> Going(Context& c, ValueId lengths, int64_t steps, int64_t batch) {
  if (lengths == kNoValue) return kNoValue;
  if (c.ShapeOf(lengths) != Shape{batch}) return absl::InvalidArgumentError("there is one length a sequence");
  if (c.Known(lengths) != nullptr) {
    TEMPER_ASSIGN_OR_RETURN(const std::vector<int64_t> known, c.KnownInts(lengths, "sequence_lens"));
    if (std::any_of(known.begin(), known.end(), [&](int64_t l) { return l < 0 || l > steps; }))
      return absl::InvalidArgumentError("a sequence is longer than the input");
    if (std::all_of(known.begin(), known.end(), [&](int64_t l) { return l == steps; })) return kNoValue;
  }
  TEMPER_ASSIGN_OR_RETURN(lengths, c.Cast(lengths, DType::kI32));
  TEMPER_ASSIGN_OR_RETURN(lengths, c.Reshape(lengths, {1, batch, 1}));
  return Binary(c, "less", Counting(c, DType::kI32, {steps, 1, 1}), lengths);
}

absl::StatusOr<Recurrent> Read(Context& c, const OnnxNode& n, Weights w, Weights recurrence) {
  Recurrent r{.kind = FindKind(n.proto.op_type()), .clip = n.Float("clip", 0)};
  if (!(r.clip >= 0)) return absl::InvalidArgumentError("clip is a bound above 0");
  const std::string direction = n.String("direction", "forward");
  if (direction != "forward" && direction != "reverse" && direction != "bidirectional")
    return absl::InvalidArgumentError("direction is 'forward', 'reverse' or 'bidirectional'");
  r.directions = direction == "bidirectional" ? 2 : 1;
  r.reverse = direction == "reverse";
  r.batch_first = n.Int("layout", 0) != 0;
  TEMPER_ASSIGN_OR_RETURN(r.activations, ActivationsOf(n, r.kind->activations, r.directions));
  r.x = n.Input(0);
  r.weights = std::move(w);
  r.recurrence = std::move(recurrence);
  if (c.Rank(r.x) != 3) return absl::InvalidArgumentError("X, W and R have rank 3");
  if (r.batch_first) {
    TEMPER_ASSIGN_OR_RETURN(r.x, c.Transpose(r.x, {1, 0, 2}));
  }
  const Shape& x = c.ShapeOf(r.x);
  r.steps = x[0];
  r.batch = x[1];
  r.hidden = r.recurrence.shape[2];
  const int64_t gates = r.kind->gates * r.hidden;
  if (r.weights.shape != Shape{r.directions, gates, x[2]} || r.recurrence.shape != Shape{r.directions, gates, r.hidden})
    return absl::InvalidArgumentError("the shapes of X, W and R do not fit one another");
  if (r.steps < 1 || r.steps > kMostSteps)
    return absl::UnimplementedError(absl::StrCat("sequences of 1 to ", kMostSteps, " steps are supported"));
  TEMPER_ASSIGN_OR_RETURN(r.going, Going(c, n.Input(4), r.steps, r.batch));
  TEMPER_RETURN_IF_ERROR(MustBeOneLine(c, r.x, r.kind->onnx));
  if (const Varying* batch = c.VaryingAlong(r.x, 1)) r.of_batch = {{0, batch->extent}};
  if (const Varying* steps = c.VaryingAlong(r.x, 0)) {
    r.end = steps->extent;
    TEMPER_ASSIGN_OR_RETURN(ValueId there, WithinExtent(c, *steps, r.steps));
    TEMPER_ASSIGN_OR_RETURN(there, c.Reshape(there, {r.steps, 1, 1}));
    if (r.going != kNoValue) {  // no kernel knows that stated lengths end there too
      TEMPER_ASSIGN_OR_RETURN(there, Binary(c, "and", r.going, there));
    }
    r.going = there;
    TEMPER_ASSIGN_OR_RETURN(r.x, WholeAlong(c, r.x, 0));
  }
  return r;
}

// An initial state of a direction; zeros where none is given.
absl::StatusOr<ValueId> InitialState(Context& c, const Recurrent& r, ValueId given, int64_t i) {
  if (given == kNoValue)
    return WithVaryings(c, c.Constant(NDArray(c.TypeOf(r.x).dtype, {r.batch, r.hidden})), r.of_batch);
  if (r.batch_first) {
    TEMPER_ASSIGN_OR_RETURN(given, c.Transpose(given, {1, 0, 2}));
  }
  if (c.ShapeOf(given) != Shape{r.directions, r.batch, r.hidden})
    return absl::InvalidArgumentError("an initial state has the shape [directions, batch, hidden]");
  return c.Element(given, 0, i);
}

// Moves what lies behind the first `kept` rows of `all`, if that is there, to `candidate`.
absl::Status PartCandidate(Context& c, ValueId& all, ValueId& candidate, int64_t kept) {
  if (all == kNoValue) return absl::OkStatus();
  TEMPER_ASSIGN_OR_RETURN(candidate, c.Slice(all, 0, kept, c.ShapeOf(all)[0]));
  TEMPER_ASSIGN_OR_RETURN(all, c.Slice(all, 0, 0, kept));
  return absl::OkStatus();
}

absl::Status PreparePeepholes(Context& c, const OnnxNode& n, const Recurrent& r, int64_t i, Direction& d) {
  const ValueId all = n.Input(7);
  if (r.kind->gates != 4 || all == kNoValue) return absl::OkStatus();
  if (c.ShapeOf(all) != Shape{r.directions, 3 * r.hidden})
    return absl::InvalidArgumentError("P has one weight each of three gates");
  // Exporters write zeros for none.
  const NDArray* known = c.Known(all);
  bool is_zero = known != nullptr;
  for (int64_t k = 0; is_zero && k < known->size(); ++k) is_zero = known->At(k) == 0;
  if (is_zero) return absl::OkStatus();
  TEMPER_ASSIGN_OR_RETURN(const ValueId own, c.Element(all, 0, i));
  for (int64_t gate = 0; gate < 3; ++gate) {
    TEMPER_ASSIGN_OR_RETURN(d.peepholes[gate], Gate(c, d, own, gate));
  }
  return absl::OkStatus();
}

absl::StatusOr<Direction> Prepare(Context& c, const OnnxNode& n, const Recurrent& r, int64_t i) {
  Direction d{.hidden = r.hidden, .clip = r.clip, .forgets_what_comes_in = n.Int("input_forget", 0) != 0};
  const auto first = r.activations.begin() + i * std::ssize(r.kind->activations);
  d.activations.assign(first, first + std::ssize(r.kind->activations));
  TEMPER_RETURN_IF_ERROR(PreparePeepholes(c, n, r, i, d));
  const int64_t gates = r.kind->gates * r.hidden;
  d.recurrence = r.recurrence.by_direction[static_cast<size_t>(i)];
  TEMPER_ASSIGN_OR_RETURN(d.h, InitialState(c, r, n.Input(5), i));
  TEMPER_ASSIGN_OR_RETURN(d.c, InitialState(c, r, n.Input(6), i));
  ValueId rows = r.x;
  if (!c.Varies(rows)) {  // as one product
    TEMPER_ASSIGN_OR_RETURN(rows, c.Reshape(rows, {r.steps * r.batch, c.ShapeOf(rows)[2]}));
  }
  TEMPER_ASSIGN_OR_RETURN(d.input_gates, TimesTransposed(c, rows, r.weights.by_direction[static_cast<size_t>(i)]));
  d.recurrence_bias = kNoValue;
  if (n.Input(3) != kNoValue) {
    if (c.ShapeOf(n.Input(3)) != Shape{r.directions, 2 * gates})
      return absl::InvalidArgumentError("B has two biases a gate");
    TEMPER_ASSIGN_OR_RETURN(const ValueId both, c.Element(n.Input(3), 0, i));
    TEMPER_ASSIGN_OR_RETURN(ValueId bias, c.Slice(both, 0, 0, gates));
    TEMPER_ASSIGN_OR_RETURN(d.recurrence_bias, c.Slice(both, 0, gates, 2 * gates));
    if (r.kind->gates != 3) {  // a GRU weighs the recurrence's bias by its reset gate
      TEMPER_ASSIGN_OR_RETURN(bias, Binary(c, "add", bias, d.recurrence_bias));
      d.recurrence_bias = kNoValue;
    }
    TEMPER_ASSIGN_OR_RETURN(d.input_gates, Binary(c, "add", d.input_gates, bias));
  }
  TEMPER_ASSIGN_OR_RETURN(d.input_gates, c.Reshape(d.input_gates, {r.steps, r.batch, gates}));
  if (r.kind->gates == 3 && n.Int("linear_before_reset", 0) == 0) {
    TEMPER_RETURN_IF_ERROR(PartCandidate(c, d.recurrence, d.candidate, 2 * r.hidden));
    TEMPER_RETURN_IF_ERROR(PartCandidate(c, d.recurrence_bias, d.candidate_bias, 2 * r.hidden));
  }
  return d;
}

absl::StatusOr<ValueId> Concat(Context& c, std::vector<ValueId> parts, int64_t axis) {
  if (parts.size() == 1) return parts[0];
  return c.Concat(std::move(parts), axis);
}

// One step of all sequences; those that are over keep their state. What they give: f32[batch, hidden], zeros of those.
absl::StatusOr<ValueId> Step(Context& c, const Recurrent& r, Direction& d, int64_t step) {
  TEMPER_ASSIGN_OR_RETURN(const ValueId x, c.Element(d.input_gates, 0, step));
  const ValueId old_h = d.h, old_c = d.c;
  TEMPER_RETURN_IF_ERROR(r.kind->step(c, d, x));
  if (r.going == kNoValue) return d.h;
  TEMPER_ASSIGN_OR_RETURN(const ValueId going, c.Element(r.going, 0, step));
  const ValueId zero = c.Scalar(c.TypeOf(d.h).dtype, 0);
  TEMPER_ASSIGN_OR_RETURN(const ValueId shown, c.Call("where", {}, {going, d.h, zero}));
  TEMPER_ASSIGN_OR_RETURN(d.h, c.Call("where", {}, {going, d.h, old_h}));
  if (d.c != old_c) {
    TEMPER_ASSIGN_OR_RETURN(d.c, c.Call("where", {}, {going, d.c, old_c}));
  }
  return shown;
}

// All states of a direction in the order of the inputs, f32[steps, 1, batch, hidden]; `d` is left at the last. In
// reverse, a sequence that is shorter begins at its own end: what comes before that leaves the state alone.
absl::StatusOr<ValueId> Unroll(Context& c, const Recurrent& r, Direction& d, bool reverse) {
  std::vector<ValueId> states(static_cast<size_t>(r.steps));
  for (int64_t i = 0; i < r.steps; ++i) {
    const int64_t step = reverse ? r.steps - 1 - i : i;
    TEMPER_ASSIGN_OR_RETURN(const ValueId shown, Step(c, r, d, step));
    TEMPER_ASSIGN_OR_RETURN(states[static_cast<size_t>(step)], c.Reshape(shown, {1, 1, r.batch, r.hidden}));
  }
  return Concat(c, std::move(states), 0);
}

// Binds what the directions end with, each f32[1, batch, hidden].
absl::Status SetLast(Context& c, const OnnxNode& n, const Recurrent& r, std::vector<ValueId> states, int output) {
  TEMPER_ASSIGN_OR_RETURN(ValueId v, Concat(c, std::move(states), 0));
  if (r.batch_first) {
    TEMPER_ASSIGN_OR_RETURN(v, c.Transpose(v, {1, 0, 2}));
  }
  return c.Set(n, v, output);
}

absl::Status ConvertOf(Context& c, const OnnxNode& n, Weights weights, Weights recurrence) {
  TEMPER_ASSIGN_OR_RETURN(const Recurrent r, Read(c, n, std::move(weights), std::move(recurrence)));
  std::vector<ValueId> all, last_h, last_c;
  for (int64_t i = 0; i < r.directions; ++i) {
    TEMPER_ASSIGN_OR_RETURN(Direction d, Prepare(c, n, r, i));
    TEMPER_ASSIGN_OR_RETURN(all.emplace_back(), Unroll(c, r, d, r.reverse || i == 1));
    TEMPER_ASSIGN_OR_RETURN(last_h.emplace_back(), c.Reshape(d.h, {1, r.batch, r.hidden}));
    TEMPER_ASSIGN_OR_RETURN(last_c.emplace_back(), c.Reshape(d.c, {1, r.batch, r.hidden}));
  }
  TEMPER_ASSIGN_OR_RETURN(ValueId y, Concat(c, all, 1));
  if (r.end != kNoValue) {
    TEMPER_ASSIGN_OR_RETURN(y, FirstOf(c, y, {0, r.end}));
  }
  if (r.batch_first) {
    TEMPER_ASSIGN_OR_RETURN(y, c.Transpose(y, {2, 0, 1, 3}));
  }
  TEMPER_RETURN_IF_ERROR(c.Set(n, y, 0));
  TEMPER_RETURN_IF_ERROR(SetLast(c, n, r, std::move(last_h), 1));
  return r.kind->gates == 4 ? SetLast(c, n, r, std::move(last_c), 2) : absl::OkStatus();
}

absl::Status ConvertRecurrent(Context& c, const OnnxNode& n) {
  TEMPER_ASSIGN_OR_RETURN(Weights weights, WeightsOf(c, n.Input(1)));
  TEMPER_ASSIGN_OR_RETURN(Weights recurrence, WeightsOf(c, n.Input(2)));
  return ConvertOf(c, n, std::move(weights), std::move(recurrence));
}

// Weights of 8 bits, [directions, inputs, gates], as LSTM has them. There is a scale and a zero point for each
// direction, or for each of its gates' rows. Each direction's are dequantised by themselves, for products that keep
// the numbers.
absl::StatusOr<Weights> Dequantised(Context& c, const OnnxNode& n, size_t weights, size_t scale) {
  const Shape shape = c.ShapeOf(n.Input(weights));
  if (shape.size() != 3) return absl::InvalidArgumentError("W and R have rank 3");
  Formula f(c, c.TypeOf(n.Input(scale)).dtype);
  const std::string dtype(Name(c.TypeOf(n.Input(scale)).dtype));
  const auto of_direction = [&](ValueId v, int64_t i) -> absl::StatusOr<ValueId> {
    const Shape& own = c.ShapeOf(v);
    if (own != Shape{shape[0]} && own != Shape{shape[0], shape[2]})
      return absl::InvalidArgumentError("there is a scale and a zero point for each direction, or for each column");
    const int64_t columns = own.size() == 1 ? 1 : shape[2];
    TEMPER_ASSIGN_OR_RETURN(v, c.Element(v, 0, i));
    return c.Reshape(v, {1, columns});
  };
  Weights result{{shape[0], shape[2], shape[1]}, {}};
  for (int64_t i = 0; i < shape[0]; ++i) {
    TEMPER_ASSIGN_OR_RETURN(ValueId v, c.Element(n.Input(weights), 0, i));
    v = f.Cast(v, "i32");
    if (n.Input(scale + 1) != kNoValue) {
      TEMPER_ASSIGN_OR_RETURN(const ValueId zero, of_direction(n.Input(scale + 1), i));
      v = f.Sub(v, f.Cast(zero, "i32"));
    }
    TEMPER_ASSIGN_OR_RETURN(const ValueId scales, of_direction(n.Input(scale), i));
    v = f.Mul(f.Cast(v, dtype.c_str()), scales);
    TEMPER_RETURN_IF_ERROR(f.status());
    TEMPER_ASSIGN_OR_RETURN(result.by_direction.emplace_back(), c.Transpose(v, {1, 0}));
  }
  return result;
}

// ONNX Runtime rounds inputs and states to 8 bits at each step. They stay floats here, which is nearer to what was
// quantized.
absl::Status DynamicQuantizeLstm(Context& c, const OnnxNode& n) {
  for (const size_t needed : {8, 10}) {
    if (n.Input(needed) == kNoValue || !IsFloat(c.TypeOf(n.Input(needed)).dtype))
      return absl::InvalidArgumentError("W and R have scales");
  }
  onnx::NodeProto proto = n.proto;
  proto.set_op_type("LSTM");
  OnnxNode call{proto, n.opset, n.inputs};
  call.inputs.resize(8, kNoValue);
  TEMPER_ASSIGN_OR_RETURN(Weights weights, Dequantised(c, n, 1, 8));
  TEMPER_ASSIGN_OR_RETURN(Weights recurrence, Dequantised(c, n, 2, 10));
  return ConvertOf(c, call, std::move(weights), std::move(recurrence));
}

}  // namespace

std::span<const TableEntry> ContribRecurrentTable() {
  static constexpr TableEntry kTable[] = {{"DynamicQuantizeLSTM", DynamicQuantizeLstm, 3, Extents::kAlongAnyAxis}};
  return kTable;
}

std::span<const TableEntry> RecurrentTable() {
  static constexpr TableEntry kTable[] = {{"LSTM", ConvertRecurrent, 3, Extents::kAlongAnyAxis},
                                          {"GRU", ConvertRecurrent, 3, Extents::kAlongAnyAxis},
                                          {"RNN", ConvertRecurrent, 3, Extents::kAlongAnyAxis}};
  return kTable;
}

}  // namespace temper::onnx_frontend
