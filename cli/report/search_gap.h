// Where a config took another time in the search than in the finals: by how much, and what the records say of why.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "storage/record.h"

namespace temper {

inline constexpr double kGapWorthALine = 0.1;  // a share of the shorter time

struct SearchGap {
  double search_s = 0, final_s = 0;  // medians of the records' medians
  std::string why;
};

// Of the config of `best`, among the records of its workload and target. `default_template`, `default_config`: what
// else was measured in both. nullopt: `best` is no final, the search knows no time of it, or the two agree.
std::optional<SearchGap> FindSearchGap(const std::vector<Record>& own, const Record& best,
                                       const std::string& default_template, const std::string& default_config);
// "the finals' time is 18 % longer than the search's (0.1234 ms, then 0.1456 ms): the device ..."
std::string GapText(const SearchGap& gap);

}  // namespace temper
