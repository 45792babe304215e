// Runs both models, then one of them in several threads at once, each with an instance of its own.
#include <cstdio>
#include <thread>
#include <vector>

#include <temper/model.hpp>
#include <thrice/model.h>
#include <twice/model.h>

namespace {

// The sum of what the model makes of 1, 2, 3, 4.
float SumOf(temper::Model& model) {
  alignas(64) float x[4] = {1, 2, 3, 4}, y[4] = {};
  model.Run({x}, {y});
  return y[0] + y[1] + y[2] + y[3];
}

}  // namespace

int main() try {
  temper::Model twice(TEMPER_MODEL(twice), nullptr, 1), thrice(TEMPER_MODEL(thrice), nullptr, 1);
  std::printf("%s: %g and %g\n", twice.inputs().at(0).name.c_str(), SumOf(twice), SumOf(thrice));
  std::vector<std::thread> threads;
  std::vector<float> sums(4);
  for (float& sum : sums) {
    threads.emplace_back([&sum] {
      temper::Model own(TEMPER_MODEL(twice), nullptr, 1);
      for (int i = 0; i < 100; ++i) sum = SumOf(own);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (float sum : sums) {
    if (sum != SumOf(twice)) return 1;
  }
  try {
    temper::Model nowhere(TEMPER_MODEL(twice), "/nowhere");
    return 1;
  } catch (const temper::ModelError& e) {
    std::printf("code %d\n", e.code());
  }
  return 0;
} catch (const temper::ModelError& e) {
  std::fprintf(stderr, "app: %s\n", e.what());
  return 1;
}
