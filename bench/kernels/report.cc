#include "bench/kernels/report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "base/statistics.h"

namespace temper::bench {
namespace {

double GeometricMean(const std::vector<double>& values) {
  double sum = 0;
  for (double v : values) sum += std::log(v);
  return values.empty() ? 0 : std::exp(sum / static_cast<double>(values.size()));
}

}  // namespace

const Contender* Row::Find(const std::string& name) const {
  const auto it = std::ranges::find(contenders, name, &Contender::name);
  return it == contenders.end() ? nullptr : &*it;
}

double Row::OfRoofline(const Contender& c) const { return roofline.Seconds(flops, bytes) / Median(c.samples_s); }

double Row::OfCeiling(const Contender& c) const {
  return flops / *std::ranges::min_element(c.samples_s) / roofline.flops_per_s;
}

std::vector<double> Row::Ratios(const Contender& c) const {
  std::vector<double> ratios;
  const Contender* peer = Find("onednn");
  for (size_t i = 0; peer != nullptr && i < c.samples_s.size(); ++i)
    ratios.push_back(peer->samples_s[i] / c.samples_s[i]);
  std::ranges::sort(ratios);
  return ratios;
}

Summary Summarize(const std::vector<Row>& rows, const std::string& name) {
  std::vector<double> all, compute_bound, ratios;
  for (const Row& row : rows) {
    const Contender* c = row.Find(name);
    if (c == nullptr || c->winograd()) continue;
    all.push_back(std::min(1.0, row.OfRoofline(*c)));
    if (row.intensity() >= 2 * row.roofline.ridge()) compute_bound.push_back(all.back());
    if (const std::vector<double> r = row.Ratios(*c); !r.empty()) ratios.push_back(Median(r));
  }
  Summary s;
  s.shapes = static_cast<int>(all.size());
  s.compute_bound = static_cast<int>(compute_bound.size());
  s.with_peer = static_cast<int>(ratios.size());
  s.of_roofline = GeometricMean(all);
  s.of_roofline_compute_bound = GeometricMean(compute_bound);
  s.to_peer = GeometricMean(ratios);
  if (!ratios.empty()) {
    const auto enough = std::ranges::count_if(ratios, [](double r) { return r >= 0.97; });
    s.at_least_097 = static_cast<double>(enough) / static_cast<double>(ratios.size());
    s.least = *std::ranges::min_element(ratios);
  }
  return s;
}

void PrintHeader() {
  std::printf("%-44s %9s %7s  %-8s %9s %8s %9s  %-20s %s\n", "shape", "MFLOP", "FLOP/B", "what", "ms", "GFLOP/s",
              "roofline", "to oneDNN", "how");
}

void PrintRow(const Row& row) {
  std::string shape = row.shape;
  for (const Contender& c : row.contenders) {
    const double seconds = Median(c.samples_s);
    const std::vector<double> ratios = row.Ratios(c);
    char ratio[40] = "";
    if (!ratios.empty() && c.name != "onednn")
      std::snprintf(ratio, sizeof ratio, "%.3f (%.2f-%.2f)", Median(ratios), ratios.front(), ratios.back());
    std::printf("%-44s %9.2f %7.1f  %-8s %9.4f %8.1f %8.1f%%  %-20s %s\n", shape.c_str(), row.flops * 1e-6,
                row.intensity(), c.name.c_str(), seconds * 1e3, row.flops / seconds * 1e-9, 100 * row.OfRoofline(c),
                ratio, c.what.c_str());
    shape.clear();
  }
  if (!row.no_peer.empty()) std::printf("  no peer: %s\n", row.no_peer.c_str());
  std::fflush(stdout);
}

void PrintSummary(const std::string& name, const Summary& s) {
  std::printf("%s, direct: %.3f of the roofline over %d shapes, %.3f over %d of at least twice the ridge's intensity",
              name.c_str(), s.of_roofline, s.shapes, s.of_roofline_compute_bound, s.compute_bound);
  if (s.with_peer > 0) {
    std::printf("; %.3f to oneDNN over %d, at least 0.97 on %.0f %%, least %.3f", s.to_peer, s.with_peer,
                100 * s.at_least_097, s.least);
  }
  std::printf("\n");
}

nlohmann::ordered_json ToJson(const Row& row) {
  nlohmann::ordered_json contenders = nlohmann::ordered_json::array();
  for (const Contender& c : row.contenders) {
    const std::vector<double> ratios = row.Ratios(c);
    nlohmann::ordered_json j = {{"name", c.name},
                                {"what", c.what},
                                {"ms", Median(c.samples_s) * 1e3},
                                {"of_roofline", row.OfRoofline(c)},
                                {"error", c.error}};
    if (!ratios.empty() && c.name != "onednn")
      j["to_onednn"] = {{"median", Median(ratios)}, {"min", ratios.front()}, {"max", ratios.back()}};
    j["samples_s"] = c.samples_s;
    contenders.push_back(std::move(j));
  }
  nlohmann::ordered_json j = {{"shape", row.shape},
                              {"workload", row.workload},
                              {"flops", row.flops},
                              {"bytes", row.bytes},
                              {"intensity", row.intensity()},
                              {"ceiling_gflops", row.roofline.flops_per_s * 1e-9},
                              {"contenders", std::move(contenders)}};
  if (!row.no_peer.empty()) j["no_peer"] = row.no_peer;
  return j;
}

nlohmann::ordered_json ToJson(const Summary& s) {
  return {{"shapes", s.shapes},
          {"of_roofline", s.of_roofline},
          {"compute_bound_shapes", s.compute_bound},
          {"of_roofline_compute_bound", s.of_roofline_compute_bound},
          {"shapes_with_peer", s.with_peer},
          {"to_onednn", s.to_peer},
          {"at_least_0.97", s.at_least_097},
          {"least_to_onednn", s.least}};
}

}  // namespace temper::bench
