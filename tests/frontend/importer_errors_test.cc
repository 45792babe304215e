// Bad models and bad options: one line that says what to do.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "tests/frontend/model_builder.h"

namespace temper {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::ModelBuilder;
using ::testing::Not;

ModelBuilder Relu() {
  ModelBuilder m(13);
  m.Input("x", {2, 3});
  m.Node("Relu", {"x"}, {"y"});
  m.Output("y");
  return m;
}

std::string Error(const absl::StatusOr<Graph>& g) {
  EXPECT_FALSE(g.ok());
  std::string text(g.status().message());
  EXPECT_THAT(text, Not(HasSubstr("\n")));
  return text;
}

class TempFile {
 public:
  explicit TempFile(const std::string& content)
      : path_(::testing::TempDir() + "/importer_" + std::to_string(counter_++) + ".onnx") {
    std::ofstream(path_, std::ios::binary) << content;
  }
  ~TempFile() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }

 private:
  static inline int counter_ = 0;
  std::string path_;
};

TEST(OnnxErrors, Files) {
  EXPECT_THAT(Error(ImportOnnx("/no/such/model.onnx")), HasSubstr("no such file"));
  EXPECT_THAT(Error(ImportOnnx(::testing::TempDir())), HasSubstr("not a file"));
  EXPECT_THAT(Error(ImportOnnx(TempFile("").path())), HasSubstr("empty"));
  EXPECT_THAT(Error(ImportOnnx(TempFile("This is no model, but some text about one.\n").path())),
              HasSubstr("no ONNX model"));
  EXPECT_TRUE(ImportOnnx(TempFile(Relu().Bytes()).path()).ok());
}

TEST(OnnxErrors, ATruncatedFileIsRefusedWhereverItEnds) {
  ModelBuilder m = Relu();
  m.Floats("w", {64}, std::vector<float>(64, 1));
  const std::string bytes = m.Bytes();
  for (size_t length = 0; length < bytes.size(); ++length) {
    absl::StatusOr<Graph> g = ImportOnnxBytes(bytes.substr(0, length), "cut");
    // What follows the graph in the file names the opset; without it there is no model.
    EXPECT_FALSE(g.ok()) << "cut to " << length << " of " << bytes.size();
  }
}

TEST(OnnxErrors, ParametersOfAGroupNormAreOneAGroupOrChannel) {
  ModelBuilder m(21);
  m.Input("x", {1, 8, 2});
  m.Floats("scale", {2}, {1, 1});
  m.Floats("bias", {8}, std::vector<float>(8, 0));
  ModelBuilder::SetInt(m.Node("GroupNormalization", {"x", "scale", "bias"}, {"y"}), "num_groups", 4);
  m.Output("y");
  EXPECT_THAT(Error(m.Import()), HasSubstr("one value a group or channel"));
}

TEST(OnnxErrors, AllUnsupportedOperatorsAtOnceWithTheirNodes) {
  ModelBuilder m = Relu();
  m.Node("Multinomial", {"x"}, {"a"}).set_name("first");
  m.Node("StringNormalizer", {"x"}, {"b"}).set_name("second");
  m.Node("Multinomial", {"x"}, {"c"}).set_name("third");
  m.Node("Relu", {"x"}, {"d"}).set_domain("com.example");
  EXPECT_THAT(Error(m.Import()), AllOf(HasSubstr("Multinomial (first, third)"), HasSubstr("StringNormalizer (second)"),
                                       HasSubstr("com.example.Relu")));
}

TEST(OnnxErrors, ModelsOfOtherDomainsAlone) {
  ModelBuilder m(17);
  m.model.mutable_opset_import(0)->set_domain("ai.onnx.ml");
  m.Input("x", {1, 2});
  m.Node("Scaler", {"x"}, {"y"}).set_domain("ai.onnx.ml");
  m.Output("y");
  EXPECT_THAT(Error(m.Import()), HasSubstr("operators of other domains alone"));
}

TEST(OnnxErrors, Opsets) {
  EXPECT_THAT(Error(ModelBuilder(6).Import()), HasSubstr("no graph with outputs"));
  for (int opset : {6, 29}) {
    ModelBuilder m(opset);
    m.Input("x", {1});
    m.Node("Relu", {"x"}, {"y"});
    m.Output("y");
    EXPECT_THAT(Error(m.Import()), HasSubstr("7 to 28"));
  }
}

TEST(OnnxErrors, OpenDimensionsAskForAShape) {
  ModelBuilder m(13);
  m.Input("image", {-1, 3, 224, -1});
  m.Node("Relu", {"image"}, {"y"});
  m.Output("y");
  EXPECT_THAT(Error(m.Import()), HasSubstr("--shape image=D0,3,224,D3"));
  absl::StatusOr<Graph> g = m.Import({{{"image", {2, 3, 224, 100}}}});
  ASSERT_TRUE(g.ok()) << g.status();
  EXPECT_EQ(g->values[g->outputs[0]].type.shape, (Shape{2, 3, 224, 100}));
}

TEST(OnnxErrors, ShapesThatDoNotFitTheModel) {
  const ModelBuilder m = Relu();
  EXPECT_THAT(Error(m.Import({{{"z", {1}}}})), AllOf(HasSubstr("no such input"), HasSubstr("x")));
  EXPECT_THAT(Error(m.Import({{{"x", {2, 4}}}})), HasSubstr("dimension 1 is 3"));
  EXPECT_THAT(Error(m.Import({{{"x", {2}}}})), HasSubstr("the model has 2"));
  EXPECT_THAT(Error(m.Import({{{"x", {2, 0}}}})), HasSubstr("dimension 1 is 3 in the model, not 0"));
  EXPECT_THAT(Error(m.Import({{{"x", {2, -1}}}})), HasSubstr("at least 0"));
  EXPECT_TRUE(m.Import({{{"x", {2, 3}}}}).ok());
}

TEST(OnnxErrors, AShapeThatDependsOnData) {
  ModelBuilder m = Relu();
  m.Input("s", {2}, onnx::TensorProto::INT64);
  m.Node("Reshape", {"x", "s"}, {"z"}).set_name("odd");
  EXPECT_THAT(Error(m.Import()), AllOf(HasSubstr("odd"), HasSubstr("depends on the model's inputs")));
}

TEST(OnnxErrors, OutputsThatTemperDoesNotCompute) {
  ModelBuilder m(13);
  m.Input("x", {1, 1, 2, 2});
  m.Node("Relu", {"x"}, {"y", "mask"});
  m.Output("mask");
  EXPECT_THAT(Error(m.Import()), AllOf(HasSubstr("mask"), HasSubstr("output 1 of Relu")));
}

TEST(OnnxErrors, BrokenTensorsAndTypes) {
  ModelBuilder few = Relu();
  few.Floats("w", {3}, {1, 2});
  EXPECT_THAT(Error(few.Import()), HasSubstr("'w'"));
  ModelBuilder huge = Relu();
  huge.Floats("w", {int64_t{1} << 40, int64_t{1} << 40}, {});
  EXPECT_THAT(Error(huge.Import()), HasSubstr("is too large"));
  ModelBuilder text(13);
  text.Input("x", {1}, onnx::TensorProto::STRING);
  text.Output("x");
  EXPECT_THAT(Error(text.Import()), AllOf(HasSubstr("'x'"), HasSubstr("STRING")));
}

TEST(OnnxErrors, OperatorsThatDoNotFitTheirOperandsNameTheirNode) {
  ModelBuilder m(13);
  m.Input("x", {2, 3});
  m.Node("MatMul", {"x", "x"}, {"y"}).set_name("layer1");
  m.Output("y");
  EXPECT_THAT(Error(m.Import()), HasSubstr("layer1"));
}

TEST(OnnxErrors, OperandsThatAreMissing) {
  for (const char* op :
       {"Add", "Conv", "Gather", "Reshape", "Expand", "Where", "BatchNormalization", "LayerNormalization", "Gemm",
        "MatMul", "Tile", "Range", "Resize", "GroupNormalization", "CastLike", "Upsample", "ConvTranspose"}) {
    ModelBuilder m(13);
    m.Input("x", {2, 3, 4, 5});
    m.Node(op, {"x"}, {"y"}).set_name("lonely");
    m.Output("y");
    EXPECT_THAT(Error(m.Import()), HasSubstr("lonely")) << op;
    ModelBuilder none(13);
    none.Node(op, {}, {"y"}).set_name("lonely");
    none.Output("y");
    EXPECT_THAT(Error(none.Import()), HasSubstr("lonely")) << op;
  }
}

TEST(OnnxErrors, RandomDamageIsNeverACrash) {
  ModelBuilder m(13);
  m.Input("x", {1, 2, 6, 6});
  m.Floats("w", {2, 2, 3, 3}, std::vector<float>(36, 0.1f));
  m.Ints("shape", {1, -1});
  auto& conv = m.Node("Conv", {"x", "w"}, {"c"});
  ModelBuilder::SetInts(conv, "pads", {1, 1, 1, 1});
  ModelBuilder::SetInts(m.Node("MaxPool", {"c"}, {"p"}), "kernel_shape", {2, 2});
  m.Node("Reshape", {"p", "shape"}, {"r"});
  m.Node("Softmax", {"r"}, {"y"});
  m.Output("y");
  const std::string good = m.Bytes();
  uint64_t state = 1;
  int refused = 0;
  for (int n = 0; n < 3000; ++n) {
    std::string bad = good;
    for (int k = 0; k < 2; ++k) {
      state = state * 6364136223846793005ull + 1442695040888963407ull;
      bad[(state >> 33) % bad.size()] = static_cast<char>(state >> 20);
    }
    refused += ImportOnnxBytes(bad, "damaged").ok() ? 0 : 1;
  }
  EXPECT_GT(refused, 300);
}

// Two floats that lie in `data`, beside the model.
std::string OutsideError(const std::string& data, const std::string& offset, const std::string& length) {
  ModelBuilder m = Relu();
  onnx::TensorProto& t = *m.model.mutable_graph()->add_initializer();
  t.set_name("w");
  t.set_data_type(onnx::TensorProto::FLOAT);
  t.add_dims(2);
  t.set_data_location(onnx::TensorProto::EXTERNAL);
  const auto say = [&](const char* key, const std::string& value) {
    onnx::StringStringEntryProto& entry = *t.add_external_data();
    entry.set_key(key);
    entry.set_value(value);
  };
  say("location", std::filesystem::path(data).filename());
  say("offset", offset);
  say("length", length);
  m.Node("Add", {"w", "w"}, {"z"});
  m.Output("z");
  const auto g = ImportOnnx(TempFile(m.Bytes()).path());
  return g.ok() ? "" : Error(g);
}

TEST(OnnxErrors, DataOutsideTheModelAreWhereItSaysAndAsMany) {
  const TempFile data(std::string(12, 'x'));
  EXPECT_EQ(OutsideError(data.path(), "4", "8"), "");
  EXPECT_THAT(OutsideError(data.path(), "8", "8"), HasSubstr("cannot read its data from"));
  EXPECT_THAT(OutsideError(data.path(), "4", "7"), HasSubstr("more or less data than its dimensions ask for"));
  for (const char* offset : {"9223372036854775807", "18446744073709551617", "-4", "4x", ""})
    EXPECT_THAT(OutsideError(data.path(), offset, "8"), HasSubstr("can not be read")) << offset;
}

TEST(OnnxErrors, DataOutsideTheModelAreInAFile) {
  const TempFile place("");
  std::filesystem::remove(place.path());
  ASSERT_EQ(mkfifo(place.path().c_str(), 0600), 0);
  EXPECT_THAT(OutsideError(place.path(), "0", "8"), HasSubstr("cannot read its data from")) << "nobody waited";
}

TEST(OnnxErrors, AttributesOfAnotherKindAreNoNumbers) {
  ModelBuilder m(17);
  m.Input("x", {2, 3});
  ModelBuilder::SetFloat(m.Node("Softmax", {"x"}, {"y"}), "axis", 1.0F);
  m.Output("y");
  EXPECT_THAT(Error(m.Import()), HasSubstr("attribute 'axis' is of another kind"));
}

TEST(OnnxErrors, InputsHaveABound) {
  ModelBuilder m(17);
  m.Input("x", {int64_t{1} << 40, int64_t{1} << 40});
  m.Node("Relu", {"x"}, {"y"});
  m.Output("y");
  EXPECT_THAT(Error(m.Import()), HasSubstr("input 'x': a tensor of 1099511627776x1099511627776 is too large"));
}

TEST(OnnxErrors, RanksHaveABound) {
  constexpr size_t kMany = 40;
  ModelBuilder constant(17);
  constant.Input("x", {2});
  constant.Node("Relu", {"x"}, {"y"});
  constant.Floats("c", std::vector<int64_t>(kMany, 1), {1});
  constant.Output("y");
  constant.Output("c");
  EXPECT_THAT(Error(constant.Import()), HasSubstr("tensor 'c': a tensor of 40 dimensions: there may be 16"));
  ModelBuilder last(17);
  last.Input("x", {2});
  std::vector<int64_t> shape(kMany, 1);
  shape[0] = 2;
  last.Ints("shape", shape);
  last.Node("Reshape", {"x", "shape"}, {"y"});
  last.Output("y");
  EXPECT_THAT(Error(last.Import()), HasSubstr("a tensor of 40 dimensions"));
  ModelBuilder filled(17);
  filled.Ints("shape", std::vector<int64_t>(kMany, 1));
  filled.Node("ConstantOfShape", {"shape"}, {"y"});
  filled.Output("y");
  EXPECT_THAT(Error(filled.Import()), HasSubstr("a tensor of 40 dimensions"));
  ModelBuilder grown(17);
  grown.Input("x", std::vector<int64_t>(16, 1));
  grown.Ints("front", {0});
  grown.Node("Unsqueeze", {"x", "front"}, {"y"});
  grown.Output("y");
  EXPECT_THAT(Error(grown.Import()), HasSubstr("a tensor of 17 dimensions"));
}

TEST(OnnxErrors, AnExtentOfZeroHidesNoOverflow) {
  ModelBuilder m(17);
  m.Floats("y", {0, int64_t{1} << 62, int64_t{1} << 62}, {});
  m.Output("y");
  EXPECT_THAT(Error(m.Import()), HasSubstr("is too large"));
}

TEST(OnnxErrors, AReshapeFindsOneDimension) {
  ModelBuilder m(17);
  m.Input("x", {4, 4});
  m.Ints("shape", {-1, -1});
  m.Node("Reshape", {"x", "shape"}, {"y"});
  m.Output("y");
  EXPECT_THAT(Error(m.Import()), HasSubstr("more than one dimension to be found"));
}

TEST(OnnxErrors, ThereIsNoMeanOfNoIntegers) {
  ModelBuilder m(17);
  m.Ints("none", {});
  ModelBuilder::SetInts(m.Node("ReduceMean", {"none"}, {"y"}), "axes", {0});
  m.Output("y");
  EXPECT_THAT(Error(m.Import()), HasSubstr("no integers have no mean"));
}

}  // namespace
}  // namespace temper
