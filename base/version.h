// Temper's own version.
#pragma once

namespace temper {

const char* TemperVersion();  // "0.1.0"

}  // namespace temper
