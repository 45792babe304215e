#include "cost_model/xgboost/trainer.h"

#include <xgboost/c_api.h>

#include <limits>
#include <memory>

#include "absl/strings/str_cat.h"

namespace temper {
namespace {

absl::Status Converted(int code) {
  if (code == 0) return absl::OkStatus();
  const std::string message = XGBGetLastError();
  return absl::InternalError(absl::StrCat("XGBoost: ", message.substr(0, message.find('\n'))));
}

struct MatrixDeleter {
  void operator()(void* handle) const { XGDMatrixFree(handle); }
};
struct BoosterDeleter {
  void operator()(void* handle) const { XGBoosterFree(handle); }
};
using Matrix = std::unique_ptr<void, MatrixDeleter>;
using Handle = std::unique_ptr<void, BoosterDeleter>;

absl::StatusOr<Matrix> MakeMatrix(const TrainingSet& set, bool rank) {
  DMatrixHandle raw = nullptr;
  TEMPER_RETURN_IF_ERROR(Converted(XGDMatrixCreateFromMat_omp(set.features.data(), set.labels.size(), set.width,
                                                              std::numeric_limits<float>::quiet_NaN(), &raw, 1)));
  Matrix matrix(raw);
  const auto set_floats = [&](const char* field, const std::vector<float>& values) {
    return Converted(XGDMatrixSetFloatInfo(raw, field, values.data(), values.size()));
  };
  TEMPER_RETURN_IF_ERROR(set_floats("label", set.labels));
  if (!rank) {
    TEMPER_RETURN_IF_ERROR(set_floats("weight", set.weights));
    return matrix;
  }
  TEMPER_RETURN_IF_ERROR(set_floats("base_margin", set.margins));
  TEMPER_RETURN_IF_ERROR(Converted(XGDMatrixSetUIntInfo(raw, "group", set.groups.data(), set.groups.size())));
  return matrix;
}

}  // namespace

absl::StatusOr<Forest> TrainForest(const TrainingSet& set, const TrainOptions& options) {
  TEMPER_ASSIGN_OR_RETURN(const Matrix matrix, MakeMatrix(set, options.rank));
  const DMatrixHandle raw_matrix = matrix.get();
  BoosterHandle raw_booster = nullptr;
  TEMPER_RETURN_IF_ERROR(Converted(XGBoosterCreate(&raw_matrix, 1, &raw_booster)));
  const Handle booster(raw_booster);
  const std::pair<const char*, std::string> parameters[] = {
      {"objective", options.rank ? "rank:pairwise" : "reg:squarederror"},
      {"base_score", "0"},
      {"booster", "gbtree"},
      {"tree_method", "hist"},
      {"max_bin", "64"},
      {"max_depth", absl::StrCat(options.depth)},
      {"eta", absl::StrCat(options.eta)},
      {"gamma", "1e-4"},
      {"lambda", "1"},
      {"min_child_weight", absl::StrCat(options.least_weight)},
      {"num_pairsample", "8"},  // to rank by
      {"subsample", "0.7"},
      {"colsample_bytree", "0.5"},
      {"nthread", "1"},
      {"verbosity", "0"},
      {"seed", absl::StrCat(options.seed & 0x7fffffff)}};
  for (const auto& [name, value] : parameters)
    TEMPER_RETURN_IF_ERROR(Converted(XGBoosterSetParam(booster.get(), name, value.c_str())));
  for (int round = 0; round < options.rounds; ++round) {
    TEMPER_RETURN_IF_ERROR(Converted(XGBoosterUpdateOneIter(booster.get(), round, matrix.get())));
  }
  bst_ulong length = 0;
  const char* saved = nullptr;  // owned by the booster
  TEMPER_RETURN_IF_ERROR(Converted(XGBoosterSaveModelToBuffer(booster.get(), R"({"format":"ubj"})", &length, &saved)));
  return Forest::FromUbj({saved, length}, set.width);
}

}  // namespace temper
