// Which shapes a variant takes, and where the elements of an input lie that has less than there is room for.
#include "compiler/runtime/shapes.h"

#include <gmock/gmock.h>

#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

namespace {

using ::testing::HasSubstr;
using Ints = std::vector<int64_t>;

// Inputs of f32 with extents that inputs behind them tell.
struct Input {
  Ints most, least;
  std::vector<temper_extent> extents;

  temper_io Io() const {
    const int64_t elements = std::accumulate(most.begin(), most.end(), int64_t{1}, std::multiplies<>());
    return {"x",
            1,
            static_cast<int64_t>(most.size()),
            most.data(),
            elements * 4,
            extents.empty() ? nullptr : least.data(),
            std::ssize(extents),
            extents.data()};
  }
};

// What lies where in the room: the numbers of the dense elements from 1 on, and 0 where none is.
std::vector<float> Spread(const Ints& most, const Ints& shape) {
  std::vector<float> room;
  Ints at(most.size(), 0);
  float next = 1;
  for (int64_t left = std::accumulate(most.begin(), most.end(), int64_t{1}, std::multiplies<>()); left > 0; --left) {
    bool there = true;
    for (size_t d = 0; d < at.size(); ++d) there = there && at[d] < shape[d];
    room.push_back(there ? next++ : 0);
    for (size_t d = at.size(); d-- > 0 && ++at[d] == most[d];) at[d] = 0;
  }
  return room;
}

TEST(Pieces, SpreadEachShapeOfARangeWithZerosBehindItsEnds) {
  const Input input = {{3, 2, 4, 3}, {0, 0, 0, 0}, {{0, 1}, {1, 2}, {2, 3}, {3, 4}}};
  const temper_io io = input.Io();
  int64_t shapes = 0;
  for (Ints shape(4, 0); shape[0] <= 3; ++shapes) {
    std::vector<float> dense(72), room(72, -1);
    std::iota(dense.begin(), dense.end(), 1.0f);
    temper_pieces pieces = temper_pieces_of(&io, shape.data());
    temper_piece p;
    int64_t end = 0, taken = 0;
    while (temper_next_piece(&pieces, &p) != 0) {
      for (int64_t i = 0; i < p.times; ++i) {
        const int64_t to = p.to + i * p.stride, zeros = temper_zeros_behind(&p, i);
        ASSERT_EQ(to, end);
        ASSERT_EQ(p.from + i * p.bytes, taken);
        std::memcpy(room.data() + to / 4, dense.data() + taken / 4, static_cast<size_t>(p.bytes));
        std::fill_n(room.begin() + (to + p.bytes) / 4, zeros / 4, 0.0f);
        end += p.bytes + zeros;
        taken += p.bytes;
      }
    }
    ASSERT_EQ(end, io.bytes);
    ASSERT_EQ(taken, temper_bytes_of(&io, shape.data()));
    ASSERT_EQ(room, Spread(input.most, shape)) << ::testing::PrintToString(shape);
    for (size_t d = 4; d-- > 0 && ++shape[d] > input.most[d] && d > 0;) shape[d] = 0;
  }
  EXPECT_EQ(shapes, 4 * 3 * 5 * 4);
}

TEST(Pieces, WhatHasNoRangeIsOne) {
  // Five numbers of four bits are no whole number of bytes each; a number has no axes; nothing has no bytes.
  const int64_t five[] = {5}, none[] = {2, 0};
  for (const temper_io& io : {temper_io{"packed", 22, 1, five, 3, nullptr, 0, nullptr},
                              temper_io{"number", 7, 0, nullptr, 8, nullptr, 0, nullptr},
                              temper_io{"nothing", 1, 2, none, 0, nullptr, 0, nullptr}}) {
    EXPECT_EQ(temper_bytes_of(&io, io.shape), io.bytes);
    temper_pieces pieces = temper_pieces_of(&io, io.shape);
    temper_piece p = {};
    EXPECT_EQ(temper_next_piece(&pieces, &p) != 0, io.bytes > 0) << io.name;
    EXPECT_EQ(p.bytes, io.bytes);
    EXPECT_EQ(p.times, io.bytes > 0 ? 1 : 0);
    EXPECT_EQ(p.zeros, 0);
    EXPECT_EQ(temper_next_piece(&pieces, &p), 0);
  }
}

class Variants : public ::testing::Test {
 protected:
  // Of ids [1..4, 2..9] and a mask of as many, twice along its last axes.
  const Input ids_{{4, 9}, {1, 2}, {{0, 2}, {1, 3}}}, mask_{{4, 9, 9}, {1, 2, 2}, {{0, 2}, {1, 3}, {2, 3}}};
  const temper_io ios_[2] = {ids_.Io(), mask_.Io()};
  const temper_variant variant_ = {4, ios_, 2, 0, nullptr, 0, 0, nullptr, {0, 0}, 0};
  const temper_plan plan_ = [this] {
    temper_plan plan = {};
    plan.num_variants = 1;
    plan.variants = &variant_;
    return plan;
  }();
  char line_[256] = "";

  bool Takes(const Ints& ids, const Ints& mask) {
    temper_tensor inputs[2] = {};
    for (int i = 0; i < 2; ++i) {
      const Ints& shape = i == 0 ? ids : mask;
      inputs[i].dtype = 1;
      inputs[i].rank = static_cast<int32_t>(shape.size());
      std::copy(shape.begin(), shape.end(), inputs[i].shape);
    }
    return temper_find_variant(&plan_, inputs, line_, sizeof line_) == &variant_;
  }
};

TEST_F(Variants, TakeEachChoiceOfLengths) {
  for (const int64_t batch : {1, 3, 4}) {
    for (const int64_t length : {2, 5, 9}) EXPECT_TRUE(Takes({batch, length}, {batch, length, length}));
  }
}

TEST_F(Variants, RefuseInOneLineWhatIsBeyondARange) {
  constexpr int64_t kLargest = std::numeric_limits<int64_t>::max(), kLowest = std::numeric_limits<int64_t>::min();
  for (const int64_t length : {int64_t{0}, int64_t{1}, int64_t{10}, int64_t{-3}, kLargest, kLowest}) {
    EXPECT_FALSE(Takes({2, length}, {2, length, length}));
    EXPECT_EQ(line_, "input x has type 1 [2, " + std::to_string(length) + "]; the model takes type 1 [1..4, 2..9]");
  }
  EXPECT_FALSE(Takes({5, 5}, {5, 5, 5}));
  EXPECT_FALSE(Takes({2}, {2, 5, 5}));
}

TEST_F(Variants, RefuseLengthsThatDisagree) {
  EXPECT_FALSE(Takes({2, 5}, {3, 5, 5}));
  EXPECT_THAT(line_, HasSubstr("one length")) << "what it takes beside another input is not all that it has room for";
  EXPECT_FALSE(Takes({2, 5}, {2, 4, 4}));
  EXPECT_THAT(line_, HasSubstr("one length"));
  EXPECT_FALSE(Takes({2, 5}, {2, 5, 4})) << "within an input";
  EXPECT_THAT(line_, HasSubstr("has type 1 [2, 5, 4]; the model takes type 1 [1..4, 2..9, 2..9], and dimensions of one "
                               "name have one length"));
}

}  // namespace
