// What tensor loops of warps and of teams have in common: their layouts are tried out at points, and their loops
// become unrolled ones.
#pragma once

#include <functional>
#include <map>
#include <optional>

#include "compiler/schedule/nest.h"

namespace temper::nest {

using Point = std::map<const ir::VarNode*, int64_t>;
// An index without loads at a point; nullopt for what indices are not made of.
std::optional<int64_t> ValueAt(const Expr& e, const Point& point);

// A copy of nested loops with variables of its own around what `body` makes of their substitutions.
Stmt UnrolledOver(const std::vector<Stmt>& loops, const std::function<Stmt(const std::vector<ir::VarBinding>&)>& body);

// The loads of shared memory in the factors of a product that a store adds to what it stores to. Null: it is none.
struct Factors {
  Expr a, b;
};
Factors FactorsOf(const Stmt& store);

}  // namespace temper::nest
