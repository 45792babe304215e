// Numbers of few bits, on what was worked out by hand or by plain loops over integers.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/rng.h"
#include "tests/frontend/model_builder.h"

namespace temper {
namespace {

using testing::ExpectArray;
using ::testing::HasSubstr;
using testing::ModelBuilder;

NDArray Numbers(DType dtype, Shape shape, const std::vector<double>& values) {
  NDArray a(dtype, std::move(shape));
  for (int64_t i = 0; i < a.size(); ++i) a.Set(i, values[static_cast<size_t>(i)]);
  return a;
}
NDArray One(DType dtype, double value) { return Numbers(dtype, {}, {value}); }

// A model of one node whose operands are inputs, or constants; those without elements are left out.
struct QuantizeOperand {
  NDArray data;
  bool constant = false;
};
ModelBuilder ModelOf(const std::string& op, const std::vector<QuantizeOperand>& operands, int outputs,
                     const std::function<void(onnx::NodeProto&)>& attributes, std::vector<NDArray>* feeds) {
  ModelBuilder m(21);
  std::vector<std::string> names, results;
  for (size_t i = 0; i < operands.size(); ++i) {
    const NDArray& data = operands[i].data;
    if (data.size() == 0) {
      names.emplace_back();
      continue;
    }
    names.push_back("x" + std::to_string(i));
    if (operands[i].constant) {
      onnx::TensorProto* t = m.model.mutable_graph()->add_initializer();
      t->set_name(names.back());
      t->set_data_type(Info(data.dtype()).onnx);
      for (int64_t d : data.shape()) t->add_dims(d);
      for (int64_t k = 0; k < data.size(); ++k) t->add_int32_data(static_cast<int32_t>(data.At(k)));
    } else {
      m.Input(names.back(), data.shape(), Info(data.dtype()).onnx);
      feeds->push_back(data);
    }
  }
  for (int i = 0; i < outputs; ++i) results.push_back("y" + std::to_string(i));
  onnx::NodeProto& node = m.Node(op, names, results);
  if (attributes) attributes(node);
  for (const std::string& y : results) m.Output(y);
  return m;
}
std::vector<NDArray> ResultsOf(const std::string& op, const std::vector<QuantizeOperand>& operands, int outputs = 1,
                               const std::function<void(onnx::NodeProto&)>& attributes = {}) {
  std::vector<NDArray> feeds;
  const ModelBuilder m = ModelOf(op, operands, outputs, attributes, &feeds);
  return m.Run(feeds);
}
std::string ErrorOf(const std::string& op, const std::vector<QuantizeOperand>& operands,
                    const std::function<void(onnx::NodeProto&)>& attributes = {}) {
  std::vector<NDArray> feeds;
  return std::string(ModelOf(op, operands, 1, attributes, &feeds).Import().status().message());
}
std::function<void(onnx::NodeProto&)> With(const std::vector<std::pair<std::string, int64_t>>& ints) {
  return [ints](onnx::NodeProto& node) {
    for (const auto& [name, value] : ints) ModelBuilder::SetInt(node, name, value);
  };
}
const QuantizeOperand kNone{NDArray(DType::kF32, {0})};

TEST(OnnxQuantize, TiesGoToTheEvenNumberAndWhatIsTooLargeIsTheLargest) {
  const NDArray x = Numbers(DType::kF32, {6}, {1, 3, -1, 5, 1000, -1000});
  const NDArray y = ResultsOf("QuantizeLinear", {{x}, {One(DType::kF32, 2)}, {One(DType::kU8, 128)}})[0];
  EXPECT_EQ(y.dtype(), DType::kU8);
  ExpectArray(y, {6}, {128, 130, 128, 130, 255, 0});
  const NDArray wide = ResultsOf("QuantizeLinear", {{x}, {One(DType::kF32, 0.01f)}, {One(DType::kI16, 0)}})[0];
  ExpectArray(wide, {6}, {100, 300, -100, 500, 32767, -32768});
  EXPECT_EQ(ResultsOf("QuantizeLinear", {{x}, {One(DType::kF32, 1)}})[0].dtype(), DType::kU8);
  const NDArray named = ResultsOf("QuantizeLinear", {{x}, {One(DType::kF32, 2)}}, 1,
                                  With({{"output_dtype", onnx::TensorProto::INT8}}))[0];
  ExpectArray(named, {6}, {0, 2, 0, 2, 127, -128});
}

TEST(OnnxQuantize, ScalesOfAnAxisAndOfBlocks) {
  const NDArray x = Numbers(DType::kI8, {2, 3}, {-1, 2, 3, 4, 5, -6});
  ExpectArray(ResultsOf("DequantizeLinear", {{x}, {Numbers(DType::kF32, {3}, {1, 10, 100})}})[0], {2, 3},
              {-1, 20, 300, 4, 50, -600});
  ExpectArray(
      ResultsOf("DequantizeLinear", {{x}, {Numbers(DType::kF32, {2}, {1, 10})}, {Numbers(DType::kI8, {2}, {-128, 1})}},
                1, With({{"axis", -2}}))[0],
      {2, 3}, {127, 130, 131, 30, 40, -70});
  // The last block is shorter.
  ExpectArray(ResultsOf("DequantizeLinear", {{x}, {Numbers(DType::kF32, {2, 2}, {1, 2, 3, 4})}}, 1,
                        With({{"axis", 1}, {"block_size", 2}}))[0],
              {2, 3}, {-1, 2, 6, 12, 15, -24});
  EXPECT_THAT(ErrorOf("DequantizeLinear", {{x}, {Numbers(DType::kF32, {2}, {1, 2})}}), HasSubstr("3 in a row"));
  EXPECT_THAT(
      ErrorOf("DequantizeLinear", {{x}, {Numbers(DType::kF32, {2, 3}, {1, 2, 3, 4, 5, 6})}}, With({{"block_size", 2}})),
      HasSubstr("each block"));
  // One block that is larger than what there is.
  ExpectArray(ResultsOf("DequantizeLinear", {{x}, {Numbers(DType::kF32, {2, 1}, {1, 2})}}, 1,
                        With({{"block_size", INT64_MAX}}))[0],
              {2, 3}, {-1, 2, 3, 8, 10, -12});
  EXPECT_THAT(ErrorOf("DequantizeLinear", {{x}, {Numbers(DType::kF32, {2, 1}, {1, 2})}}, With({{"block_size", -1}})),
              HasSubstr("block_size is -1"));
  EXPECT_THAT(ErrorOf("DequantizeLinear", {{x}, {Numbers(DType::kF32, {2}, {1, 2})}}, With({{"axis", 2}})),
              HasSubstr("axis"));
}

TEST(OnnxQuantize, TheTypeOfAScaleIsTheResults) {
  const NDArray y = ResultsOf("DequantizeLinear", {{Numbers(DType::kU8, {2}, {255, 0})}, {One(DType::kF16, 2)}})[0];
  EXPECT_EQ(y.dtype(), DType::kF16);
  ExpectArray(y, {2}, {510, 0});
  const NDArray narrow = ResultsOf(
      "QuantizeLinear", {{Numbers(DType::kF32, {2}, {1000, 3})}, {One(DType::kF32, 2)}, {One(DType::kF8E4M3FN, 0)}})[0];
  ExpectArray(narrow, {2}, {448, 1.5});
}

TEST(OnnxQuantize, ARangeThatTheDataTell) {
  const std::vector<double> x = {-1, 0.5, 4, 2};
  const auto y = ResultsOf("DynamicQuantizeLinear", {{Numbers(DType::kF32, {2, 2}, x)}}, 3);
  const double scale = 5.0 / 255;
  ExpectArray(y[1], {}, {scale});
  ExpectArray(y[2], {}, {std::nearbyint(1 / scale)});
  std::vector<double> wanted;
  for (double v : x) wanted.push_back(std::nearbyint(v / scale) + 51);
  ExpectArray(y[0], {2, 2}, wanted);
  const auto zeros = ResultsOf("DynamicQuantizeLinear", {{Numbers(DType::kF32, {3}, {0, 0, 0})}}, 3);
  ExpectArray(zeros[0], {3}, {0, 0, 0});
  // Zero is in the range, whatever the data.
  EXPECT_EQ(ResultsOf("DynamicQuantizeLinear", {{Numbers(DType::kF32, {2}, {3, 6})}}, 3)[2].At(0), 0);
}

TEST(OnnxQuantize, ProductsAreExact) {
  Rng rng(1);
  const int64_t rows = 3, k = 700, columns = 2;
  for (const auto& [of_a, of_b] :
       {std::pair(DType::kU8, DType::kI8), {DType::kI8, DType::kI8}, {DType::kU8, DType::kU8}}) {
    NDArray a(of_a, {rows, k}), b(of_b, {k, columns});
    for (NDArray* x : {&a, &b}) {
      for (int64_t i = 0; i < x->size(); ++i)
        x->Set(i, Lowest(x->dtype()) + (rng.Below(4) == 0 ? rng.Below(256) : 255));
    }
    const auto product = [&](const std::vector<double>& a_zero, const std::vector<double>& b_zero) {
      std::vector<double> sums;
      for (int64_t i = 0; i < rows; ++i) {
        for (int64_t j = 0; j < columns; ++j) {
          double sum = 0;
          for (int64_t r = 0; r < k; ++r)
            sum += (a.At(i * k + r) - a_zero[static_cast<size_t>(i)]) *
                   (b.At(r * columns + j) - b_zero[static_cast<size_t>(j)]);
          sums.push_back(sum);
        }
      }
      return sums;
    };
    ExpectArray(ResultsOf("MatMulInteger", {{a}, {b}})[0], {rows, columns}, product({0, 0, 0}, {0, 0}));
    ExpectArray(ResultsOf("MatMulInteger", {{a}, {b}, {One(of_a, 0), true}, {One(of_b, 0), true}})[0], {rows, columns},
                product({0, 0, 0}, {0, 0}));
    ExpectArray(
        ResultsOf("MatMulInteger", {{a}, {b}, {Numbers(of_a, {3}, {1, 7, 100})}, {Numbers(of_b, {2}, {3, 100})}})[0],
        {rows, columns}, product({1, 7, 100}, {3, 100}));
    ExpectArray(ResultsOf("MatMulInteger", {{a}, {b}, kNone, {One(of_b, 5), true}})[0], {rows, columns},
                product({0, 0, 0}, {5, 5}));
  }
  // Weights whose sums f32 does not hold exactly at once: they are added up as integers, part by part.
  NDArray large(DType::kI8, {k, 1}), ones(DType::kU8, {1, k});
  for (int64_t i = 0; i < k; ++i) {
    large.Set(i, i % 2 == 0 && i > 0 ? 127 : 126);
    ones.Set(i, 255);
  }
  for (bool constant : {false, true})
    ExpectArray(ResultsOf("MatMulInteger", {{ones}, {large, constant}})[0], {1, 1}, {255.0 * ((127 + 126) * 350 - 1)},
                0);
  const NDArray row = Numbers(DType::kU8, {2}, {1, 2}), matrix = Numbers(DType::kU8, {2, 2}, {1, 2, 3, 4});
  ExpectArray(ResultsOf("MatMulInteger", {{row}, {matrix}})[0], {2}, {7, 10});
  ExpectArray(ResultsOf("MatMulInteger", {{matrix}, {row}})[0], {2}, {5, 11});
  ExpectArray(ResultsOf("MatMulInteger", {{row}, {row}})[0], {}, {5});
}

TEST(OnnxQuantize, ScaledProductsSaturate) {
  const NDArray a = Numbers(DType::kI8, {1, 2}, {100, 100}),
                b = Numbers(DType::kI8, {2, 3}, {100, -100, 1, 100, -100, 2});
  const auto y = ResultsOf("QLinearMatMul", {{a},
                                             {One(DType::kF32, 0.5f)},
                                             {One(DType::kI8, 0)},
                                             {b},
                                             {Numbers(DType::kF32, {3}, {0.5f, 0.5f, 0.25f})},
                                             {Numbers(DType::kI8, {3}, {0, 0, 0})},
                                             {One(DType::kF32, 1)},
                                             {One(DType::kI8, -3)}})[0];
  EXPECT_EQ(y.dtype(), DType::kI8);
  ExpectArray(y, {1, 3}, {127, -128, std::nearbyint(300 * 0.125) - 3});
}

// Padding is the zero point: it is nothing.
TEST(OnnxQuantize, ConvolutionsPadWithTheZeroPoint) {
  const NDArray x = Numbers(DType::kU8, {1, 1, 1, 3}, {10, 20, 30}),
                w = Numbers(DType::kI8, {2, 1, 1, 3}, {1, 1, 1, 1, 2, -3});
  const auto padded = [](onnx::NodeProto& node) { ModelBuilder::SetInts(node, "pads", {0, 1, 0, 1}); };
  ExpectArray(ResultsOf("ConvInteger", {{x}, {w}, {One(DType::kU8, 5)}}, 1, padded)[0], {1, 2, 1, 3},
              {20, 45, 40, 2 * 5 - 3 * 15, 5 + 2 * 15 - 3 * 25, 15 + 2 * 25});
  const auto y = ResultsOf("QLinearConv",
                           {{x},
                            {One(DType::kF32, 0.5f)},
                            {One(DType::kU8, 5)},
                            {w},
                            {Numbers(DType::kF32, {2}, {1, 2})},
                            {Numbers(DType::kI8, {2}, {0, 0})},
                            {One(DType::kF32, 0.5f)},
                            {One(DType::kU8, 100)},
                            {Numbers(DType::kI32, {2}, {7, -8})}},
                           1, padded)[0];
  EXPECT_EQ(y.dtype(), DType::kU8);
  ExpectArray(y, {1, 2, 1, 3}, {127, 152, 147, 100 + 2 * (-35 - 8), 100 + 2 * (-40 - 8), 100 + 2 * (65 - 8)});
  // Over one axis.
  const auto line = ResultsOf("ConvInteger", {{Numbers(DType::kU8, {1, 1, 3}, {10, 20, 30})},
                                              {Numbers(DType::kI8, {1, 1, 2}, {1, -1})},
                                              kNone,
                                              {Numbers(DType::kI8, {1}, {1})}})[0];
  ExpectArray(line, {1, 1, 2}, {-40, -60});
  // A channel a group; and groups whose sums f32 does not hold exactly.
  const NDArray each = ResultsOf(
      "ConvInteger", {{Numbers(DType::kU8, {1, 2, 1, 2}, {1, 2, 3, 4})}, {Numbers(DType::kI8, {2, 1, 1, 1}, {5, -7})}},
      1, With({{"group", 2}}))[0];
  ExpectArray(each, {1, 2, 1, 2}, {5, 10, -21, -28});
  const int64_t many = 700;
  NDArray full(DType::kU8, {1, 2 * many, 1, 1}), weights(DType::kU8, {2, many, 1, 1});
  for (int64_t i = 0; i < full.size(); ++i) {
    full.Set(i, 255);
    weights.Set(i, i == 0 ? 254 : 255);
  }
  for (bool constant : {false, true})
    ExpectArray(ResultsOf("ConvInteger", {{full}, {weights, constant}}, 1, With({{"group", 2}}))[0], {1, 2, 1, 1},
                {255.0 * (255 * many - 1), 255.0 * 255 * many}, 0);
}

}  // namespace
}  // namespace temper
