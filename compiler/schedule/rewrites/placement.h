// Fresh nests around a block, over the part of its domain that is wanted.
#pragma once

#include <vector>

#include "compiler/schedule/region.h"

namespace temper::nest {

// [0, extent) for every iterator of the block.
std::vector<Range> WholeDomain(const StmtNode& block);
// Narrows `plan` to `region` (one entry a dimension of the buffer that the block writes) wherever the dimension's
// index is one spatial iterator alone.
void NarrowToWrites(const StmtNode& block, const std::vector<std::optional<Range>>& region, std::vector<Range>& plan);
// The block under new loops, one an iterator, over `plan`: spatial ones in the order of the buffer's dimensions, then
// reductions. Where the plan may leave the domain the block gets a predicate; `around` knows the loops outside.
Stmt BuildNest(const Stmt& block, const std::vector<Range>& plan, const ir::Simplifier& around);

// Puts `s` into the body of `loop` before its child number `at` (its length: at the end); the root comes back.
Stmt InsertInLoop(const Stmt& root, const Var& loop, size_t at, const Stmt& s);
// The statements one after another in a body.
std::vector<Stmt> Children(const Stmt& body);

}  // namespace temper::nest
