#include "bench/search/library_times.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/division.h"
#include "base/hash.h"
#include "bench/search/known_gpus.h"
#include "compiler/ops/template.h"
#include "compiler/ops/templates/gpu_footprint.h"

namespace temper {
namespace {

constexpr const char* kHead = "device,op,batch,m,n,k,ms";
constexpr int64_t kMostSide = 1 << 20;
constexpr double kCallMs = 0.015;  // of a call by PyTorch, which is part of the times

absl::StatusOr<LibraryTime> ParseLine(std::string_view line) {
  const std::vector<std::string> cells = absl::StrSplit(std::string(line), ',');
  LibraryTime t;
  int64_t sides[4];
  bool fine = cells.size() == 7 && (cells[1] == "linear" || cells[1] == "bmm");
  for (size_t i = 0; fine && i < 4; ++i)
    fine = absl::SimpleAtoi(cells[2 + i], &sides[i]) && sides[i] >= 1 && sides[i] <= kMostSide;
  fine = fine && absl::SimpleAtod(cells[6], &t.ms) && std::isfinite(t.ms) && t.ms > 0;
  if (!fine) return absl::InvalidArgumentError("expected a device, 'linear' or 'bmm', four sides and a time");
  t.device = cells[0];
  t.batched = cells[1] == "bmm";
  t.batch = sides[0];
  t.rows = sides[1];
  t.columns = sides[t.batched ? 3 : 2];
  t.length = sides[t.batched ? 2 : 3];
  return t;
}

std::string ShapeOf(const LibraryTime& t) {
  return absl::StrCat(t.batched, " ", t.batch, " ", t.rows, " ", t.columns, " ", t.length);
}

absl::StatusOr<Workload> WorkloadOf(const LibraryTime& t) {
  const bool one = !t.batched && t.batch == 1;
  const std::string batch = one ? "" : absl::StrCat(t.batch, ",");
  const std::string b_batch = t.batched ? batch : "";
  return ParseWorkload(absl::StrCat("(f32[", batch, t.rows, ",", t.length, "], ", t.batched ? "" : "const ", "f32[",
                                    b_batch, t.length, ",", t.columns, "]) matmul(0,1) -> f32[", batch, t.rows, ",",
                                    t.columns, "]; anchor=0"));
}

struct Side {
  int64_t threads, each;  // of a tile's rows or columns
};
// A group's threads, and their results: 8 x 8, or 4 x 4 in small tiles.
struct LibraryTile {
  Side rows, columns;
};
// By the names of cuBLAS's kernels, as profilers show them. From sm_80 on it takes no narrower ones for products of a
// batch, though it has them: sides of 64, 96 and 128 take the same time.
constexpr LibraryTile kTiles[] = {{{16, 8}, {16, 8}}, {{16, 8}, {8, 8}}, {{8, 8}, {16, 8}},
                                  {{16, 4}, {16, 4}}, {{4, 8}, {16, 8}}, {{16, 8}, {4, 8}}};
constexpr LibraryTile kTilesOfSm75[] = {{{16, 8}, {16, 8}}, {{16, 8}, {8, 8}}, {{8, 8}, {16, 8}}, {{16, 4}, {16, 4}}};
constexpr LibraryTile kTilesFromSm80[] = {{{16, 8}, {16, 8}}, {{32, 8}, {16, 8}}, {{16, 8}, {32, 8}}};

std::span<const LibraryTile> TilesOf(const GpuTarget& t) {
  if (t.tensor_cores) return kTilesFromSm80;
  if (t.arch == "sm_75") return kTilesOfSm75;
  return kTiles;
}

std::vector<Config> ConfigsOf(const LibraryTime& time, const GpuTarget& t) {
  std::vector<Config> configs;
  constexpr int64_t kMostGroups = 8;  // of a unit, that splitting the reduction makes
  for (const LibraryTile& tile : TilesOf(t)) {
    const int64_t tiles = time.batch * CeilDiv(time.rows, tile.rows.threads * tile.rows.each) *
                          CeilDiv(time.columns, tile.columns.threads * tile.columns.each);
    for (const int64_t step : {8, 16}) {
      for (int64_t split = 1; split <= 16; split *= 2) {
        if (split > 1 && (tiles * split > kMostGroups * t.compute_units || 4 * split * step > time.length)) break;
        const int64_t steps = CeilDiv(CeilDiv(time.length, step), split);
        configs.push_back(Config({{"ty", tile.rows.threads},
                                  {"tx", tile.columns.threads},
                                  {"tm", tile.rows.each},
                                  {"tn", tile.columns.each},
                                  {"bk", step},
                                  {"vec", 4},
                                  {"stages", steps > 1 ? 2 : 1},
                                  {"split", split}}));
      }
    }
  }
  return configs;
}

}  // namespace

absl::StatusOr<std::vector<LibraryTime>> ParseLibraryTimes(std::string_view text) {
  std::vector<LibraryTime> times;
  int number = 0;
  for (std::string line : std::vector<std::string>(absl::StrSplit(std::string(text), '\n'))) {
    ++number;
    if (line.ends_with('\r')) line.pop_back();
    if (number == 1) {
      if (line != kHead) return absl::InvalidArgumentError(absl::StrCat("the first line is not '", kHead, "'"));
      continue;
    }
    if (line.empty()) continue;
    absl::StatusOr<LibraryTime> time = ParseLine(line);
    if (!time.ok())
      return absl::InvalidArgumentError(absl::StrCat("line ", number, ": ", std::string(time.status().message())));
    times.push_back(*std::move(time));
  }
  return times;
}

absl::StatusOr<double> LibraryDraftMs(const LibraryTime& time, LibraryConfigs configs) {
  TEMPER_ASSIGN_OR_RETURN(const KnownGpu* gpu, FindKnownGpu(time.device));
  const Target target = TargetOf(*gpu);
  const TemplateDef& def = *FindTemplate("gpu.gemm");
  TEMPER_ASSIGN_OR_RETURN(const Workload w, WorkloadOf(time));
  constexpr int64_t kMostConfigs = 1 << 20;
  double best_s = std::numeric_limits<double>::infinity();
  for (const Config& c :
       configs == LibraryConfigs::kAll ? def.space(w, target).Enumerate(kMostConfigs) : ConfigsOf(time, *target.gpu()))
    best_s = std::min(best_s, def.footprint(w, c, target).draft_s);
  return best_s * 1e3 * kNominalGhz / gpu->ghz + kCallMs;
}

double FittedFactor(const std::vector<double>& drafts, const std::vector<double>& times) {
  // The median of what each alone would have, weighted by what its error counts.
  std::vector<std::pair<double, double>> factors;
  double half = 0;
  for (size_t i = 0; i < drafts.size(); ++i) {
    factors.emplace_back(times[i] / drafts[i], drafts[i] / times[i]);
    half += factors.back().second / 2;
  }
  std::sort(factors.begin(), factors.end());
  for (const auto& [factor, weight] : factors) {
    half -= weight;
    if (half <= 0) return factor;
  }
  return 1;
}

std::vector<bool> ForFitting(const std::vector<LibraryTime>& times) {
  using Key = std::pair<uint64_t, std::string>;
  const auto key = [&](const LibraryTime& t) { return Key(StableHash(ShapeOf(t)), ShapeOf(t)); };
  std::map<Key, bool> shapes;
  for (const LibraryTime& t : times) shapes[key(t)] = false;
  bool fits = false;
  for (auto& [shape, of_shape] : shapes) of_shape = fits = !fits;
  std::vector<bool> result;
  for (const LibraryTime& t : times) result.push_back(shapes.at(key(t)));
  return result;
}

}  // namespace temper
