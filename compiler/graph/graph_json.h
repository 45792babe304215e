// Graphs as JSON, without the data of float constants of more than 64 elements (types stay): what SubmitJob carries.
#pragma once

#include <string>
#include <string_view>

#include "compiler/graph/graph.h"

namespace temper {

std::string ToJson(const Graph& g);
// The constants above have no data; fill_constants.h draws them. Bounds what it takes: the text may come from anywhere.
absl::StatusOr<Graph> GraphFromJson(std::string_view json);

}  // namespace temper
