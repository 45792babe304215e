// A compiled model in C++17: the C interface of model.h with an owner, containers and exceptions. This is a header
// only; it calls the library of the package. With a package of prefix `resnet`:
//
//   #include <resnet/model.h>
//   #include <temper/model.hpp>
//   temper::Model model(TEMPER_MODEL(resnet));
//   model.Run({image}, {scores});
//
// TEMPER_MODEL(temper_model) is for a package without a prefix.
#ifndef TEMPER_MODEL_HPP_
#define TEMPER_MODEL_HPP_

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "model.h"

namespace temper {

// A call that failed: a code of TEMPER_*, and the line that says why.
class ModelError : public std::runtime_error {
 public:
  ModelError(int code, const std::string& line) : std::runtime_error(line), code_(code) {}
  int code() const { return code_; }

 private:
  int code_;
};

// The functions of one package; TEMPER_MODEL names them by their prefix.
struct ModelFunctions {
  int (*create)(const char*, int, temper_model**);
  int (*variant_count)(const temper_model*);
  int (*choose_variant)(temper_model*, int);
  int (*io_count)(const temper_model*, int);
  int (*io)(const temper_model*, int, int, const char**, int*, int*, const int64_t**);
  int (*run)(temper_model*, const void* const*, void* const*);
  int (*run_shaped)(temper_model*, const temper_tensor*, temper_tensor*);
  void (*destroy)(temper_model*);
  const char* (*error)(const temper_model*);
};
#define TEMPER_MODEL(prefix)                                                                                        \
  ::temper::ModelFunctions {                                                                                        \
    prefix##_create, prefix##_variant_count, prefix##_choose_variant, prefix##_io_count, prefix##_io, prefix##_run, \
        prefix##_run_shaped, prefix##_destroy, prefix##_error                                                       \
  }

// One instance. It takes one run at a time. Instances of one package share their weights, and each has its own threads
// and activations, so several instances run at the same time. All functions but the const ones throw ModelError.
class Model {
 public:
  struct Io {
    std::string name;
    int dtype;  // ONNX's TensorProto.DataType, as in model.h
    std::vector<int64_t> shape;
  };

  // `package_dir`: the folder of weights.bin; null: that of the library. `threads`: as in temper_model_create.
  explicit Model(const ModelFunctions& functions, const char* package_dir = nullptr, int threads = 0)
      : functions_(functions), model_(nullptr, functions.destroy) {
    temper_model* made = nullptr;
    const int code = functions_.create(package_dir, threads, &made);
    if (code != TEMPER_OK) throw ModelError(code, functions_.error(nullptr));
    model_.reset(made);
    Choose(0);
  }

  // A model that was compiled for several shapes of its inputs has a variant for each. inputs(), outputs() and the Run
  // without shapes are about the one that was chosen, the first to begin with; the Run with shapes finds its own.
  int variants() const { return functions_.variant_count(model_.get()); }
  void Choose(int variant) {
    Check(functions_.choose_variant(model_.get(), variant));
    inputs_ = Describe(0);
    outputs_ = Describe(1);
  }
  const std::vector<Io>& inputs() const { return inputs_; }
  const std::vector<Io>& outputs() const { return outputs_; }

  // The arrays belong to the caller; they are dense and row-major, in the order of inputs() and outputs(). See
  // temper_model_run. TEMPER_BUSY: another thread is inside this instance.
  void Run(const std::vector<const void*>& inputs, const std::vector<void*>& outputs) {
    if (inputs.size() != inputs_.size() || outputs.size() != outputs_.size())
      throw ModelError(TEMPER_INVALID_ARGUMENT, "the model has " + std::to_string(inputs_.size()) + " inputs and " +
                                                    std::to_string(outputs_.size()) + " outputs");
    Check(functions_.run(model_.get(), inputs.data(), outputs.data()));
  }
  // For callers who state the inputs' shapes and want to know the outputs'. See temper_model_run_shaped.
  void Run(const std::vector<temper_tensor>& inputs, std::vector<temper_tensor>& outputs) {
    if (inputs.size() != inputs_.size() || outputs.size() != outputs_.size())
      throw ModelError(TEMPER_INVALID_ARGUMENT, "the model has " + std::to_string(inputs_.size()) + " inputs and " +
                                                    std::to_string(outputs_.size()) + " outputs");
    Check(functions_.run_shaped(model_.get(), inputs.data(), outputs.data()));
  }

  temper_model* get() { return model_.get(); }  // for the rest of model.h

 private:
  void Check(int code) {
    if (code == TEMPER_OK) return;
    // The line belongs to the thread that is inside.
    if (code == TEMPER_BUSY) throw ModelError(code, "another thread is inside this model");
    throw ModelError(code, functions_.error(model_.get()));
  }

  std::vector<Io> Describe(int is_output) {
    std::vector<Io> ios;
    for (int i = 0; i < functions_.io_count(model_.get(), is_output); ++i) {
      const char* name = nullptr;
      const int64_t* shape = nullptr;
      int dtype = 0, rank = 0;
      Check(functions_.io(model_.get(), is_output, i, &name, &dtype, &rank, &shape));
      ios.push_back({name, dtype, std::vector<int64_t>(shape, shape + rank)});
    }
    return ios;
  }

  ModelFunctions functions_;
  std::unique_ptr<temper_model, void (*)(temper_model*)> model_;
  std::vector<Io> inputs_, outputs_;
};

}  // namespace temper

#endif  // TEMPER_MODEL_HPP_
