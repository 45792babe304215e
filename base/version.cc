#include "base/version.h"

namespace temper {

const char* TemperVersion() { return TEMPER_VERSION; }

}  // namespace temper
