// Files that every package carries, embedded in the program that writes packages.
#pragma once

#include <string_view>

namespace temper {

std::string_view RuntimeObject();  // compiler/runtime, one relocatable object
std::string_view ModelHeader();    // include/temper/model.h

}  // namespace temper
