// Pooling along rows and then along columns: windows that hang over the image on any side, by whole vectors and by
// parts of them, in both orders, and what is fused behind.
#include "compiler/ops/templates/templates.h"
#include "tests/templates/check_templates.h"

namespace temper {
namespace {

struct Axis {
  int64_t size, taps, stride, dilation, before, after;
};

// A window that sees something of the image at every place: pads are smaller than its span.
Axis RandomAxis(Rng& rng, int64_t least, int64_t most) {
  Axis a{least + rng.Below(most - least), 1 + rng.Below(5), 1 + rng.Below(3), 1 + rng.Below(2), 0, 0};
  if (rng.Below(8) == 0) a.taps = 17 + rng.Below(3);  // not unrolled
  const int64_t span = a.dilation * (a.taps - 1) + 1;
  a.before = rng.Below(span);
  a.after = rng.Below(span);
  a.size = std::max(a.size, span - std::min(a.before, a.after));
  return a;
}

std::string Text(const Axis& h, const Axis& w, int64_t n, int64_t c, const char* op, const char* order, bool more) {
  const std::string in = absl::StrCat("f32[", n, ",", c, ",", h.size, ",", w.size, "]", order);
  const auto out = [](const Axis& a) {
    return (a.size + a.before + a.after - a.dilation * (a.taps - 1) - 1) / a.stride + 1;
  };
  const std::string result = absl::StrCat("f32[", n, ",", c, ",", out(h), ",", out(w), "]", order);
  return absl::StrCat("(", in, more ? ", f32[]" : "", ") ", op, "(0; ", more ? "count_include_pad=1 " : "",
                      "dilations=[", h.dilation, ",", w.dilation, "] kernel=[", h.taps, ",", w.taps, "] pads=[",
                      h.before, ",", w.before, ",", h.after, ",", w.after, "] strides=[", h.stride, ",", w.stride,
                      "]) -> ", result, more ? "; mul(2,1) -> " + result : "", "; anchor=0");
}

TEST(PoolTest, RandomWindows) {
  Rng rng(11);
  int fitted = 0;
  for (uint64_t seed = 0; seed < 40 && !::testing::Test::HasFatalFailure(); ++seed) {
    const bool last = seed % 3 == 0, average = seed % 2 == 0;
    const Workload w =
        Parse(Text(RandomAxis(rng, 3, 20), RandomAxis(rng, 8, 70), 1 + rng.Below(2), 1 + rng.Below(40),
                   average ? "avg_pool2d" : "max_pool2d", last ? "@0231" : "", average && seed % 4 == 0));
    if (SeparablePool().matches(w)) ++fitted;
    CheckAll(w, 2, seed);
  }
  EXPECT_GT(fitted, 5);
}

}  // namespace
}  // namespace temper
