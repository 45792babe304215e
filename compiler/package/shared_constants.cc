#include "compiler/package/shared_constants.h"

#include <algorithm>
#include <cstring>

#include "compiler/runtime/plan.h"

namespace temper {
namespace {

bool Equal(const NDArray& a, const NDArray& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() &&
         std::memcmp(a.data(), b.data(), static_cast<size_t>(a.bytes())) == 0;
}

}  // namespace

void SharedConstants::Share(Graph& g) {
  for (Value& v : g.values) {
    if (!v.constant.has_value() || v.constant->bytes() == 0) continue;
    const NDArray& own = *v.constant;
    std::vector<NDArray>& known = known_[temper_weights_hash(own.data(), static_cast<size_t>(own.bytes()))];
    const auto same = std::ranges::find_if(known, [&](const NDArray& other) { return Equal(own, other); });
    if (same != known.end())
      v.constant = *same;
    else
      known.push_back(own);
  }
}

}  // namespace temper
