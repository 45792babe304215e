// JSON for standard output and reports.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace temper {

// Texts come from servers, models and file names: bytes that are no UTF-8 are replaced, and nothing is thrown. What is
// not ASCII is escaped, so that a terminal obeys none of it.
inline std::string JsonText(const nlohmann::ordered_json& json, int indent = -1) {
  return json.dump(indent, ' ', /*ensure_ascii=*/true, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace temper
