// The steps from an empty file to the present schema. Step i takes user_version i to i + 1, in one transaction.
// A step that was released is never edited; a change of schema is a new file and a line in storage/CMakeLists.txt.
#pragma once

#include <span>
#include <string_view>

namespace temper {

std::span<const std::string_view> Migrations();

}  // namespace temper
