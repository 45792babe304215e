// Names of workloads for the rows of a table.
#pragma once

#include <string>
#include <vector>

namespace temper {

// What a terminal of so many columns shows of a line in one row. A character is taken to be one column wide.
std::string Cut(const std::string& line, size_t columns);

// Workloads as `temper explain` names them, cut to at most so many columns (at least 8). Where cut names would be alike
// that are not, what they have in common is left out instead, behind the first operator; those that are alike even then
// end in their number.
std::vector<std::string> ShortNames(const std::vector<std::string>& workloads, size_t columns);

}  // namespace temper
