// What tuner.h promises, as checks that any tuner can be put to. They return what was broken instead of failing, so
// that tuners broken on purpose can show that each breach is caught.
#pragma once

#include <set>
#include <string>

#include "tuner_server/search/tuner.h"

namespace temper {

enum class Breach {
  kError,             // a call failed that must not
  kTooMany,           // more than asked for
  kIllegal,           // a candidate that its template refuses, or of another workload's template
  kRepeats,           // a candidate proposed before
  kProposesObserved,  // a candidate observed before
  kEndsEarly,         // stops with candidates left
  kNotReproducible,   // the same seed and results, other proposals
  kOrderMatters,      // the same results in another order, other proposals
  kStopsOnFailures,   // as kEndsEarly or kError, where every trial fails
  kTakesNonsense,     // accepts an ok result that costs nothing
};
std::string Name(Breach breach);

// Puts a tuner through every toy space; `names` of what it broke.
std::set<std::string> Breaches(const TunerDef& def);

}  // namespace temper
