#include "base/utf8.h"

#include <cstdint>
#include <cstring>

namespace temper {
namespace {

bool Continues(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

// The length of the character at the front of `text`; 0: there is none. Overlong forms, surrogates and what is beyond
// U+10FFFF are none.
size_t CharacterAt(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  if (lead < 0x80) return 1;
  if (lead < 0xC2 || lead > 0xF4) return 0;
  const size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  if (text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if (!Continues(text[i])) return 0;
  }
  const auto second = static_cast<unsigned char>(text[1]);
  const bool refused = (lead == 0xE0 && second < 0xA0) || (lead == 0xED && second > 0x9F) ||
                       (lead == 0xF0 && second < 0x90) || (lead == 0xF4 && second > 0x8F);
  return refused ? 0 : length;
}

char32_t CodePoint(std::string_view character) {
  const auto lead = static_cast<unsigned char>(character[0]);
  char32_t code = character.size() == 1 ? lead : lead & (0x7Fu >> character.size());
  for (const char c : character.substr(1)) code = code << 6 | (static_cast<unsigned char>(c) & 0x3Fu);
  return code;
}

struct Range {
  char32_t first, last;
};
// In order. U+200C and U+200D are missing: Persian, Hindi and emoji need them.
constexpr Range kControls[] = {
    {0x0, 0x1F},         // controls of a terminal
    {0x7F, 0x9F},        // likewise
    {0xAD, 0xAD},        // soft hyphen: shows nothing
    {0x61C, 0x61C},      // mark of Arabic letters: direction
    {0x200B, 0x200B},    // space without width
    {0x200E, 0x200F},    // marks of direction
    {0x2028, 0x202E},    // line and paragraph separators; embeddings and overrides of direction
    {0x2060, 0x206F},    // what shows nothing; isolates of direction
    {0xFEFF, 0xFEFF},    // space without width, byte order mark
    {0xFFF9, 0xFFFB},    // annotations between lines
    {0xE0000, 0xE0FFF},  // tags and selectors: show nothing
};

bool IsControl(std::string_view character) {
  const char32_t code = CodePoint(character);
  for (const Range& range : kControls) {
    if (code <= range.last) return code >= range.first;
  }
  return false;
}

// Most text is ASCII, which needs no more than a look at eight bytes at a time.
size_t AsciiAt(std::string_view text) {
  size_t length = 0;
  for (uint64_t word; text.size() - length >= sizeof word; length += sizeof word) {
    std::memcpy(&word, text.data() + length, sizeof word);
    if ((word & 0x8080808080808080u) != 0) break;
  }
  return length;
}

// Calls `visit` with each character, and with each byte that belongs to none (`is_character`: false).
template <typename F>
void EachCharacter(std::string_view text, F visit) {
  while (!text.empty()) {
    const size_t length = CharacterAt(text);
    visit(text.substr(0, length == 0 ? 1 : length), /*is_character=*/length > 0);
    text.remove_prefix(length == 0 ? 1 : length);
  }
}

}  // namespace

bool IsUtf8(std::string_view text) {
  text.remove_prefix(AsciiAt(text));
  while (!text.empty()) {
    const size_t length = CharacterAt(text);
    if (length == 0) return false;
    text.remove_prefix(length);
    text.remove_prefix(AsciiAt(text));
  }
  return true;
}

std::string_view CutUtf8(std::string_view text, size_t most) {
  if (text.size() <= most) return text;
  size_t end = most;
  while (end > 0 && Continues(text[end])) --end;
  return text.substr(0, end);
}

std::string ToUtf8(std::string_view text) {
  std::string clean;
  clean.reserve(text.size());
  EachCharacter(text, [&](std::string_view character, bool is_character) {
    clean.append(is_character ? character : std::string_view("?"));
  });
  return clean;
}

bool HasControls(std::string_view text) {
  bool found = false;
  EachCharacter(text, [&](std::string_view character, bool is_character) {
    found = found || (is_character && IsControl(character));
  });
  return found;
}

std::string Escaped(std::string_view text) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string escaped;
  escaped.reserve(text.size());
  EachCharacter(text, [&](std::string_view character, bool is_character) {
    if (is_character && !IsControl(character)) {
      escaped.append(character);
      return;
    }
    for (const char c : character) {
      const auto byte = static_cast<unsigned char>(c);
      escaped.append("\\x").push_back(kDigits[byte >> 4]);
      escaped.push_back(kDigits[byte & 15]);
    }
  });
  return escaped;
}

}  // namespace temper
