#include <algorithm>
#include <cmath>

#include "cost_model/cost_model.h"

namespace temper {
namespace {

double Ratio(double a, double b) { return a / std::max(1.0, b); }

// What the footprint's numbers mean on this machine. A new line, or another meaning, raises kFeatureVersion.
struct Derived {
  std::string_view name;
  double (*value)(const Footprint&, const Target&);
};
constexpr Derived kDerived[] = {
    {"padding", [](const Footprint& f, const Target&) { return Ratio(f.padded_flops, f.flops); }},
    {"lanes_used", [](const Footprint& f, const Target& t) { return Ratio(f.vector_lanes, t.lanes()); }},
    {"registers_used", [](const Footprint& f, const Target& t) { return Ratio(f.tile_registers, t.vector_registers); }},
    {"l1_used", [](const Footprint& f, const Target& t) { return Ratio(f.l1_bytes, static_cast<double>(t.l1_bytes)); }},
    {"l2_used", [](const Footprint& f, const Target& t) { return Ratio(f.l2_bytes, static_cast<double>(t.l2_bytes)); }},
    {"l2_refetch", [](const Footprint& f, const Target&) { return Ratio(f.l2_traffic, f.compulsory_bytes); }},
    {"l3_refetch", [](const Footprint& f,
                      const Target&) { return Ratio(std::max(f.l3_traffic, f.memory_traffic), f.compulsory_bytes); }},
    {"memory_refetch", [](const Footprint& f, const Target&) { return Ratio(f.memory_traffic, f.compulsory_bytes); }},
    {"copies_share", [](const Footprint& f, const Target&) { return Ratio(f.copies_bytes, f.compulsory_bytes); }},
    {"flops_per_l2_byte", [](const Footprint& f, const Target&) { return Ratio(f.flops, f.l2_traffic); }},
    {"flops_per_memory_byte", [](const Footprint& f, const Target&) { return Ratio(f.flops, f.memory_traffic); }},
    {"chunks_per_thread", [](const Footprint& f, const Target& t) { return Ratio(f.parallel_chunks, t.threads); }},
    {"accumulators",
     [](const Footprint& f, const Target&) { return Ratio(f.tile_rows * f.tile_columns, f.vector_lanes); }},
    {"tile_aspect", [](const Footprint& f, const Target&) { return Ratio(f.tile_columns, f.tile_rows); }},
};

// Sizes span decades and small ratios matter too: a logarithm that is fine near nought.
float Scaled(double value) { return static_cast<float>(std::log2(1.0 + 16.0 * std::max(0.0, value))); }

}  // namespace

std::span<const std::string> FeatureNames() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all(FootprintNames().begin(), FootprintNames().end());
    for (const Derived& derived : kDerived) all.emplace_back(derived.name);
    all.emplace_back("log_draft_s");
    return all;
  }();
  return names;
}

void Features(const Footprint& f, const Target& t, double draft_s, std::span<float> row) {
  size_t i = 0;
  for (double value : FootprintValues(f)) row[i++] = Scaled(value);
  for (const Derived& derived : kDerived) row[i++] = Scaled(derived.value(f, t));
  row[i] = static_cast<float>(std::log(draft_s));
}

}  // namespace temper
