// What `temper tune` draws, without a server.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "cli/report/progress.h"
#include "cli/report/short_names.h"

namespace temper {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::string Conv(int size, int channels, int filter) {
  const std::string in = absl::StrCat("f32[1,64,", size, ",", size, "]"),
                    filters = absl::StrCat("f32[", channels, ",64,", filter, ",", filter, "]"),
                    out = absl::StrCat("f32[1,", channels, ",", size, ",", size, "]");
  const int pad = filter / 2;
  return absl::StrCat("(", in, ", const ", filters, ") conv2d(0,1; group=1 pads=[", pad, ",", pad, ",", pad, ",", pad,
                      "]) -> ", out, "; relu(2) -> ", out, "; anchor=0");
}

TEST(ShortNames, AreThoseOfExplainWhereThereIsRoom) {
  EXPECT_THAT(ShortNames({Conv(56, 64, 3), "not a workload"}, 60),
              ElementsAre("conv2d+relu 1x64x56x56 * 64x64x3x3 -> 1x64x56x56", "not a workload"));
}

TEST(ShortNames, RowsThatDifferAreDrawnApart) {
  const std::vector<std::string> workloads = {Conv(56, 64, 3), Conv(56, 64, 1), Conv(56, 128, 3), Conv(28, 64, 3),
                                              Conv(56, 64, 3)};
  for (const size_t columns : {12, 16, 20, 30, 44}) {
    const std::vector<std::string> names = ShortNames(workloads, columns);
    EXPECT_EQ(names[0], names[4]) << columns;  // the same workload
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(Cut(names[i], columns), names[i]);
      EXPECT_THAT(names[i], HasSubstr("co"));
      for (size_t k = 0; k < i; ++k) EXPECT_NE(names[i], names[k]) << columns;
    }
  }
}

// What is shown, on a terminal or elsewhere.
std::string Drawn(const WatchedJob& view, bool terminal = true) {
  char* text = nullptr;
  size_t size = 0;
  std::FILE* out = open_memstream(&text, &size);
  Progress(out, terminal, /*own_worker=*/true).Show(view, true);
  std::fclose(out);
  std::string drawn(text, size);
  std::free(text);
  return drawn;
}

TEST(ProgressTable, ASpeedupIsThereOnceTheDefaultIsMeasured) {
  WatchedJob view;
  v1::TaskProgress& task = view.tasks[0];
  task.set_workload(Conv(56, 64, 3));
  task.set_weight(1);
  task.set_flops(1e9);
  task.set_best_s(1e-3);
  EXPECT_THAT(Drawn(view), Not(HasSubstr("0.00x")));
  EXPECT_THAT(Drawn(view), HasSubstr("1.000        -"));
  task.set_default_s(2e-3);
  EXPECT_THAT(Drawn(view), HasSubstr("1.000    2.00x"));
  task.set_best_s(0);
  EXPECT_THAT(Drawn(view), HasSubstr("2.000        -"));
}

TEST(ProgressLine, WhatAServerWarnsOfMovesNoCursor) {
  WatchedJob view;
  view.latest.set_state("running");
  view.latest.set_trials(1);
  view.latest.add_warnings("\x1b[2J gone");
  EXPECT_THAT(Drawn(view, /*terminal=*/false), HasSubstr("(\\x1b[2J gone)"));
}

TEST(ProgressLine, ComparesOnlyWhatIsMeasuredBothWays) {
  WatchedJob view;
  view.latest.set_state("done");
  view.latest.set_trials(2);
  for (const int task : {0, 1}) {
    view.tasks[task].set_weight(1);
    view.tasks[task].set_best_s(1e-3);
  }
  view.tasks[0].set_default_s(2e-3);
  const nlohmann::ordered_json event = EventJson(view, 1);
  EXPECT_EQ(event["kernels_ms"], 1.0);
  EXPECT_EQ(event["untuned_ms"], 2.0);
  EXPECT_EQ(event["measured"], 1);
  EXPECT_EQ(event["tasks"], 2);
  EXPECT_THAT(Drawn(view, /*terminal=*/false),
              HasSubstr("kernels 1.000 ms (untuned 2.000 ms; of 1 of 2 tasks, the rest is not measured)\n"));
  view.tasks[1].set_default_s(3e-5);
  view.tasks[1].set_best_s(2e-5);
  view.tasks[0].set_best_s(1e-5);
  EXPECT_THAT(Drawn(view, /*terminal=*/false), HasSubstr("kernels 30.0 µs (untuned 2.030 ms)\n"));
}

}  // namespace
}  // namespace temper
