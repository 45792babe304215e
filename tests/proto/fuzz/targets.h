// What reads bytes from outside, one function each: whatever the bytes are, it returns, and what it states holds.
// Fuzzed by libFuzzer (TEMPER_FUZZ), and replayed over tests/proto/corpus by every build.
#pragma once

#include <string_view>

namespace temper::fuzz {

using Target = void (*)(std::string_view bytes);

void Requests(std::string_view bytes);   // the first byte picks the message; parsed, checked, converted there and back
void Workloads(std::string_view bytes);  // texts: parsed, printed, drafted
void Graphs(std::string_view bytes);     // JSON: parsed, printed, cut into tasks
void Records(std::string_view bytes);    // lines of JSON
void Frames(std::string_view bytes);     // what a measuring child says

// Ends the process where it does not hold.
void Expect(bool holds, const char* what);

}  // namespace temper::fuzz
