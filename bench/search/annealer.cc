// How many configs a second the search looks at: legality, features and prediction, counted inside the annealer, one
// thread, 128 chains. And what a fit, and the first look at a space, take.
#include <cmath>
#include <cstdio>

#include "compiler/timing/timing.h"
#include "tuner_server/search/annealer.h"
#include "tuner_server/search/ranking.h"

namespace temper {
namespace {

constexpr const char* kWorkloads[] = {
    "(f32[1,128,28,28]@0231, const f32[128,128,3,3]) conv2d(0,1; dilations=[1,1] group=1 pads=[1,1,1,1] strides=[1,1]) "
    "-> f32[1,128,28,28]@0231; relu(2) -> f32[1,128,28,28]@0231; anchor=0",
    "(f32[1,256,14,14]@0231, const f32[512,256,1,1]) conv2d(0,1; dilations=[1,1] group=1 pads=[0,0,0,0] strides=[2,2]) "
    "-> f32[1,512,7,7]@0231; anchor=0",
    "(f32[512,768], const f32[768,768]) matmul(0,1) -> f32[512,768]; anchor=0"};

double Seconds(const std::function<void()>& f) {
  const int64_t start = MonotonicNs();
  f();
  return static_cast<double>(MonotonicNs() - start) * 1e-9;
}

absl::Status Run(const std::string& text) {
  TEMPER_ASSIGN_OR_RETURN(const Workload workload, ParseWorkload(text));
  Target target = HostTarget();
  TEMPER_ASSIGN_OR_RETURN(const auto task, TaskSpace::Make({workload, target, 1}));
  Rng rng(1);
  size_t ranked = 0;
  std::vector<Point> starts;
  const double rank_s = Seconds([&] {
    for (int space = 0; space < task->count(); ++space) {
      const DraftRanking ranking = RankByDraft(*task, space, rng);
      ranked += ranking.points.size();
      for (size_t i = 0; i < ranking.points.size() && i < 64; ++i) starts.push_back(ranking.points[i].point);
    }
  });
  std::printf("%s\n  %zu ranked by draft in %.1f ms\n", text.c_str(), ranked, rank_s * 1e3);

  const auto model = NewXgboostModel(1);
  Rows rows = task->NewRows();
  std::vector<double> costs;
  for (int round = 0; round < 4; ++round) {
    while (rows.size() < 64 * static_cast<size_t>(round + 1)) {
      const Point p = task->Move(starts[rng.Below(std::ssize(starts))], rng);
      if (!task->Legal(p)) continue;
      task->AppendRow(p, rows);
      costs.push_back(rows.draft_s.back() * (1 + rng.Uniform()));
    }
    const double fit_s = Seconds([&] { (void)model->Fit(rows, costs, std::vector<int>(costs.size(), 0)); });
    std::printf("  fit on %d: %.2f ms\n", 64 * (round + 1), fit_s * 1e3);
  }

  int64_t scored = 0;
  double seconds = 0;
  for (int run = 0; run < 20; ++run) {
    Annealer annealer({}, static_cast<uint64_t>(run));
    const AnnealProblem problem = {[&](const Point& p, Rng& r) { return task->Move(p, r); },
                                   [&](const Point& p) { return task->Legal(p); },
                                   [&](std::span<const Point> points) {
                                     rows.Clear();
                                     for (const Point& p : points) task->AppendRow(p, rows);
                                     scored += std::ssize(points);
                                     return model->Score(rows);
                                   }};
    seconds += Seconds([&] { (void)annealer.Run(problem, starts, 192, {}); });
  }
  std::printf("  annealed %lld configs in %.3f s: %.0f a second\n", static_cast<long long>(scored), seconds,
              static_cast<double>(scored) / seconds);
  return absl::OkStatus();
}

}  // namespace
}  // namespace temper

int main() {
  for (const char* text : temper::kWorkloads) {
    if (const absl::Status status = temper::Run(text); !status.ok()) {
      std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
      return 1;
    }
  }
  return 0;
}
