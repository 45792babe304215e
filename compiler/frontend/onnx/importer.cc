#include "compiler/frontend/onnx/importer.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/shape_limits.h"
#include "compiler/frontend/onnx/context.h"
#include "compiler/frontend/onnx/extents.h"
#include "compiler/frontend/onnx/inputs.h"
#include "compiler/frontend/onnx/nodes.h"
#include "compiler/frontend/onnx/parse.h"
#include "compiler/frontend/onnx/sort_nodes.h"
#include "compiler/frontend/onnx/tensor_data.h"

namespace temper {
namespace {

using namespace onnx_frontend;

absl::StatusOr<int> OpsetOf(const onnx::ModelProto& model) {
  for (const onnx::OperatorSetIdProto& opset : model.opset_import()) {
    if (!IsStandard(opset.domain())) continue;
    return SupportedOpset(opset.version());
  }
  if (model.opset_import_size() > 0)
    return absl::UnimplementedError(
        "the model has operators of other domains alone, as classical learners have, and none of ONNX's own");
  return absl::InvalidArgumentError("no ONNX model: it names no opset");
}

// Of dimensions that have names of their own and whose lengths must be others' or sums of others' and a number: which.
using Equations = std::map<std::string, std::pair<std::vector<std::string>, int64_t>>;

class Importer {
 public:
  Importer(ParsedModel& model, std::string name, std::string folder, const ImportOptions& options,
           const Equations& equations)
      : model_(model.proto),
        raw_(model.raw),
        options_(options),
        equations_(equations),
        context_(graph_, std::move(folder), FunctionsOf(model.proto)) {
    graph_.name = std::move(name);
  }

  absl::StatusOr<Graph> Run() {
    if (!model_.has_graph() || model_.graph().output_size() == 0)
      return absl::InvalidArgumentError("no ONNX model: it has no graph with outputs");
    TEMPER_ASSIGN_OR_RETURN(const int opset, OpsetOf(model_));
    if (context_.functions().size() != static_cast<size_t>(model_.functions_size()))
      return absl::UnimplementedError("functions that share a name are not supported");
    TEMPER_RETURN_IF_ERROR(CheckOperators(model_.graph().node(), context_.functions()));
    TEMPER_RETURN_IF_ERROR(SortNodes(model_));
    TEMPER_RETURN_IF_ERROR(AddInitializers());
    TEMPER_RETURN_IF_ERROR(AddInputs());
    TEMPER_RETURN_IF_ERROR(AddNodes(context_, model_.graph().node(), opset));
    TEMPER_RETURN_IF_ERROR(AddOutputs());
    graph_.Compact();
    TEMPER_RETURN_IF_ERROR(Verify(graph_));
    return std::move(graph_);
  }

  // Adds what this import found out of a dimension. False: nothing new.
  bool Learn(Equations& equations) const {
    for (const auto& [a, b] : context_.agreements().pairs) {
      if (LearnOf(b, a, equations) || LearnOf(a, b, equations)) return true;
    }
    return false;
  }

 private:
  const std::string* DimensionOf(ValueId extent) const {
    const auto known = std::ranges::find(extents_, extent, &std::pair<std::string, ValueId>::second);
    return known == extents_.end() ? nullptr : &known->first;
  }

  // That an extent must be what another one is, where it is a dimension's and no equation has it yet.
  bool LearnOf(ValueId extent, ValueId other, Equations& equations) const {
    const std::string* dimension = DimensionOf(extent);
    const Context::Sum sum = context_.SumOf(other);
    if (dimension == nullptr || !sum.less.empty() || sums_.contains(*dimension) || equations.contains(*dimension))
      return false;
    for (const auto& [known, terms] : equations) {
      if (std::ranges::count(terms.first, *dimension) > 0) return false;
    }
    std::vector<std::string> terms;
    for (const ValueId term : sum.terms) {
      const std::string* name = DimensionOf(term);
      if (name == nullptr || *name == *dimension || equations.contains(*name)) return false;
      terms.push_back(*name);
    }
    const bool alone = terms.size() == 1 && sum.number == 0;
    if (alone && context_.MostOf(extent) != context_.MostOf(other)) return false;
    equations[*dimension] = {std::move(terms), sum.number};
    return true;
  }

  absl::Status AddInitializers() {
    if (model_.graph().sparse_initializer_size() > 0)
      return absl::UnimplementedError("sparse weights are not supported");
    for (int i = 0; i < model_.graph().initializer_size(); ++i) {
      const onnx::TensorProto& tensor = model_.graph().initializer(i);
      const std::string_view raw = raw_[static_cast<size_t>(i)];
      TEMPER_ASSIGN_OR_RETURN(NDArray data, ArrayOf(tensor, context_.folder(), raw));
      context_.Bind(tensor.name(), context_.Constant(std::move(data), tensor.name()));
    }
    return absl::OkStatus();
  }

  absl::Status AddInputs() {
    InputOptions options(options_);
    for (const onnx::ValueInfoProto& input : model_.graph().input()) {
      if (context_.Find(input.name()) != nullptr) continue;  // before IR version 4, weights are inputs too
      if (!input.type().has_tensor_type())
        return absl::UnimplementedError(absl::StrCat("input '", input.name(), "' is no tensor"));
      absl::StatusOr<DType> dtype = DTypeOf(input.type().tensor_type().elem_type());
      if (!dtype.ok())
        return absl::UnimplementedError(
            absl::StrCat("input '", input.name(), "': ", std::string(dtype.status().message())));
      TEMPER_ASSIGN_OR_RETURN(std::optional<NDArray> value, options.ValueOf(input, *dtype));
      if (value.has_value()) {
        context_.Bind(input.name(), context_.Constant(*std::move(value), input.name()));
        continue;
      }
      TEMPER_ASSIGN_OR_RETURN(Shape shape, options.ShapeOf(input));
      if (const absl::Status size = CheckTensorShape(shape); !size.ok())
        return absl::InvalidArgumentError(absl::StrCat("input '", input.name(), "': ", std::string(size.message())));
      const ValueId v = graph_.AddValue({input.name(), {*dtype, shape, {}}, std::nullopt, false});
      graph_.inputs.push_back(v);
      TEMPER_RETURN_IF_ERROR(SetRanges(options, input, v));
      // What has no elements is known without being read.
      const bool empty = NumElements(shape) == 0;
      const ValueId known = empty ? context_.Constant(NDArray(*dtype, std::move(shape))) : v;
      if (empty) context_.SetVaryings(known, context_.VaryingsOf(v));
      context_.Bind(input.name(), known);
    }
    TEMPER_RETURN_IF_ERROR(RelateSums());
    for (InputExtent& e : graph_.input_extents) e.told_by += static_cast<int>(graph_.inputs.size());
    graph_.hidden_inputs = static_cast<int>(extents_.size());
    for (const auto& [dimension, extent] : extents_) graph_.inputs.push_back(extent);
    return options.Finish();
  }

  // Inputs with one range have one extent, an input behind the model's own.
  absl::Status SetRanges(const InputOptions& options, const onnx::ValueInfoProto& input, ValueId v) {
    TEMPER_ASSIGN_OR_RETURN(const std::vector<InputOptions::Range> ranges, options.RangesOf(input));
    if (ranges.empty()) return absl::OkStatus();
    if (IsPacked(graph_.values[v].type.dtype)) {
      return absl::UnimplementedError(absl::StrCat("input '", input.name(), "' has numbers of less than a byte: give ",
                                                   ranges[0].dimension, " a length"));
    }
    Varyings varyings;
    for (auto [axis, dimension, least, terms, number] : ranges) {
      if (const auto found = equations_.find(dimension); found != equations_.end()) {
        std::tie(terms, number) = found->second;
        if (terms.size() == 1 && number == 0) dimension = std::exchange(terms, {})[0];
      }
      if (!terms.empty()) sums_.try_emplace(dimension, terms, number);
      auto known = std::ranges::find(extents_, dimension, &std::pair<std::string, ValueId>::first);
      if (known == extents_.end()) {
        const std::string name = absl::StrCat("length of ", dimension);
        known =
            extents_.insert(known, {dimension, graph_.AddValue({name, {DType::kI64, {}, {}}, std::nullopt, false})});
      }
      const int told_by = static_cast<int>(known - extents_.begin());  // counted from the hidden inputs' first
      graph_.input_extents.push_back({static_cast<int>(graph_.inputs.size()) - 1, axis, told_by, least});
      varyings.push_back({axis, known->second});
      context_.SetLeast(known->second, least);
    }
    context_.SetVaryings(v, std::move(varyings));
    return absl::OkStatus();
  }

  // A dimension that is a sum of others has a range of its own. Where inputs have all of the others, too, it is their
  // sum.
  absl::Status RelateSums() {
    const auto find = [&](const std::string& dimension) {
      return std::ranges::find(extents_, dimension, &std::pair<std::string, ValueId>::first);
    };
    for (const auto& [dimension, sum] : sums_) {
      std::vector<ValueId> terms;
      for (const std::string& name : sum.first) {
        if (const auto term = find(name); term != extents_.end()) terms.push_back(term->second);
      }
      if (terms.size() != sum.first.size()) continue;
      TEMPER_RETURN_IF_ERROR(MakeSumOf(context_, find(dimension)->second, terms, sum.second));
    }
    return absl::OkStatus();
  }

  absl::Status AddOutputs() {
    std::set<ValueId> taken(graph_.inputs.begin(), graph_.inputs.end());
    for (const onnx::ValueInfoProto& output : model_.graph().output()) {
      absl::StatusOr<ValueId> v = ValueOf(context_, output.name(), model_.graph().node());
      if (!v.ok()) {
        return absl::Status(v.status().code(),
                            absl::StrCat("graph output '", output.name(), "': ", std::string(v.status().message())));
      }
      if (context_.Varies(*v)) {
        if (IsPacked(graph_.values[*v].type.dtype))
          return absl::UnimplementedError(absl::StrCat("graph output '", output.name(),
                                                       "' has numbers of less than a "
                                                       "byte, and as many as only the run knows"));
        if (NumElements(context_.ShapeOf(*v)) == 0)
          return absl::UnimplementedError(absl::StrCat("graph output '", output.name(),
                                                       "' has no elements, but an extent that only the run knows"));
        TEMPER_ASSIGN_OR_RETURN(v, Dense(context_, *v));
      }
      // Each output is a value of its own under its own name, whatever identities the model had.
      if (graph_.values[*v].is_constant && !context_.Varies(*v)) {
        v = context_.Constant(*graph_.values[*v].constant, output.name());
      } else if (!taken.insert(*v).second) {
        Varyings varyings = context_.VaryingsOf(*v);
        TEMPER_ASSIGN_OR_RETURN(v, graph_.AddNode("identity", {}, {*v}, output.name()));
        context_.SetVaryings(*v, std::move(varyings));
      }
      graph_.values[*v].name = output.name();
      taken.insert(*v);
      graph_.outputs.push_back(*v);
    }
    return AddExtents(taken);
  }

  // The outputs' extents that only the run knows are outputs, too: behind the model's own.
  absl::Status AddExtents(std::set<ValueId>& taken) {
    const int results = static_cast<int>(graph_.outputs.size());
    std::map<ValueId, int> told;
    for (int output = 0; output < results; ++output) {
      for (const Varying& varying : context_.VaryingsOf(graph_.outputs[static_cast<size_t>(output)])) {
        const auto [place, added] = told.try_emplace(varying.extent, static_cast<int>(graph_.outputs.size()));
        if (added) {
          ValueId extent = varying.extent;
          if (!taken.insert(extent).second) {
            TEMPER_ASSIGN_OR_RETURN(extent, graph_.AddNode("identity", {}, {extent}));
          }
          graph_.outputs.push_back(extent);
          ++graph_.hidden;
        }
        graph_.extents.push_back({output, varying.axis, place->second});
      }
    }
    return AddAgreement();
  }

  // One more hidden output, which says whether the model itself takes inputs of such lengths.
  absl::Status AddAgreement() {
    ValueId all = kNoValue;
    for (const auto& [a, b] : context_.agreements().pairs) {
      TEMPER_ASSIGN_OR_RETURN(const ValueId same, graph_.AddNode("equal", {}, {a, b}));
      if (all == kNoValue) {
        all = same;
      } else {
        TEMPER_ASSIGN_OR_RETURN(all, graph_.AddNode("and", {}, {all, same}));
      }
    }
    if (all == kNoValue) return absl::OkStatus();
    const ValueId agrees = context_.Scalar(DType::kI64, 0);
    const ValueId differs = context_.Scalar(DType::kI64, static_cast<double>(kLengthsDiffer));
    TEMPER_ASSIGN_OR_RETURN(const ValueId told, graph_.AddNode("where", {}, {all, agrees, differs}));
    graph_.outputs.push_back(told);
    ++graph_.hidden;
    return absl::OkStatus();
  }

  onnx::ModelProto& model_;
  const std::vector<std::string_view>& raw_;
  const ImportOptions& options_;
  const Equations& equations_;
  Graph graph_;
  Context context_;
  std::vector<std::pair<std::string, ValueId>> extents_;  // by dimension, of those with ranges
  Equations sums_;                                        // what those of them add up that are sums
};

// Weights are copied once, from the file to where they stay.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path) {
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    struct stat info;
    if (fd >= 0 && fstat(fd, &info) == 0) {
      size_ = static_cast<size_t>(info.st_size);
      data_ = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE | MAP_POPULATE, fd, 0);
    }
    if (fd >= 0) close(fd);
  }
  MappedFile(const MappedFile&) = delete;
  ~MappedFile() {
    if (ok()) munmap(data_, size_);
  }
  bool ok() const { return data_ != MAP_FAILED; }
  std::string_view bytes() const { return {static_cast<const char*>(data_), size_}; }

 private:
  void* data_ = MAP_FAILED;
  size_t size_ = 0;
};

absl::StatusOr<Graph> Import(ParsedModel& model, const std::string& name, const std::string& folder,
                             const ImportOptions& options) {
  // A model may be refused because two names of one length are not known to be one. What it says of them before that is
  // known from the beginning the next time.
  Equations equations;
  while (true) {
    const Equations known = equations;
    Importer importer(model, name, folder, options, known);
    absl::StatusOr<Graph> g = importer.Run();
    if (g.ok()) return g;
    if (!importer.Learn(equations))
      return absl::Status(g.status().code(), absl::StrCat(name, ": ", std::string(g.status().message())));
  }
}

}  // namespace

absl::StatusOr<Graph> ImportOnnx(const std::string& path, const ImportOptions& options) {
  std::error_code error;
  const std::filesystem::path file_path(path);
  if (!std::filesystem::exists(file_path, error)) return absl::NotFoundError(absl::StrCat(path, ": no such file"));
  if (!std::filesystem::is_regular_file(file_path, error))
    return absl::InvalidArgumentError(absl::StrCat(path, ": not a file"));
  if (std::filesystem::file_size(file_path, error) == 0)
    return absl::InvalidArgumentError(absl::StrCat(path, ": the file is empty"));
  const MappedFile file(path);
  if (!file.ok()) return absl::PermissionDeniedError(absl::StrCat(path, ": cannot be read"));
  ParsedModel model;
  if (!ParseModel(file.bytes(), model))
    return absl::InvalidArgumentError(absl::StrCat(path, ": truncated, or no ONNX model"));
  const std::string folder = file_path.has_parent_path() ? file_path.parent_path().string() : std::string(".");
  return Import(model, file_path.filename().string(), folder, options);
}

absl::StatusOr<Graph> ImportOnnxBytes(std::string_view bytes, const std::string& name, const ImportOptions& options) {
  ParsedModel model;
  if (bytes.empty()) return absl::InvalidArgumentError(absl::StrCat(name, ": the model is empty"));
  if (!ParseModel(bytes, model)) return absl::InvalidArgumentError(absl::StrCat(name, ": truncated, or no ONNX model"));
  return Import(model, name, "", options);
}

}  // namespace temper
