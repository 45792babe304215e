// Costly elementwise work on a tile of registers: a pass of Lower.
#pragma once

#include "compiler/ir/stmt.h"

namespace temper::nest {

// Unrolled nests that do nothing but compute costly values (exp, erf) of register arrays that a long loop has left, and
// store them in memory, become loops: the registers are first copied, unrolled, to a tile in memory of its own, so that
// they stay registers, and the loops read that tile. They are outlined, since else the constants of such values would
// be kept in registers while the tile is computed. Unrolled, such an epilogue would be most of the kernel's code, and
// take most of the time to compile it.
ir::Stmt RollEpilogues(const ir::Stmt& root);

}  // namespace temper::nest
