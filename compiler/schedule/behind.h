// What lies behind an extent that only the run knows. An input may have fewer elements along an axis than there is room
// for: here it is followed, through the blocks of a scheduled function, what becomes of those that there are not.
#pragma once

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "compiler/ir/simplify.h"
#include "compiler/ir/stmt.h"

namespace temper {

inline constexpr int64_t kFar = int64_t{1} << 40;  // further than any place, and no overflow when it is multiplied

// Something about the elements of a buffer whose place is not below an extent: they lie behind it.
struct Behind {
  enum Kind : uint8_t {
    kUnread,  // any number, which goes into no result
    kValue,   // `value`
    kMask,    // false; and those that do not lie behind it are true
  };
  Kind kind = kUnread;
  double value = 0;
  int extent = 0;              // which one: by the caller's numbers, as OperandFacts has them
  Shape shape;                 // of the buffer
  std::vector<ir::Var> index;  // an element's, one variable a dimension
  ir::Expr place;              // over them; one below zero is not behind
};
// The same fact of a buffer of the same bytes, whose dimensions may be others.
Behind InShape(const Behind& b, const Shape& shape);
// Of an element, over the variables of its index; empty where a load says which it is.
ir::Expr PlaceAt(const Behind& b, const std::vector<ir::Expr>& index, const ir::Simplifier& ranges);
// Whether a place is never less where the variable is more and all others are as they are.
bool GrowsWith(const ir::Expr& place, const ir::Var& var);
// Whether a place is never behind another one, as far as it can be proved.
bool IsAtMost(const ir::Expr& a, const ir::Expr& b, const ir::Simplifier& ranges);
std::string Text(const Behind& b);  // the same for the same facts, whatever the variables
// Of two buffers alike what lies behind both: nobody reads it, whom one or the other is about. nullopt: it is not known
// which is further.
std::optional<Behind> BehindBoth(const Behind& a, const Behind& b);

// A whole number that grows with an extent, such as how often a window stops in it: positions, from 0 on, are below it
// where their place is below the extent.
struct ExtentBound {
  int extent = 0;
  int64_t least = 0, most = 0;  // what it may be
  ir::Var position;
  ir::Expr place;  // over it
};
ExtentBound ExtentItself(int extent, int64_t least, int64_t most);
ir::Expr PlaceOf(const ExtentBound& limit, const ir::Expr& position);
std::string Text(const ExtentBound& limit);

// What a whole number may be.
struct NumberRange {
  int64_t least = 0, most = 0;
};

// What is known of all elements of a buffer of whole numbers, such as of places that others are read at.
struct WholeNumbers {
  bool natural = false;             // none is below 0
  std::optional<ExtentBound> most;  // none is above this one
};

// What is known of a function's parameter.
struct OperandFacts {
  std::vector<Behind> behind;
  bool constant = false;
  int64_t counts = 0;  // its elements, in the order of memory, are 0 up to this, again and again; 0: they are not
  std::optional<double> number;      // it is this one, without dimensions
  std::optional<ExtentBound> limit;  // it is this one, of one element
  WholeNumbers numbers = {};
};

// A variable by an index: what it is over `at`, which stands for the index, or the least that it may be. Empty: the
// index does not tell it.
ir::Expr VariableBy(const ir::Var& var, const std::vector<ir::Expr>& index, const std::vector<ir::Var>& at,
                    const ir::Simplifier& ranges, bool exact);
std::vector<ir::Var> IndexOf(size_t rank);           // variables for Behind::index
ir::Simplifier RangesOf(const ir::StmtNode& block);  // of its iterators

class BehindFacts {
 public:
  // `operands`: of the parameters before the output, whose graph has a choice by the extent wherever something else
  // than a kUnread element has to be computed of kUnread ones. Zero times something is taken as zero, and the lowest
  // number less something as the lowest: where that is infinite, the result is no number anyway.
  BehindFacts(const ir::Func& scheduled, const std::vector<OperandFacts>& operands);
  std::vector<Behind> Of(const ir::Buffer& buffer) const;
  std::optional<ExtentBound> BoundOf(const ir::Buffer& buffer) const;
  WholeNumbers NumbersOf(const ir::Buffer& buffer) const;
  // A number that a whole number of the function is never above.
  std::optional<ExtentBound> MostAs(const ir::Expr& e) const;
  // Of a buffer's only element, if it is a sum of numbers that grow with extents, though with no single one.
  std::optional<NumberRange> SumOf(const ir::Buffer& buffer) const;

  // An element, by its place, is behind an extent.
  struct Place {
    int extent;
    ir::Expr at;
  };
  // A condition that holds where an element is not behind an extent; `ranges` are those of its variables.
  std::optional<Place> AsCondition(const ir::Expr& e, const ir::Simplifier& ranges) const;
  // Behind which place a condition is false, whatever it is where an element is not behind that.
  std::optional<Place> NoBehind(const ir::Expr& e, const ir::Simplifier& ranges) const;
  // Behind which places, over the block's iterators, a reduction's terms change nothing.
  std::vector<Place> IdleTerms(const ir::StmtNode& block) const;

 private:
  // kOwn: it may be another one from element to element. kAlike: it does not depend on the place.
  enum class Is : uint8_t { kOwn, kAlike, kNumber, kUnread };
  struct Element {
    Is is;
    double number = 0;
  };
  struct Known {
    std::vector<Behind> behind;  // what all blocks that write it say
    std::vector<Behind> said;    // and what those say that were followed so far
    OperandFacts operand;
    std::optional<ExtentBound> limit;
    std::optional<NumberRange> sum;
    WholeNumbers numbers;
    int writers = 0, seen = 0;  // blocks that write it: in all, and before the one that is being followed
  };

  const Known* Find(const ir::Buffer& buffer) const;
  bool Follow(const ir::StmtNode& block);  // whether more is known then
  std::vector<Behind> OfBlock(const ir::StmtNode& block) const;
  std::optional<int64_t> NumberOf(const ir::Expr& e) const;  // a whole number that is known
  std::optional<ExtentBound> BoundAs(const ir::Expr& e) const;
  std::optional<NumberRange> SumAs(const ir::Expr& e) const;
  bool IsNatural(const ir::Expr& e) const;  // whether that is known
  std::vector<Place> PlacesIn(const ir::Expr& value, const ir::Simplifier& ranges) const;

  // An expression of a block, for elements behind a place.
  class Evaluation;

  std::unordered_map<const ir::BufferNode*, Known> known_;
};

}  // namespace temper
