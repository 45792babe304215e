// Files that every package carries, embedded in the program that writes packages.
#pragma once

#include <string_view>

#include "compiler/target/target.h"

namespace temper {

// compiler/runtime, one relocatable object; empty where this build has none for the architecture.
std::string_view RuntimeObject(CpuArch arch);
std::string_view ModelHeader();  // include/temper/model.h

}  // namespace temper
