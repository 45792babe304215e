// What a run of bench/kernels found: rows, and what they come to.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/kernels/shapes.h"
#include "compiler/timing/roofline.h"

namespace temper::bench {

struct Row {
  std::string shape, workload;
  double flops = 0, bytes = 0;
  Roofline roofline;  // the ceiling as measured between this shape's samples
  std::vector<Contender> contenders;
  std::string no_peer;  // why oneDNN is not among them

  const Contender* Find(const std::string& name) const;
  double intensity() const { return flops / bytes; }
  // The roofline's time over the contender's median.
  double OfRoofline(const Contender& c) const;
  // oneDNN's time over the contender's, by round, sorted; empty without a peer.
  std::vector<double> Ratios(const Contender& c) const;
  // Of the fastest sample.
  double OfCeiling(const Contender& c) const;
};

// All rows beside each other, for one of our contenders ("default" or "tuned"), algorithms of fewer operations than
// the direct one left out. Shares of the roofline count as 1 at most: operands that lie in caches beat memory.
struct Summary {
  int shapes = 0, compute_bound = 0, with_peer = 0;
  double of_roofline = 0;                // geometric means
  double of_roofline_compute_bound = 0;  // over shapes of at least twice the ridge's intensity
  double to_peer = 0;
  double at_least_097 = 0, least = 0;  // share of shapes, and the lowest median ratio, against the peer
};
Summary Summarize(const std::vector<Row>& rows, const std::string& name);

void PrintHeader();
void PrintRow(const Row& row);
void PrintSummary(const std::string& name, const Summary& s);
nlohmann::ordered_json ToJson(const Row& row);
nlohmann::ordered_json ToJson(const Summary& s);

}  // namespace temper::bench
