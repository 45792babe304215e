// The boosters that come with this build: the files of cost_model/boosters, compiled in.
#pragma once

#include "cost_model/booster.h"

namespace temper {

// Those of this build's template versions and features; the log says in one line which others were passed over.
std::vector<Booster> ShippedBoosters();
// The same of any texts, each with a name for the log.
std::vector<Booster> UsableBoosters(std::span<const std::pair<std::string_view, std::string_view>> files);

}  // namespace temper
