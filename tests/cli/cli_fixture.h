// What the tests of the command line share: running it, and a small model to run it on.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "onnx/onnx_pb.h"

namespace temper::cli_test {

namespace fs = std::filesystem;
inline const std::string kBin = std::string(TEMPER_BINARY_DIR) + "/bin/";

struct Result {
  int code;
  std::string out;  // stdout and stderr
  std::vector<nlohmann::json> Lines() const {
    std::vector<nlohmann::json> lines;
    std::istringstream in(out);
    for (std::string line; std::getline(in, line);) {
      if (!line.empty() && line[0] == '{') lines.push_back(nlohmann::json::parse(line));
    }
    return lines;
  }
};

inline std::string Bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// `before`: what the shell does first.
inline Result Temper(const std::string& arguments, const std::string& before = "") {
  std::FILE* pipe = popen((before + kBin + "temper " + arguments + " 2>&1").c_str(), "r");
  Result result{-1, ""};
  std::array<char, 4096> buffer;
  for (size_t n; (n = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) result.out.append(buffer.data(), n);
  result.code = WEXITSTATUS(pclose(pipe));
  return result;
}

inline void AddTensor(onnx::GraphProto* graph, const std::string& name, const std::vector<int64_t>& dims) {
  onnx::TensorProto* tensor = graph->add_initializer();
  tensor->set_name(name);
  tensor->set_data_type(onnx::TensorProto::FLOAT);
  int64_t size = 1;
  for (int64_t d : dims) {
    tensor->add_dims(d);
    size *= d;
  }
  for (int64_t i = 0; i < size; ++i) tensor->add_float_data(static_cast<float>((i * 37 % 19) - 9) / 20);
}

inline void SetValue(onnx::ValueInfoProto* value, const std::string& name, const std::vector<int64_t>& dims) {
  value->set_name(name);
  auto* tensor = value->mutable_type()->mutable_tensor_type();
  tensor->set_elem_type(onnx::TensorProto::FLOAT);
  for (int64_t d : dims) tensor->mutable_shape()->add_dim()->set_dim_value(d);
}

inline void AddNode(onnx::GraphProto* graph, const std::string& op, const std::vector<std::string>& in,
                    const std::string& out) {
  onnx::NodeProto* node = graph->add_node();
  node->set_op_type(op);
  node->set_name(out);
  for (const std::string& name : in) node->add_input(name);
  node->add_output(out);
}

class CliTest : public testing::Test {
 protected:
  // Commands never find the user's own records, nor a server that the environment names.
  void UseOwnRecords() {
    for (const char* name : {"TEMPER_DB", "TEMPER_SERVER"}) unsetenv(name);
    setenv("XDG_DATA_HOME", dir_.c_str(), 1);
  }
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "temper-cli-XXXXXX").string();
    dir_ = mkdtemp(pattern.data());
    onnx::ModelProto model;
    model.set_ir_version(8);
    model.add_opset_import()->set_version(17);
    onnx::GraphProto* graph = model.mutable_graph();
    AddTensor(graph, "w", {8, 3, 3, 3});
    AddTensor(graph, "d", {8 * 6 * 6, 10});
    AddNode(graph, "Conv", {"x", "w"}, "c");
    AddNode(graph, "Relu", {"c"}, "r");
    AddNode(graph, "Flatten", {"r"}, "f");
    AddNode(graph, "MatMul", {"f", "d"}, "y");
    SetValue(graph->add_input(), "x", {1, 3, 8, 8});
    SetValue(graph->add_output(), "y", {1, 10});
    model_ = dir_ + "/tiny.onnx";
    std::ofstream out(model_, std::ios::binary);
    ASSERT_TRUE(model.SerializeToOstream(&out));
  }
  void TearDown() override { fs::remove_all(dir_); }

  nlohmann::json Manifest(const std::string& package) const {
    return nlohmann::json::parse(std::ifstream(dir_ + "/" + package + "/manifest.json"));
  }

  std::string dir_, model_;
};

}  // namespace temper::cli_test
