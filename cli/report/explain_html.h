// What `temper explain` says, as one page that needs nothing else: styles, tables and plots are in it.
#pragma once

#include <string>

#include "cli/report/explanation.h"

namespace temper {

// `command`: what tunes the model further.
std::string ExplanationPage(const Explanation& e, const std::string& command);
std::string FailuresPage(const FailureGroups& failures);

// --- words that the page and the terminal share ---
std::string Headline(const Explanation& e);
std::string Milliseconds(const ConfigReport& c);   // "0.123", an estimate as "~0.123"
std::string AgeText(double seconds);               // "5 min"
std::string RecordText(const OperatorReport& op);  // "record 7, final, exact, 5 min old, stale"
std::string GainText(const OperatorReport& op);    // "1.25x", an estimate as "~1.25x"
std::string NearestText(const Nearest& nearest);
std::string NodesText(const OperatorReport& op);
std::string ConfigText(const ConfigReport& c);  // template and knobs

}  // namespace temper
