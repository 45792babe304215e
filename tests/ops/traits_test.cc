// Each trait of an operator (compiler/ops/op.h) against what its type rule accepts and what its reference does, for
// every operator: a trait that is wrong, or was forgotten, shows here.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <set>

#include "base/hash.h"
#include "cases.h"
#include "compiler/ops/reference/reference.h"
#include "compiler/ops/families/slice_util.h"
#include "ops_testing.h"

namespace temper {
namespace {

using Index = std::vector<int64_t>;

struct Sample {
  Case c;
  TensorType type;  // of the result
  NDArray result;
};

absl::StatusOr<Sample> RunCase(const OpDef& op, Case c) {
  if (!op.reference) return absl::UnimplementedError("no reference");
  Sample sample{std::move(c), {}, {}};
  TEMPER_ASSIGN_OR_RETURN(sample.type, op.infer(sample.c.attrs, TypesOf(sample.c.inputs)));
  TEMPER_ASSIGN_OR_RETURN(sample.result, op.reference(sample.c.attrs, sample.c.inputs, sample.type));
  return sample;
}

// Random calls that the type rule accepts, of results with elements.
std::vector<Sample> SamplesOf(const OpDef& op, int tries = 60) {
  Rng rng(StableHash(op.name));
  std::vector<Sample> samples;
  for (int i = 0; i < tries; ++i) {
    absl::StatusOr<Sample> sample = RunCase(op, CaseGenerators().at(op.name)(rng));
    if (sample.ok() && sample->result.size() > 0) samples.push_back(*std::move(sample));
  }
  EXPECT_GE(samples.size(), 10u) << op.name;
  return samples;
}

Index IndexAt(int64_t flat, const Shape& shape) {
  Index index(shape.size());
  for (size_t d = shape.size(); d-- > 0;) {
    index[d] = flat % shape[d];
    flat /= shape[d];
  }
  return index;
}
int64_t FlatAt(const Index& index, const Shape& shape) {
  int64_t flat = 0;
  for (size_t d = 0; d < shape.size(); ++d) flat = flat * shape[d] + index[d];
  return flat;
}

// --- move ---

struct Place {
  size_t operand;
  Index index;
};

std::optional<Place> Concatenated(const Case& c, Index index, int64_t axis) {
  for (size_t k = 0; k < c.inputs.size(); ++k) {
    const Shape& shape = c.inputs[k].shape();
    if (shape.size() != index.size()) return std::nullopt;
    int64_t& at = index[static_cast<size_t>(axis)];
    if (at < shape[static_cast<size_t>(axis)]) return Place{k, std::move(index)};
    at -= shape[static_cast<size_t>(axis)];
  }
  return std::nullopt;
}

std::optional<Place> Picked(const Case& c, const Index& index, int64_t axis) {
  if (c.inputs.size() != 2 || IsFloat(c.inputs[1].dtype())) return std::nullopt;
  const Shape &in = c.inputs[0].shape(), &picks = c.inputs[1].shape();
  if (index.size() + 1 != in.size() + picks.size()) return std::nullopt;
  const auto first = index.begin() + axis, last = first + static_cast<std::ptrdiff_t>(picks.size());
  const int64_t extent = in[static_cast<size_t>(axis)];
  auto at = static_cast<int64_t>(c.inputs[1].At(FlatAt(Index(first, last), picks)));
  at = std::clamp<int64_t>(at < 0 ? at + extent : at, 0, extent - 1);
  Index from(index.begin(), first);
  from.push_back(at);
  from.insert(from.end(), last, index.end());
  return Place{0, std::move(from)};
}

// Where an operator that moves so takes an element of its result from; nullopt: no such operator makes this result.
std::optional<Place> SourceOf(Move move, const Case& c, const Shape& out, const Index& index) {
  const Shape& in = c.inputs[0].shape();
  const auto rank = static_cast<int64_t>(in.size());
  const bool has_axis = c.attrs.Has("axis") && rank > 0;
  const int64_t axis = has_axis ? (c.attrs.Int("axis", 0) + rank) % rank : 0;
  switch (move) {
    case Move::kNone:
      return std::nullopt;
    case Move::kSame:
      return in == out ? std::optional(Place{0, index}) : std::nullopt;
    case Move::kReshapes:
      if (NumElements(in) != NumElements(out)) return std::nullopt;
      return Place{0, IndexAt(FlatAt(index, out), in)};
    case Move::kTransposes: {
      const std::vector<int64_t> perm = c.attrs.Ints("perm");
      if (perm.size() != in.size() || out.size() != in.size()) return std::nullopt;
      Index from(in.size());
      for (size_t i = 0; i < perm.size(); ++i) from[static_cast<size_t>(perm[i])] = index[i];
      return Place{0, std::move(from)};
    }
    case Move::kSlices: {
      const absl::StatusOr<std::vector<ops::AxisSlice>> slices = ops::SlicesOf(c.attrs, in);
      if (!slices.ok() || slices->size() != out.size()) return std::nullopt;
      Index from;
      for (size_t i = 0; i < out.size(); ++i) from.push_back((*slices)[i].start + index[i] * (*slices)[i].step);
      return Place{0, std::move(from)};
    }
    case Move::kConcatenates:
      return has_axis && index.size() == in.size() ? Concatenated(c, index, axis) : std::nullopt;
    case Move::kPicks:
      return has_axis ? Picked(c, index, axis) : std::nullopt;
  }
  return std::nullopt;
}

bool Holds(Move move, const Sample& sample) {
  for (int64_t i = 0; i < sample.result.size(); ++i) {
    const std::optional<Place> place = SourceOf(move, sample.c, sample.type.shape, IndexAt(i, sample.type.shape));
    if (!place.has_value()) return false;
    const NDArray& from = sample.c.inputs[place->operand];
    for (size_t d = 0; d < place->index.size(); ++d) {
      if (place->index[d] < 0 || place->index[d] >= from.shape()[d]) return false;
    }
    if (from.At(FlatAt(place->index, from.shape())) != sample.result.At(i)) return false;
  }
  return true;
}

TEST(Traits, MoveIsTheStrictestThatTheReferenceKeepsTo) {
  for (const OpDef& op : AllOps()) {
    const std::vector<Sample> samples = SamplesOf(op);
    Move strictest = Move::kNone;
    for (Move move : {Move::kPicks, Move::kConcatenates, Move::kSlices, Move::kTransposes, Move::kReshapes,
                      Move::kSame}) {  // the last one that holds counts
      if (std::all_of(samples.begin(), samples.end(), [&](const Sample& sample) { return Holds(move, sample); }))
        strictest = move;
    }
    EXPECT_EQ(static_cast<int>(op.move), static_cast<int>(strictest)) << op.name;
  }
}

// --- pattern, windows, per_channel ---

// Whether element `at` of an operand is what an elementwise operator may read for element `index` of its result.
bool Reads(const OpDef& op, size_t operand, const Index& at, const Shape& shape, const Index& index) {
  if (op.per_channel && operand > 0) return at[0] == index[1];
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] != 1 && at[d] != index[index.size() - shape.size() + d]) return false;
  }
  return true;
}

TEST(Traits, ElementwiseOperatorsReadOneElementOfEachOperand) {
  Rng rng(1);
  for (const OpDef& op : AllOps()) {
    if (op.pattern != OpPattern::kElementwise) continue;
    for (const Sample& sample : SamplesOf(op)) {
      const auto operand = static_cast<size_t>(rng.Below(static_cast<int64_t>(sample.c.inputs.size())));
      const NDArray& before = sample.c.inputs[operand];
      const int64_t changed = rng.Below(before.size());
      Case c = sample.c;
      c.inputs[operand] = before.Clone();
      const double value = before.At(changed);
      c.inputs[operand].Set(changed, before.dtype() == DType::kBool ? 1 - value : value + 1);
      const absl::StatusOr<Sample> again = RunCase(op, std::move(c));
      ASSERT_TRUE(again.ok()) << op.name << ": " << again.status();
      const Index at = IndexAt(changed, before.shape());
      for (int64_t i = 0; i < sample.result.size(); ++i) {
        if (again->result.At(i) == sample.result.At(i)) continue;
        EXPECT_TRUE(Reads(op, operand, at, before.shape(), IndexAt(i, sample.type.shape))) << op.name;
      }
    }
  }
}

TEST(Traits, WindowsAreOfOperatorsWhoseTypeRuleKnowsDilations) {
  for (const OpDef& op : AllOps()) {
    for (const Sample& sample : SamplesOf(op)) {
      Attrs attrs = sample.c.attrs;
      attrs.Set("dilations", std::vector<int64_t>{1, 1});
      EXPECT_EQ(op.windows, op.infer(attrs, TypesOf(sample.c.inputs)).ok()) << op.name;
    }
  }
}

TEST(Traits, PerChannelIsWhoTakesAValueForEachIndexOfTheSecondAxis) {
  for (const OpDef& op : AllOps()) {
    std::vector<TensorType> types(static_cast<size_t>(op.min_inputs), {DType::kF32, {3}, {}});
    types[0].shape = {2, 3, 4, 5};
    EXPECT_EQ(op.per_channel, types.size() > 1 && op.infer({}, types).ok()) << op.name;
  }
}

// --- numbers, terms ---

NDArray Drawn(Rng& rng, const NDArray& like, bool positive) {
  if (!IsFloat(like.dtype())) return like;
  NDArray x = RandomArray(rng, like.dtype(), like.shape(), positive ? 0.25 : -1, 1);
  if (!positive) x.Set(rng.Below(x.size()), 0);
  return x;
}

// Runs of numbers drawn as the trait says, but for `odd`, an operand that gets any. How many gave anything else than
// finite numbers.
int Infinite(const OpDef& op, Rng& rng, std::optional<size_t> odd) {
  int infinite = 0;
  for (const Sample& sample : SamplesOf(op)) {
    if (!IsFloat(sample.type.dtype)) continue;
    Case c = sample.c;
    for (size_t i = 0; i < c.inputs.size(); ++i) {
      c.inputs[i] = Drawn(rng, c.inputs[i], op.NumbersOf(i) == Numbers::kPositive && odd != i);
    }
    const absl::StatusOr<Sample> drawn = RunCase(op, std::move(c));
    EXPECT_TRUE(drawn.ok()) << op.name << ": " << drawn.status();
    const std::vector<double> values = ValuesOf(drawn->result);
    infinite += std::all_of(values.begin(), values.end(), [](double v) { return std::isfinite(v); }) ? 0 : 1;
  }
  return infinite;
}

TEST(Traits, PositiveOperandsAreThoseThatHaveToBe) {
  Rng rng(1);
  for (const OpDef& op : AllOps()) {
    EXPECT_EQ(Infinite(op, rng, std::nullopt), 0) << op.name;
    for (size_t i = 0; i < op.numbers.size(); ++i) {
      if (op.numbers[i] != Numbers::kPositive) continue;
      EXPECT_GT(Infinite(op, rng, i), 0) << op.name << " needs no positive operand " << i;
    }
  }
}

TEST(Traits, TermsAreWhatAContractionOfOnesIs) {
  for (const OpDef& op : AllOps()) {
    ASSERT_EQ(op.terms != nullptr, op.pattern == OpPattern::kAnchor) << op.name;
    if (!op.terms) continue;
    int reached = 0;
    for (const Sample& sample : SamplesOf(op)) {
      Case c = sample.c;
      for (NDArray& x : c.inputs) {
        x = x.Clone();
        for (int64_t i = 0; i < x.size(); ++i) x.Set(i, 1);
      }
      const absl::StatusOr<Sample> ones = RunCase(op, std::move(c));
      ASSERT_TRUE(ones.ok()) << ones.status();
      const double terms = op.terms(sample.c.attrs, TypesOf(sample.c.inputs));
      const std::vector<double> sums = ValuesOf(ones->result);
      const double most = *std::max_element(sums.begin(), sums.end());
      EXPECT_LE(most, terms) << op.name;
      reached += most == terms ? 1 : 0;
    }
    EXPECT_GT(reached, 0) << op.name;
  }
}

// --- steps ---

TEST(Traits, StepsAreWholeWhereAChangeIsSmall) {
  constexpr double kSmall = 1e-4;
  NDArray below(DType::kF32, {6}), above(DType::kF32, {6});  // about 1, 1.5, ... 3.5
  for (int64_t i = 0; i < 6; ++i) {
    below.Set(i, 1 + 0.5 * static_cast<double>(i) - kSmall);
    above.Set(i, 1 + 0.5 * static_cast<double>(i) + kSmall);
  }
  for (const OpDef& op : AllOps()) {
    const TensorType types[] = {{DType::kF32, {6}, {}}};
    const absl::StatusOr<TensorType> out = op.max_inputs == 1 ? op.infer({}, types) : absl::InternalError("");
    if (op.pattern != OpPattern::kElementwise || !out.ok()) {
      EXPECT_FALSE(op.steps) << op.name;
      continue;
    }
    const NDArray before[] = {below}, behind[] = {above};
    const absl::StatusOr<NDArray> a = op.reference({}, before, *out), b = op.reference({}, behind, *out);
    ASSERT_TRUE(a.ok() && b.ok()) << op.name;
    double most = 0;
    for (int64_t i = 0; i < 6; ++i) most = std::max(most, std::abs(a->At(i) - b->At(i)));
    EXPECT_EQ(op.steps, most > 0.5) << op.name;
  }
}

// --- counted ---

// Whatever lies behind the number along the axis, the result is the same; and it is another one where that is moved.
TEST(Traits, WhatIsCountedIsNotReadBehindTheNumber) {
  int seen = 0;
  for (const OpDef& op : AllOps()) {
    if (!op.counted) continue;
    for (const Sample& sample : SamplesOf(op)) {
      Case c = sample.c;
      const Shape& shape = c.inputs[0].shape();
      const auto axis = static_cast<size_t>((c.attrs.Int("axis", 0) + std::ssize(shape)) % std::ssize(shape));
      const int64_t slice = NumElements(std::span(shape).subspan(axis + 1)), most = shape[axis];
      const auto count = static_cast<int64_t>(c.inputs[1].At(0));
      for (const bool behind : {true, false}) {
        Case changed = c;
        changed.inputs[0] = c.inputs[0].Clone();
        bool any = false;
        for (int64_t i = 0; i < c.inputs[0].size(); ++i) {
          if ((i / slice % most >= count) != behind) continue;
          changed.inputs[0].Set(i, c.inputs[0].At(i) + 1);
          any = true;
        }
        const absl::StatusOr<Sample> result = RunCase(op, std::move(changed));
        ASSERT_TRUE(result.ok()) << result.status();
        const bool same = ValuesOf(result->result) == ValuesOf(sample.result);
        EXPECT_EQ(same, behind || !any) << op.name;
        seen += any ? 1 : 0;
      }
    }
  }
  EXPECT_GT(seen, 1);
}

// --- exact ---

// Numbers of which no two have a sum or a product that needs no rounding.
void DrawLong(NDArray& a, Rng& rng) {
  a = a.Clone();
  for (int64_t i = 0; i < a.size(); ++i) {
    const double long_number = 1 + static_cast<double>(2 * rng.Below(1 << 22) + 1) * 0x1p-23;
    a.Set(i, std::ldexp(rng.Below(2) == 0 ? long_number : -long_number, static_cast<int>(rng.Below(9)) - 4));
  }
}

TEST(Traits, WhatIsExactRoundsNothing) {
  Rng rng(1);
  const auto is_f32 = [](const NDArray& a) { return a.dtype() == DType::kF32; };
  for (const OpDef& op : AllOps()) {
    const bool may_be = op.pattern == OpPattern::kElementwise || op.pattern == OpPattern::kReduction;
    if (!may_be || op.steps || op.types == OpTypes::kMoves || op.types == OpTypes::kConverts) {
      EXPECT_FALSE(op.exact) << op.name;
      continue;
    }
    bool all = true;
    int seen = 0;
    for (const Sample& sample : SamplesOf(op)) {
      Case c = sample.c;
      if (!std::ranges::all_of(c.inputs, is_f32) || !is_f32(sample.result)) continue;
      std::set<double> known{0, std::numeric_limits<double>::infinity()};  // or one of these, up to the sign
      for (NDArray& a : c.inputs) {
        DrawLong(a, rng);
        for (int64_t i = 0; i < a.size(); ++i) known.insert(std::abs(a.At(i)));
      }
      for (const char* bound : {"min", "max"})
        known.insert(std::abs(static_cast<double>(static_cast<float>(c.attrs.Float(bound, 0)))));
      const absl::StatusOr<Sample> drawn = RunCase(op, c);
      ASSERT_TRUE(drawn.ok()) << op.name << drawn.status();
      for (int64_t i = 0; i < drawn->result.size(); ++i) all &= known.contains(std::abs(drawn->result.At(i)));
      ++seen;
    }
    EXPECT_EQ(op.exact, all && seen > 0) << op.name;
  }
}

// --- reference ---

TEST(Traits, EveryOperatorHasAReferenceAndEveryReferenceAnOperator) {
  for (const OpDef& op : AllOps()) EXPECT_TRUE(op.reference != nullptr) << op.name;
  for (auto references : {reference::UnaryReferences, reference::BinaryReferences, reference::ConvReferences,
                          reference::MatmulReferences, reference::PoolReferences, reference::ReduceReferences,
                          reference::NormReferences, reference::MovementReferences, reference::ResizeReferences}) {
    for (const reference::Reference& r : references()) EXPECT_NE(FindOp(r.op), nullptr) << r.op;
  }
}

}  // namespace
}  // namespace temper
