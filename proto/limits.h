// What each field of each message may hold. One table for all of temper.v1; a test holds it against the messages, so
// that no field is without a limit. Honest use never comes near one.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace temper {

struct Limit {
  enum class Kind : uint8_t {
    kWord,     // text without control characters, at most `most` bytes
    kText,     // text, at most `most` bytes
    kInteger,  // from `least` to `most`
    kReal,     // finite, from `least` to `most`
    kAny,      // every value of its type: flags and seeds
    kMessage,  // as its own fields say
  };
  Kind kind;
  int64_t least = 0, most = 0;
  int items = 1;  // the most that a repeated field holds

  constexpr Limit Items(int n) const { return {kind, least, most, n}; }
};

struct FieldLimit {
  std::string_view field;  // "Record.workload": its full name without the package
  Limit limit;
};

std::span<const FieldLimit> FieldLimits();

// Those that others ask for.
inline constexpr int kMostQueries = 64;       // of a QueryBest
inline constexpr int kMostRecords = 4096;     // of a PutRecords
inline constexpr int64_t kLongestName = 256;  // bytes

}  // namespace temper
