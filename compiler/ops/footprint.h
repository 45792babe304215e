// What a config does to the machine, in closed form (no nest is built): features of the cost model, and what `explain`
// says of it. Each kind of device has values of its own, which everybody reads by their schema.
#pragma once

#include <algorithm>
#include <limits>
#include <string_view>
#include <vector>

namespace temper {

// The names of a kind's values, in a fixed order.
struct FootprintSchema {
  std::string_view name;                // "cpu"
  int version;                          // rises when a value changes its meaning
  std::vector<std::string_view> names;  // stable
};

struct Footprint {
  const FootprintSchema* schema = nullptr;  // its template's; lives as long as the program
  std::vector<double> values;               // one for each of the schema's names
  // The draft: seconds that the config should take by its kind's nominal rates. Only ratios count. It orders the first
  // batch of a search and picks default configs.
  double draft_s = 0;

  // NaN: the schema has no such name.
  double operator[](std::string_view name) const {
    const auto found = std::ranges::find(schema->names, name);
    return found == schema->names.end() ? std::numeric_limits<double>::quiet_NaN()
                                        : values[static_cast<size_t>(found - schema->names.begin())];
  }
};

}  // namespace temper
