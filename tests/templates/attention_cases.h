// Attention as models have it, in f32: workloads that templates of every kind of device compute as one kernel.
#pragma once

#include <limits>
#include <vector>

#include "base/ndarray.h"

namespace temper {

inline constexpr const char* kAttentions[] = {
    "(f32[2,17,16], f32[2,23,16], f32[2,23,12]) matmul(0,1; trans_b=1) -> f32[2,17,23]; softmax(3; axis=2) -> "
    "f32[2,17,23]; matmul(4,2) -> f32[2,17,12]; anchor=2",
    // As BERT has it: heads in the order of memory, a scale and a mask, keys turned by their layout.
    "(f32[1,3,29,20]@0213, f32[1,3,20,29]@0312, const f32[], f32[1,1,29,29], f32[1,3,29,20]@0213) matmul(0,1) -> "
    "f32[1,3,29,29]; mul(5,2) -> f32[1,3,29,29]; add(6,3) -> f32[1,3,29,29]; softmax(7; axis=3) -> f32[1,3,29,29]; "
    "matmul(8,4) -> f32[1,3,29,20]@0213; anchor=4",
    // As nn.Transformer has it.
    "(f32[5,4,20,8]@2013, f32[5,4,10,8]@2013, const f32[], f32[5,4,10,8]@2013) matmul(0,1; trans_b=1) -> "
    "f32[5,4,20,10]; mul(4,2) -> f32[5,4,20,10]; softmax(5; axis=3) -> f32[5,4,20,10]; matmul(6,3) -> "
    "f32[5,4,20,8]@2013; anchor=3",
    // One head of keys and values for all; shares are changed; something follows.
    "(f32[2,3,9,7], f32[1,1,7,77], bool[77], f32[], f32[9,1], f32[2,1,5,77], f32[5]) matmul(0,1) -> f32[2,3,9,77]; "
    "where(2,7,3) -> f32[2,3,9,77]; softmax(8; axis=-1) -> f32[2,3,9,77]; mul(9,4) -> f32[2,3,9,77]; "
    "matmul(10,5; trans_b=1) -> f32[2,3,9,5]; add(11,6) -> f32[2,3,9,5]; relu(12) -> f32[2,3,9,5]; anchor=4",
    "(f32[33,40], f32[197,33], f32[197,100]) matmul(0,1; trans_a=1 trans_b=1) -> f32[40,197]; softmax(3; axis=1) -> "
    "f32[40,197]; matmul(4,2) -> f32[40,100]; anchor=2",
};

// Rows of which every score is masked are no numbers, as the reference says, and other rows are right; so they are for
// a mask that leaves one key.
inline constexpr const char* kMaskedAttention =
    "(f32[1,19,8], f32[1,21,8], f32[19,21], f32[1,21,8]) matmul(0,1; trans_b=1) -> f32[1,19,21]; add(4,2) -> "
    "f32[1,19,21]; softmax(5; axis=2) -> f32[1,19,21]; matmul(6,3) -> f32[1,19,8]; anchor=3";
inline bool IsMaskedRow(int64_t row) { return row == 4 || row == 17; }
inline void SetMask(std::vector<NDArray>& inputs) {
  for (int64_t row = 0; row < 19; ++row) {
    for (int64_t key = 0; key < 21; ++key) {
      const bool seen = !IsMaskedRow(row) && (row == 5 ? key == 20 : key <= row + 2);
      inputs[2].Set(row * 21 + key, seen ? 0 : -std::numeric_limits<double>::infinity());
    }
  }
}

}  // namespace temper
