#include "base/natural_order.h"

#include <algorithm>
#include <compare>

#include "absl/strings/ascii.h"

namespace temper {
namespace {

// Takes the next part of a text, which is not empty: one byte, or a run of digits without the zeros before it.
std::string_view TakePart(std::string_view& text, bool& number) {
  number = absl::ascii_isdigit(static_cast<unsigned char>(text[0]));
  size_t end = 1;
  if (number) {
    text.remove_prefix(std::min(text.find_first_not_of('0'), text.size()));
    const auto* const stop = std::find_if_not(text.begin(), text.end(), absl::ascii_isdigit);
    end = static_cast<size_t>(stop - text.begin());
  }
  const std::string_view part = text.substr(0, end);
  text.remove_prefix(end);
  return part;
}

}  // namespace

bool NaturalLess(std::string_view a, std::string_view b) {
  std::string_view rest_a = a, rest_b = b;
  while (!rest_a.empty() && !rest_b.empty()) {
    bool number_a, number_b;
    const std::string_view part_a = TakePart(rest_a, number_a), part_b = TakePart(rest_b, number_b);
    if (number_a && number_b && part_a.size() != part_b.size()) return part_a.size() < part_b.size();
    // Beside anything else a number goes where digits go, also zero, of which no digit is left.
    const std::string_view sort_a = part_a.empty() ? "0" : part_a, sort_b = part_b.empty() ? "0" : part_b;
    if (number_a != number_b) return sort_a[0] < sort_b[0];
    if (part_a != part_b) return part_a < part_b;
  }
  if (rest_a.empty() != rest_b.empty()) return rest_a.empty();
  return a < b;  // they differ in zeros before a number
}

}  // namespace temper
