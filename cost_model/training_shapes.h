// Shapes to train boosters on: drawn, so that no benchmark measures what boosters were trained on.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "base/rng.h"
#include "compiler/ops/workload.h"

namespace temper {

// The anchor's dimensions, as far as they decide how much work of which form it is: those of a convolution's input and
// filter; batch, rows, depth and columns of a matmul. Empty for other operators.
std::vector<int64_t> TrainingDims(const Workload& w);
// The same operator with all dimensions within 1.25x.
bool NearInShape(const Workload& a, const Workload& b);

// bench/shapes.txt: the convolutions and matmuls of the benchmark models.
const std::vector<Workload>& BenchShapes();

// Convolutions (1x1 to 7x7, strided, depthwise, depthwise and pointwise in either order) and matmuls (with constant
// weights, or batched), their dimensions log-uniform, of up to about half a GFLOP. The same seed gives the same
// sequence. None comes twice, and none is near in shape to one of `excluded`.
class ShapeGenerator {
 public:
  ShapeGenerator(uint64_t seed, std::vector<Workload> excluded) : rng_(seed), excluded_(std::move(excluded)) {}
  Workload Next();

 private:
  std::string Draw();
  std::string Conv();
  std::string Depthwise();
  std::string Separable();
  std::string Expanded();
  std::string Matmul();
  int64_t LogUniform(int64_t least, int64_t most);
  int64_t Channels(int64_t least, int64_t most);  // mostly whole vectors of them
  bool Chance(double share) { return rng_.Uniform() < share; }

  Rng rng_;
  const std::vector<Workload> excluded_;
  std::set<std::string> drawn_;
};

}  // namespace temper
