// A position in a text being parsed: what attributes' and workloads' parsers share.
#pragma once

#include <charconv>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace temper::ops {

class TextCursor {
 public:
  explicit TextCursor(std::string_view text) : text_(text) {}

  bool AtEnd() const { return pos_ == text_.size(); }
  char Peek() const { return AtEnd() ? '\0' : text_[pos_]; }
  std::string_view Rest() const { return text_.substr(pos_); }
  void Skip(size_t n) { pos_ += n; }
  bool Eat(std::string_view token) {
    if (!Rest().starts_with(token)) return false;
    pos_ += token.size();
    return true;
  }
  absl::Status Expect(std::string_view token) {
    return Eat(token) ? absl::OkStatus() : Error(absl::StrCat("expected '", std::string(token), "'"));
  }
  // [a-z_][a-z0-9_]*; empty if there is none.
  std::string_view Word() {
    size_t start = pos_;
    auto letter = [](char c) { return (c >= 'a' && c <= 'z') || c == '_'; };
    while (!AtEnd() && (letter(Peek()) || (pos_ > start && Peek() >= '0' && Peek() <= '9'))) ++pos_;
    return text_.substr(start, pos_ - start);
  }
  absl::StatusOr<int64_t> Int() {
    int64_t value = 0;
    auto [end, error] = std::from_chars(text_.data() + pos_, text_.data() + text_.size(), value);
    if (error != std::errc()) return Error("expected an integer");
    pos_ = static_cast<size_t>(end - text_.data());
    return value;
  }
  absl::Status Error(std::string_view what) const {
    return absl::InvalidArgumentError(
        absl::StrCat(std::string(what), " at position ", pos_, " of '", std::string(text_.substr(0, 200)), "'"));
  }

 private:
  std::string_view text_;
  size_t pos_ = 0;
};

}  // namespace temper::ops
