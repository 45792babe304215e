// What non_max_suppression means, for its tensor expressions and its template alike.
//
// non_max_suppression(boxes f32[images, 4, boxes], scores f32[images, classes, boxes], overlap f32[1], least f32[1];
// k) is i32[images, classes, k]: of each class the positions of boxes, the best first, and -1 behind the last one. A
// box that scores more than `least` is taken unless it overlaps one that was taken before it; of equal scores the first
// box is the better one. The edges of a box are left, top, right, bottom, in any unit.
#pragma once

#include <functional>

#include "compiler/ir/expr.h"

namespace temper::ops {

struct Box {
  ir::Expr left, top, right, bottom;
};
Box BoxAt(const std::function<ir::Expr(int edge)>& edge);  // edges in the order of the operand

// Whether the area that both have is more than `threshold` of the area that either has.
ir::Expr Overlaps(const Box& a, const Box& b, const ir::Expr& threshold);

}  // namespace temper::ops
