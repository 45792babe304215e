// Walks over expressions that share their nodes. Visit (expr.h) comes to a shared node by each path to it, as often as
// it would be computed, and a graph whose nodes are shared again and again has exponentially many paths.
#pragma once

#include <functional>

#include "compiler/ir/expr.h"

namespace temper::ir {

// Whether `holds` for a node. Pre-order, each node once, none after the first for which it does.
bool AnyNode(const Expr& e, const std::function<bool(const Expr&)>& holds);
bool HasLoad(const Expr& e);
bool LoadsFrom(const Expr& e, const Buffer& buffer);

}  // namespace temper::ir
