#include "cli/report/footprint_differences.h"

#include <algorithm>
#include <span>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace temper {
namespace {

std::string Bytes(double bytes) {
  if (bytes < 1 << 10) return absl::StrFormat("%.0f B", bytes);
  if (bytes < 1 << 20) return absl::StrFormat("%.1f KiB", bytes / (1 << 10));
  return absl::StrFormat("%.1f MiB", bytes / (1 << 20));
}

std::string OfCache(double bytes, int64_t cache, const char* name) {
  if (cache <= 0) return Bytes(bytes);
  return absl::StrFormat("%s, %.2fx %s", Bytes(bytes), bytes / static_cast<double>(cache), name);
}

std::string Number(double value) { return absl::StrFormat("%.3g", value); }

struct Aspect {
  const char* what;
  std::string (*text)(const Footprint& f, const Target& t);
};

// Of footprints under the CPU's schema.
constexpr Aspect kCpuAspects[] = {
    {"register tile",
     [](const Footprint& f, const Target&) {
       return absl::StrFormat("%g x %g elements, %g registers", f["tile_rows"], f["tile_columns"], f["tile_registers"]);
     }},
    {"vector lanes", [](const Footprint& f, const Target&) { return Number(f["vector_lanes"]); }},
    {"elements between lanes", [](const Footprint& f, const Target&) { return Number(f["innermost_stride"]); }},
    {"loads per multiply-add", [](const Footprint& f, const Target&) { return Number(f["loads_per_fma"]); }},
    {"accumulated in registers",
     [](const Footprint& f, const Target&) { return absl::StrFormat("%g steps", f["reduction"]); }},
    {"working set in L1",
     [](const Footprint& f, const Target& t) { return OfCache(f["l1_bytes"], t.cpu()->l1_bytes, "L1"); }},
    {"working set in L2",
     [](const Footprint& f, const Target& t) { return OfCache(f["l2_bytes"], t.cpu()->l2_bytes, "L2"); }},
    {"fetched past L1", [](const Footprint& f, const Target&) { return Bytes(f["l2_traffic"]); }},
    {"fetched past L2",
     [](const Footprint& f, const Target&) { return Bytes(std::max(f["l3_traffic"], f["memory_traffic"])); }},
    {"fetched from memory", [](const Footprint& f, const Target&) { return Bytes(f["memory_traffic"]); }},
    {"copied before the loops", [](const Footprint& f, const Target&) { return Bytes(f["copies_bytes"]); }},
    {"wasted on tails and padding",
     [](const Footprint& f, const Target&) {
       return absl::StrFormat("%.1f %%", f["flops"] > 0 ? 100 * (f["padded_flops"] / f["flops"] - 1) : 0.0);
     }},
    {"parallel chunks",
     [](const Footprint& f, const Target&) {
       const std::string chunks = absl::StrFormat("%g", f["parallel_chunks"]);
       if (f["chunk_imbalance"] < 1.005) return chunks;
       return absl::StrFormat("%s, the slowest thread %.2fx the mean", chunks, f["chunk_imbalance"]);
     }},
    {"unrolled vector operations",
     [](const Footprint& f, const Target&) { return absl::StrFormat("%.0f", f["code_ops"]); }},
};

// Of footprints under the GPUs' schema.
constexpr Aspect kGpuAspects[] = {
    {"groups",
     [](const Footprint& f, const Target&) {
       return absl::StrFormat("%g of %g threads, %.3g waves", f["groups"], f["group_threads"], f["waves"]);
     }},
    {"results of a thread", [](const Footprint& f, const Target&) { return Number(f["accumulators"]); }},
    {"elements of an access", [](const Footprint& f, const Target&) { return Number(f["vector_lanes"]); }},
    {"registers of a thread", [](const Footprint& f, const Target&) { return Number(f["registers"]); }},
    {"shared memory of a group",
     [](const Footprint& f, const Target& t) {
       return OfCache(f["shared_bytes"], t.gpu()->shared_bytes, "the target's");
     }},
    {"occupancy", [](const Footprint& f, const Target&) { return absl::StrFormat("%.0f %%", 100 * f["occupancy"]); }},
    {"fetched from memory", [](const Footprint& f, const Target&) { return Bytes(f["memory_traffic"]); }},
    {"asked of the cache in front of it",
     [](const Footprint& f, const Target&) { return Bytes(std::max(f["cache_traffic"], f["memory_traffic"])); }},
    {"fetched from shared memory", [](const Footprint& f, const Target&) { return Bytes(f["shared_traffic"]); }},
    {"wasted on tails and padding",
     [](const Footprint& f, const Target&) {
       return absl::StrFormat("%.1f %%", f["flops"] > 0 ? 100 * (f["padded_flops"] / f["flops"] - 1) : 0.0);
     }},
};

// The kinds of footprint that there are words for.
struct Words {
  std::string_view schema;
  std::span<const Aspect> aspects;
};
constexpr Words kWords[] = {{"cpu", kCpuAspects}, {"gpu", kGpuAspects}};

}  // namespace

std::vector<Difference> FootprintDifferences(const Footprint& before, const Footprint& after, const Target& t) {
  std::vector<Difference> all;
  if (const auto words = std::ranges::find(kWords, before.schema->name, &Words::schema); words != std::end(kWords)) {
    for (const Aspect& aspect : words->aspects)
      all.push_back({aspect.what, aspect.text(before, t), aspect.text(after, t)});
  } else {
    for (const std::string_view name : before.schema->names)
      all.push_back({std::string(name), Number(before[name]), Number(after[name])});
  }
  std::erase_if(all, [](const Difference& d) { return d.before == d.after; });
  return all;
}

}  // namespace temper
