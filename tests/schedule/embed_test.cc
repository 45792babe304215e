// Results as parts of larger arrays, and in the place of operands.
#include "compiler/schedule/embed.h"

#include <gmock/gmock.h>

namespace temper {
namespace {

using ir::Expr;
using ::testing::HasSubstr;

constexpr int64_t kEmbeddedRows = 3, kEmbeddedColumns = 4;

// out[i, j] = in[index(i, j)] + 1
ir::Func Increment(const std::function<std::vector<Expr>(Expr i, Expr j)>& index) {
  ir::Buffer in = ir::MakeBuffer("in", DType::kF32, {kEmbeddedRows, kEmbeddedColumns}),
             out = ir::MakeBuffer("out", DType::kF32, in->shape);
  ir::Var i = ir::MakeVar("i"), j = ir::MakeVar("j");
  ir::Stmt store = ir::Store(out, {i, j}, ir::Load(in, index(i, j)) + ir::Float(1));
  return {"increment",
          {in, out},
          1,
          ir::For(i, kEmbeddedRows, ir::ForKind::kSerial, ir::For(j, kEmbeddedColumns, ir::ForKind::kSerial, store))};
}
ir::Func Increment() {
  return Increment([](const Expr& i, const Expr& j) { return std::vector<Expr>{i, j}; });
}

// What the function leaves of an array of -1, from the operand 0, 1, 2...
std::vector<float> Interpreted(const ir::Func& func) {
  std::vector<NDArray> args = {NDArray(DType::kF32, func.params[0]->shape),
                               NDArray(DType::kF32, func.params[1]->shape)};
  for (int64_t k = 0; k < args[0].size(); ++k) args[0].Set(k, static_cast<double>(k));
  for (int64_t k = 0; k < args[1].size(); ++k) args[1].Set(k, -1);
  EXPECT_TRUE(ir::Interpret(func, args).ok());
  auto out = args[1].as<float>();
  return std::vector<float>(out.begin(), out.end());
}

TEST(EmbedTest, WritesColumnsOfALargerArrayAndNothingElse) {
  absl::StatusOr<ir::Func> embedded = EmbedOutput(Increment(), kEmbeddedColumns, 7, 2);
  ASSERT_TRUE(embedded.ok()) << embedded.status();
  EXPECT_EQ(embedded->params.back()->shape, Shape({kEmbeddedRows, 7}));
  const std::vector<float> out = Interpreted(*embedded);
  for (int64_t i = 0; i < kEmbeddedRows; ++i) {
    for (int64_t j = 0; j < 7; ++j) {
      const bool inside = j >= 2 && j < 2 + kEmbeddedColumns;
      EXPECT_EQ(out[static_cast<size_t>(i * 7 + j)],
                inside ? static_cast<float>(i * kEmbeddedColumns + j - 2 + 1) : -1);
    }
  }
}

TEST(EmbedTest, WritesRowsOfALargerArray) {
  absl::StatusOr<ir::Func> embedded = EmbedOutput(Increment(), kEmbeddedRows * kEmbeddedColumns, 20, 8);
  ASSERT_TRUE(embedded.ok()) << embedded.status();
  const std::vector<float> out = Interpreted(*embedded);
  for (int64_t k = 0; k < 20; ++k) EXPECT_EQ(out[static_cast<size_t>(k)], k < 8 ? -1 : static_cast<float>(k - 8 + 1));
}

TEST(EmbedTest, RefusesPartsThatAreNoDimensions) {
  EXPECT_THAT(std::string(EmbedOutput(Increment(), 6, 12, 0).status().message()), HasSubstr("the 6 elements"));
}

TEST(EmbedTest, OnlyWhatIsReadWhereItIsWrittenMayBeInPlace) {
  EXPECT_TRUE(ReadsWhatItWrites(Increment(), 0));
  EXPECT_FALSE(ReadsWhatItWrites(Increment([](const Expr& i, const Expr& j) {
                                   return std::vector<Expr>{i, Expr(kEmbeddedColumns - 1) - j};
                                 }),
                                 0));
  // Through scratch: what is read there may have been overwritten before it is used.
  ir::Func func = Increment();
  ir::Buffer copy = ir::MakeBuffer("copy", DType::kF32, {kEmbeddedRows, kEmbeddedColumns});
  ir::Var i = ir::MakeVar("i"), j = ir::MakeVar("j");
  ir::Stmt fill = ir::For(
      i, kEmbeddedRows, ir::ForKind::kSerial,
      ir::For(j, kEmbeddedColumns, ir::ForKind::kSerial, ir::Store(copy, {i, j}, ir::Load(func.params[0], {i, j}))));
  func.body = ir::Alloc(copy, ir::Seq({fill, func.body}));
  EXPECT_FALSE(ReadsWhatItWrites(func, 0));
}

}  // namespace
}  // namespace temper
