// top_k: the first elements of each row in their order, by merging. An element is a number that is less the earlier it
// comes: its key above its position. Where few are wanted, the best so far are kept, and only what comes before the
// last of them is looked at again: vectors of the row are compared with that one, what passes is collected, and
// whenever there is much of it, it is sorted and merged with the best. Threads share the rows or, of few of them, their
// parts.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/division.h"
#include "compiler/ops/templates/statements.h"
#include "compiler/ops/templates/templates.h"

namespace temper {
namespace {

using ir::Expr;
using ir::ForKind;
using ir::Stmt;

constexpr int64_t kShift = int64_t{1} << 32;  // of keys, above positions
constexpr int64_t kNothing = std::numeric_limits<int64_t>::max();

// Those that are read as the integers of their bits.
DType BitsOf(DType dtype) {
  if (dtype == DType::kF32) return DType::kI32;
  return dtype == DType::kF64 ? DType::kI64 : dtype;
}
bool HasWideKeys(DType dtype) { return BitsOf(dtype) == DType::kI64; }

struct TopK {
  int64_t rows, count, k;
  bool largest;
  DType dtype;
  int64_t parts = 1, length = 0;  // of a row; what does not fill a part is left at its end
  TopK(const Workload& w, const CpuTarget& t)
      : count(w.TypeOf(w.calls[0].args[0]).shape.back()),
        k(w.output().shape.back()),
        largest(w.calls[0].attrs.Int("largest", 1) != 0),
        dtype(w.TypeOf(w.calls[0].args[0]).dtype) {
    rows = NumElements(w.output().shape) / k;
    // Of a part that is little longer than what is wanted of it, little is gained.
    const int64_t shortest = std::max<int64_t>(8 * k, 4096);
    if (!HasWideKeys(dtype))
      parts = std::clamp<int64_t>(CeilDiv(int64_t{t.threads}, rows), 1, std::max<int64_t>(1, count / shortest));
    length = count / parts;
  }

  // An integer that is less the earlier the element comes, equal ones alike: of its bits, in i32 or i64.
  Expr Key(Expr bits) const {
    const DType type = HasWideKeys(dtype) ? DType::kI64 : DType::kI32;
    bits = ir::Cast(bits, type);
    if (IsFloat(dtype)) {  // both zeros are 0, and what is no number is the largest
      const bool wide = type == DType::kI64;
      const int64_t most = wide ? kNothing : std::numeric_limits<int32_t>::max();
      const int64_t infinity = wide ? int64_t{0x7ff} << 52 : int64_t{0xff} << 23;
      const Expr size = ir::BitAnd(bits, ir::Int(most, type)), zero = ir::Int(0, type);
      bits =
          ir::Select(ir::Int(infinity, type) < size, ir::Int(most, type), ir::Select(bits < zero, zero - size, bits));
    }
    return largest ? ir::Int(-1, type) - bits : bits;
  }
};

// Elements, in i64. One more than they are for: a merge looks at what is behind them before it knows that it is done.
ir::Buffer Elements(const std::string& name, int64_t count) { return ir::MakeBuffer(name, DType::kI64, {count + 1}); }
Expr ElementOf(const Expr& key, const Expr& position) { return ir::Cast(key, DType::kI64) * Expr(kShift) + position; }
Expr PositionOf(const Expr& element) { return element % Expr(kShift); }

Stmt Fill(const ir::Buffer& to, int64_t count, int64_t lanes, const std::function<Expr(const Expr& i)>& value) {
  return VectorLoop("filled", count, lanes, [&](const Expr& i) { return ir::Store(to, {i}, value(i)); });
}

// Where the two runs that are merged go on. Nothing branches on the elements.
struct Ends {
  Cell first, second, taken;  // taken: of the second one, 0 or 1
  explicit Ends(const std::string& name)
      : first(name + "_first", DType::kI64), second(name + "_second", DType::kI64), taken(name, DType::kI64) {}
  Stmt Within(Stmt body) const { return first.Within(second.Within(taken.Within(std::move(body)))); }
  Stmt Advance(int64_t step) const {
    return ir::Seq({first.Set(first.Get() + Expr(step) - taken.Get() * Expr(step)),
                    second.Set(second.Get() + taken.Get() * Expr(step))});
  }
};

// Two neighbouring runs of one width, from both ends at once: each end takes half of all elements, so that no run is
// ever used up, and neither waits for the other.
Stmt MergePair(const ir::Buffer& to, const ir::Buffer& from, const Expr& base, int64_t width) {
  const Ends front("front"), back("back");
  const auto at = [&](const Cell& place) { return ir::Load(from, {place.Get()}); };
  const auto step = [&](const Expr& i) {
    return ir::Seq({
        front.taken.Set(ir::Cast(at(front.second) < at(front.first), DType::kI64)),
        back.taken.Set(ir::Cast(at(back.first) < at(back.second), DType::kI64)),
        ir::Store(to, {base + i}, ir::Min(at(front.first), at(front.second))),
        ir::Store(to, {base + Expr(2 * width - 1) - i}, ir::Max(at(back.first), at(back.second))),
        front.Advance(1),
        back.Advance(-1),
    });
  };
  return front.Within(back.Within(ir::Seq({
      front.first.Set(base),
      front.second.Set(base + Expr(width)),
      back.first.Set(base + Expr(width - 1)),
      back.second.Set(base + Expr(2 * width - 1)),
      LoopOver("merged", width, width <= 4 ? ForKind::kUnrolled : ForKind::kSerial, step),
  })));
}

// From `begin` on, the first `taken` of two sorted parts of `from`.
struct Part {
  int64_t begin, count;
};
Stmt Merge(const ir::Buffer& to, int64_t begin, const ir::Buffer& from, Part a, Part b, int64_t taken) {
  const Ends ends("end");
  const auto next = [&](const Cell& at, const Part& part) {
    return ir::Select(at.Get() < Expr(part.begin + part.count), ir::Load(from, {at.Get()}), Expr(kNothing));
  };
  const Cell one("one_next", DType::kI64), other("other_next", DType::kI64);
  const auto step = [&](const Expr& n) {
    return ir::Seq({one.Set(next(ends.first, a)), other.Set(next(ends.second, b)),
                    ends.taken.Set(ir::Cast(other.Get() < one.Get(), DType::kI64)),
                    ir::Store(to, {Expr(begin) + n}, ir::Min(one.Get(), other.Get())), ends.Advance(1)});
  };
  const Stmt merge =
      ir::Seq({ends.first.Set(a.begin), ends.second.Set(b.begin), LoopOver("merged", taken, ForKind::kSerial, step)});
  return one.Within(other.Within(ends.Within(merge)));
}

// Sorts the first `count` elements of `x`. `y` is as long. The result is in the one that it names.
Stmt Sort(const ir::Buffer& x, const ir::Buffer& y, int64_t count, int64_t lanes, ir::Buffer* result) {
  std::vector<Stmt> levels;
  ir::Buffer from = x, to = y;
  for (int64_t width = 1; width < count; width *= 2) {
    const int64_t pairs = count / (2 * width), left = count % (2 * width), begin = pairs * 2 * width;
    if (pairs > 0) {
      levels.push_back(LoopOver("pair", pairs, ForKind::kSerial,
                                [&](const Expr& pair) { return MergePair(to, from, pair * Expr(2 * width), width); }));
    }
    if (left > width) {
      levels.push_back(Merge(to, begin, from, {begin, width}, {begin + width, left - width}, left));
    } else if (left > 0) {
      levels.push_back(CopyElements(to, begin, from, begin, left, lanes));
    }
    std::swap(from, to);
  }
  *result = from;
  return ir::Seq(std::move(levels));
}

// The first `k` of `count` elements of a row.
class Selection {
 public:
  using Keys = std::function<Expr(const Expr& i)>;                                // of the row's elements
  using Result = std::function<Stmt(const Expr& i, const ir::Buffer& elements)>;  // puts away that element
  // first: where they begin in the row.
  Selection(int64_t count, int64_t k, int64_t lanes, Keys key, Expr first)
      : count_(count), k_(k), lanes_(lanes), key_(std::move(key)), first_(std::move(first)) {}

  Stmt Into(const Result& result) const {
    ir::Buffer sorted;
    const Stmt load = Fill(one_, sorted_, lanes_, [&](const Expr& i) { return Element(i); });
    const Stmt sort = Sort(one_, two_, sorted_, lanes_, &sorted);
    const auto put = [&](const ir::Buffer& elements) {
      return VectorLoop("put", k_, lanes_, [&](const Expr& i) { return result(i, elements); });
    };
    if (sorted_ == count_) return Within({&one_, &two_}, ir::Seq({load, sort, put(sorted)}));
    const Stmt body = ir::Seq(
        {load, sort, CopyElements(best_, 0, sorted, 0, k_, lanes_), SetLast(), collected_.Set(0), Rest(), put(best_)});
    return Within({&best_, &one_, &two_}, last_.Within(collected_.Within(body)));
  }

 private:
  static Stmt Within(std::initializer_list<const ir::Buffer*> buffers, Stmt body) {
    for (const ir::Buffer* buffer : buffers) body = ir::Alloc(*buffer, std::move(body));
    return body;
  }
  Expr Element(const Expr& i) const { return ElementOf(key_(i), first_ + i); }
  Stmt SetLast() const { return last_.Set(ir::Cast(ir::Load(best_, {k_ - 1}) / Expr(kShift), DType::kI32)); }
  // What is equal to the last of the best comes later than it.
  Expr Passes(const Expr& i) const { return key_(i) < last_.Get(); }
  Stmt Rest() const;
  Stmt Collect(const Expr& begin, int64_t count) const;
  Stmt MergeCollected(int64_t most) const;

  int64_t count_, k_, lanes_;
  Keys key_;
  Expr first_;
  // Elements that are sorted at once, and how many collected ones are merged with the best.
  const int64_t sorted_ = 2 * k_ >= count_ ? count_ : k_, enough_ = std::max(k_, kPiece);
  const int64_t room_ = enough_ + kChunk, length_ = std::max(sorted_, room_ + k_);
  const ir::Buffer best_ = Elements("best", k_), one_ = Elements("one", length_), two_ = Elements("two", length_);
  Cell last_{"last", DType::kI32};            // the key of the last of the best
  Cell collected_{"collected", DType::kI64};  // elements in `one_`
};

// What does not fill a chunk goes first, unseen.
Stmt Selection::Rest() const {
  const int64_t chunks = (count_ - sorted_) / kChunk, odd = (count_ - sorted_) % kChunk, first = odd > 0 ? 1 : 0;
  return LoopOver("chunk", first + chunks, ForKind::kSerial, [&](const Expr& chunk) {
    Stmt collect = Collect(sorted_, odd);
    if (chunks > 0) {
      const Stmt filter = FilterChunk(
          Expr(sorted_ + odd) + (chunk - Expr(first)) * Expr(kChunk), lanes_, [&](const Expr& i) { return Passes(i); },
          [&](const Expr& begin, int64_t count) { return Collect(begin, count); });
      collect = odd > 0 ? ir::If(chunk < Expr(1), collect, filter) : filter;
    }
    const Expr is_last = ir::Eq(chunk, Expr(first + chunks - 1)), any = Expr(0) < collected_.Get();
    Stmt merge = MergeCollected(room_);
    for (int64_t most = room_ / 4; most >= kPiece; most /= 4)
      merge = ir::If(collected_.Get() <= Expr(most), MergeCollected(most), merge);
    return ir::Seq({collect, ir::If(ir::Or(Expr(enough_) <= collected_.Get(), ir::And(is_last, any)), merge)});
  });
}

// Each element is written behind those collected, and the next one over it if it did not pass.
Stmt Selection::Collect(const Expr& begin, int64_t count) const {
  return LoopOver("element", count, ForKind::kSerial, [&](const Expr& i) {
    return ir::Seq({ir::Store(one_, {collected_.Get()}, Element(begin + i)),
                    collected_.Set(collected_.Get() + ir::Cast(Passes(begin + i), DType::kI64))});
  });
}

// Of up to so many collected.
Stmt Selection::MergeCollected(int64_t most) const {
  const Stmt fill = Fill(one_, most, lanes_, [&](const Expr& i) {
    return ir::Select(i < collected_.Get(), ir::Load(one_, {i}), Expr(kNothing));
  });
  ir::Buffer sorted;
  const Stmt sort = Sort(one_, two_, most, lanes_, &sorted);
  const ir::Buffer& free = sorted == one_ ? two_ : one_;
  return ir::Seq({fill, sort, CopyElements(sorted, most, best_, 0, k_, lanes_),
                  Merge(free, 0, sorted, {most, k_}, {0, most}, k_), CopyElements(best_, 0, free, 0, k_, lanes_),
                  SetLast(), collected_.Set(0)});
}

// The kernel.
class Statements {
 public:
  Statements(const TopK& shape, ir::Buffer x, ir::Buffer out, int64_t lanes)
      : s_(shape), x_(std::move(x)), out_(std::move(out)), lanes_(lanes) {}

  Stmt All() const {
    if (HasWideKeys(s_.dtype)) {
      return LoopOver("row", s_.rows, ForKind::kParallel, [&](const Expr& row) { return SortTwice(row); });
    }
    const Stmt select = LoopOver("part", s_.rows * s_.parts, ForKind::kParallel, [&](const Expr& i) {
      const Expr row = i / Expr(s_.parts), first = i % Expr(s_.parts) * Expr(s_.length);
      const auto key = [&](const Expr& at) { return Key(row, first + at); };
      return Selection(s_.length, s_.k, lanes_, key, first).Into([&](const Expr& at, const ir::Buffer& elements) {
        const Expr element = ir::Load(elements, {at});
        return s_.parts == 1 ? Put(row, at, PositionOf(element)) : ir::Store(firsts_, {i * Expr(s_.k) + at}, element);
      });
    });
    if (s_.parts == 1) return select;
    const Stmt merge = LoopOver("row", s_.rows, ForKind::kParallel, [&](const Expr& row) { return MergeParts(row); });
    return ir::Alloc(firsts_, ir::Seq({select, merge}));
  }

 private:
  Expr Key(const Expr& row, const Expr& i) const { return s_.Key(ir::Load(x_, {row, i})); }
  Stmt Put(const Expr& row, const Expr& i, const Expr& position) const {
    return ir::Store(out_, {row, i}, ir::Cast(position, DType::kI32));
  }
  Stmt MergeParts(const Expr& row) const;
  Stmt SortTwice(const Expr& row) const;

  const TopK& s_;
  ir::Buffer x_, out_;
  int64_t lanes_;
  ir::Buffer firsts_ = Elements("firsts", s_.rows* s_.parts* s_.k);  // of each part
};

// The first of a row from the first of each of its parts, and from what is in no part.
Stmt Statements::MergeParts(const Expr& row) const {
  const int64_t k = s_.k;
  const ir::Buffer one = Elements("one", 2 * k), two = Elements("two", k);
  const Expr begin = row * Expr(s_.parts * k);
  const auto merge = [&](const Stmt& other, int64_t count) {
    return ir::Seq({other, Merge(two, 0, one, {0, k}, {k, count}, k), CopyElements(one, 0, two, 0, k, lanes_)});
  };
  std::vector<Stmt> stmts = {CopyElements(one, 0, firsts_, begin, k, lanes_),
                             LoopOver("part", s_.parts - 1, ForKind::kSerial, [&](const Expr& before) {
                               return merge(
                                   CopyElements(one, k, firsts_, begin + (before + Expr(1)) * Expr(k), k, lanes_), k);
                             })};
  for (int64_t i = s_.parts * s_.length; i < s_.count; ++i)
    stmts.push_back(merge(ir::Store(one, {k}, ElementOf(Key(row, i), i)), 1));
  stmts.push_back(
      VectorLoop("put", k, lanes_, [&](const Expr& i) { return Put(row, i, PositionOf(ir::Load(one, {i}))); }));
  return ir::Alloc(one, ir::Alloc(two, ir::Seq(std::move(stmts))));
}

// Keys of 64 bits leave no room for positions: all are sorted by the lower halves of their keys and then by the upper
// ones, equal ones in the order that they have by then.
Stmt Statements::SortTwice(const Expr& row) const {
  const ir::Buffer one = Elements("one", s_.count), two = Elements("two", s_.count);
  const ir::Buffer lower = Elements("lower", s_.count);
  ir::Buffer by_lower, by_upper;
  const Stmt load = Fill(one, s_.count, lanes_,
                         [&](const Expr& i) { return ElementOf(Key(row, i) % Expr(kShift) - Expr(kShift / 2), i); });
  const Stmt sort = Sort(one, two, s_.count, lanes_, &by_lower);
  const Stmt keep = Fill(lower, s_.count, lanes_, [&](const Expr& i) { return PositionOf(ir::Load(by_lower, {i})); });
  const Stmt load_upper = Fill(one, s_.count, lanes_, [&](const Expr& i) {
    return ElementOf(Key(row, ir::Load(lower, {i})) / Expr(kShift), i);
  });
  const Stmt sort_upper = Sort(one, two, s_.count, lanes_, &by_upper);
  const Stmt put = VectorLoop("put", s_.k, lanes_, [&](const Expr& i) {
    return Put(row, i, ir::Load(lower, {PositionOf(ir::Load(by_upper, {i}))}));
  });
  return ir::Alloc(one, ir::Alloc(two, ir::Alloc(lower, ir::Seq({load, sort, keep, load_upper, sort_upper, put}))));
}

bool Matches(const Workload& w) {
  if (!IsRowMajorCall(w, "top_k")) return false;
  const DType dtype = w.TypeOf(w.calls[0].args[0]).dtype;
  return IsNative(dtype) && dtype != DType::kU32 && dtype != DType::kU64;
}

absl::StatusOr<Kernel> Build(const Workload& w, const Config&, const CpuTarget& t) {
  const TopK s(w, t);
  const std::vector<DType> types = {BitsOf(s.dtype), DType::kI32};
  return KernelOf(w, {{s.rows, s.count}, {s.rows, s.k}}, types,
                  [&](const std::vector<ir::Buffer>& p) { return Statements(s, p[0], p[1], t.lanes()).All(); });
}

CpuFootprint FootprintOf(const Workload& w, const Config&, const CpuTarget& t) {
  const TopK s(w, t);
  return FootprintOfPasses(w, 1 + std::log2(static_cast<double>(s.k)), static_cast<double>(s.rows * s.parts), t);
}

}  // namespace

CpuTemplate TopKTemplate() { return {"top_k", 1, Matches, NoKnobs, Build, FootprintOf}; }

}  // namespace temper
