#include <algorithm>
#include <numeric>

#include "compiler/ops/reference/reference.h"

namespace temper::reference {
namespace {

// Of an image's boxes, [4, count].
struct Boxes {
  const float* edges;
  int64_t count;
  float Edge(int edge, int32_t box) const { return edges[edge * count + box]; }
  float Area(int32_t box) const { return (Edge(2, box) - Edge(0, box)) * (Edge(3, box) - Edge(1, box)); }
  bool Overlap(int32_t a, int32_t b, float threshold) const {
    const float width = std::min(Edge(2, a), Edge(2, b)) - std::max(Edge(0, a), Edge(0, b));
    const float height = std::min(Edge(3, a), Edge(3, b)) - std::max(Edge(1, a), Edge(1, b));
    if (!(width > 0 && height > 0)) return false;
    const float common = width * height;
    return common / (Area(a) + Area(b) - common) > threshold;
  }
};

absl::StatusOr<NDArray> Suppress(const Attrs&, Arrays in, const TensorType& output) {
  NDArray result(output.dtype, output.shape);
  const int64_t classes = output.shape[1], k = output.shape[2], count = in[0].shape()[2];
  const float overlap = in[2].as<float>()[0], least = in[3].as<float>()[0];
  int32_t* out = result.as<int32_t>().data();
  for (int64_t line = 0; line < output.shape[0] * classes; ++line, out += k) {
    const Boxes boxes{in[0].as<float>().data() + line / classes * 4 * count, count};
    const float* scores = in[1].as<float>().data() + line * count;
    std::vector<int32_t> order(static_cast<size_t>(count)), taken;
    std::iota(order.begin(), order.end(), 0);
    std::erase_if(order, [&](int32_t i) { return !(scores[i] > least); });
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return scores[a] > scores[b]; });
    for (const int32_t i : order) {
      if (std::ssize(taken) == k) break;
      if (std::ranges::none_of(taken, [&](int32_t t) { return boxes.Overlap(t, i, overlap); })) taken.push_back(i);
    }
    std::fill_n(std::copy(taken.begin(), taken.end(), out), k - std::ssize(taken), -1);
  }
  return result;
}

}  // namespace

std::span<const Reference> BoxesReferences() {
  static constexpr Reference kTable[] = {{"non_max_suppression", Suppress}};
  return kTable;
}

}  // namespace temper::reference
