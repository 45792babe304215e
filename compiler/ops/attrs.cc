#include "compiler/ops/attrs.h"

#include <charconv>
#include <cmath>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/ops/attrs_parse.h"

namespace temper {
namespace {

// A float always shows that it is one: "1.0", "1e-05", "inf", so that parsing gives the same variant back.
std::string FloatText(double v) {
  if (std::isnan(v)) return "nan";
  char buffer[40];
  auto [end, error] = std::to_chars(buffer, buffer + sizeof(buffer), v);
  std::string text(buffer, end);
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

std::string ValueText(const AttrValue& v) {
  if (const auto* i = std::get_if<int64_t>(&v)) return absl::StrCat(*i);
  if (const auto* f = std::get_if<double>(&v)) return FloatText(*f);
  if (const auto* s = std::get_if<std::string>(&v)) return absl::StrCat("'", absl::CEscape(*s), "'");
  return absl::StrCat("[", absl::StrJoin(std::get<std::vector<int64_t>>(v), ","), "]");
}

absl::StatusOr<AttrValue> ParseString(ops::TextCursor& c) {
  std::string_view rest = c.Rest();
  for (size_t i = 1; i < rest.size(); ++i) {
    if (rest[i] == '\\') {
      ++i;
    } else if (rest[i] == '\'') {
      std::string value;
      if (!absl::CUnescape(absl::string_view(rest.data() + 1, i - 1), &value)) return c.Error("bad escape in a string");
      c.Skip(i + 1);
      return AttrValue(std::move(value));
    }
  }
  return c.Error("string without an end");
}

absl::StatusOr<AttrValue> ParseInts(ops::TextCursor& c) {
  std::vector<int64_t> values;
  TEMPER_RETURN_IF_ERROR(c.Expect("["));
  while (!c.Eat("]")) {
    if (!values.empty()) TEMPER_RETURN_IF_ERROR(c.Expect(","));
    TEMPER_ASSIGN_OR_RETURN(int64_t v, c.Int());
    values.push_back(v);
  }
  return AttrValue(std::move(values));
}

absl::StatusOr<AttrValue> ParseNumber(ops::TextCursor& c) {
  size_t length = c.Rest().find_first_not_of("+-.0123456789aefinx");
  std::string_view number = c.Rest().substr(0, length);
  const char* first = number.data();
  const char* last = first + number.size();
  int64_t i = 0;
  if (auto [end, error] = std::from_chars(first, last, i); error == std::errc() && end == last) {
    c.Skip(number.size());
    return AttrValue(i);
  }
  double d = 0;
  if (auto [end, error] = std::from_chars(first, last, d); error == std::errc() && end == last && !number.empty()) {
    c.Skip(number.size());
    return AttrValue(d);
  }
  return c.Error("expected a number, a string or a list");
}

}  // namespace

int64_t Attrs::Int(const std::string& name, int64_t otherwise) const {
  auto it = values_.find(name);
  const int64_t* v = it == values_.end() ? nullptr : std::get_if<int64_t>(&it->second);
  return v ? *v : otherwise;
}

double Attrs::Float(const std::string& name, double otherwise) const {
  auto it = values_.find(name);
  if (it == values_.end()) return otherwise;
  if (const double* v = std::get_if<double>(&it->second)) return *v;
  const int64_t* v = std::get_if<int64_t>(&it->second);
  return v ? static_cast<double>(*v) : otherwise;
}

std::string Attrs::String(const std::string& name, std::string otherwise) const {
  auto it = values_.find(name);
  const std::string* v = it == values_.end() ? nullptr : std::get_if<std::string>(&it->second);
  return v ? *v : otherwise;
}

std::vector<int64_t> Attrs::Ints(const std::string& name, std::vector<int64_t> otherwise) const {
  auto it = values_.find(name);
  const auto* v = it == values_.end() ? nullptr : std::get_if<std::vector<int64_t>>(&it->second);
  return v ? *v : otherwise;
}

std::string Text(const Attrs& a) {
  return absl::StrJoin(a.values(), " ", [](std::string* out, const auto& item) {
    absl::StrAppend(out, item.first, "=", ValueText(item.second));
  });
}

namespace ops {

absl::StatusOr<Attrs> ParseAttrs(TextCursor& c) {
  Attrs attrs;
  for (std::string_view name = c.Word(); !name.empty(); name = c.Word()) {
    if (attrs.Has(std::string(name))) return c.Error(absl::StrCat("attribute '", std::string(name), "' twice"));
    TEMPER_RETURN_IF_ERROR(c.Expect("="));
    auto parse = c.Peek() == '\'' ? ParseString : c.Peek() == '[' ? ParseInts : ParseNumber;
    TEMPER_ASSIGN_OR_RETURN(AttrValue value, parse(c));
    attrs.Set(std::string(name), std::move(value));
    if (!c.Eat(" ")) break;
  }
  return attrs;
}

}  // namespace ops

absl::StatusOr<Attrs> ParseAttrs(std::string_view text) {
  ops::TextCursor cursor(text);
  TEMPER_ASSIGN_OR_RETURN(Attrs attrs, ops::ParseAttrs(cursor));
  if (!cursor.AtEnd()) return cursor.Error("expected an attribute");
  return attrs;
}

}  // namespace temper
