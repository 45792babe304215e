#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "tuner_server/operations/http.h"

namespace temper {
namespace {

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// nullopt: a percent sign without two hex digits.
std::optional<std::string> Decoded(std::string_view text, bool plus_is_space) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      decoded += plus_is_space && text[i] == '+' ? ' ' : text[i];
      continue;
    }
    if (text.size() - i < 3) return std::nullopt;
    const int high = HexDigit(text[i + 1]), low = HexDigit(text[i + 2]);
    if (high < 0 || low < 0) return std::nullopt;
    decoded += static_cast<char>(high << 4 | low);
    i += 2;
  }
  return decoded;
}

// The part before `separator`, which goes from `rest` with it; all of it where there is none.
std::string_view Take(std::string_view& rest, char separator) {
  const size_t end = rest.find(separator);
  const std::string_view part = rest.substr(0, end);
  rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  return part;
}

std::string_view Stripped(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t"), end = text.find_last_not_of(" \t");
  return begin == std::string_view::npos ? "" : text.substr(begin, end - begin + 1);
}

// False: a line is no header.
bool ParseHeaders(std::string_view lines, std::map<std::string, std::string>& headers) {
  while (!lines.empty()) {
    std::string_view value = Take(lines, '\n');
    if (value.ends_with('\r')) value.remove_suffix(1);
    if (value.find(':') == std::string_view::npos) return false;
    const std::string_view given = Take(value, ':');
    if (given.empty() || given.find_first_of(" \t\r") != std::string_view::npos) return false;
    const std::string name = absl::AsciiStrToLower(absl::string_view(given.data(), given.size()));
    const auto [header, first] = headers.try_emplace(name, Stripped(value));
    if (!first) header->second += std::string(", ") + std::string(Stripped(value));
  }
  return true;
}

}  // namespace

const std::string& HttpRequest::Header(const std::string& name) const {
  static const std::string kNone;
  const auto found = headers.find(name);
  return found == headers.end() ? kNone : found->second;
}

std::string HttpRequest::Query(const std::string& name) const {
  const auto found = query.find(name);
  return found == query.end() ? "" : found->second;
}

std::optional<std::map<std::string, std::string>> ParseHttpForm(std::string_view form) {
  std::map<std::string, std::string> values;
  while (!form.empty()) {
    std::string_view value = Take(form, '&');
    const std::optional<std::string> name = Decoded(Take(value, '='), true), text = Decoded(value, true);
    if (!name.has_value() || !text.has_value()) return std::nullopt;
    values[*name] = *text;
  }
  return values;
}

absl::StatusOr<HttpRequest> ParseHttpRequest(std::string_view head) {
  std::string_view line = Take(head, '\n');
  if (line.ends_with('\r')) line.remove_suffix(1);
  const std::string_view method = Take(line, ' ');
  std::string_view target = Take(line, ' ');
  if (line != "HTTP/1.1" && line != "HTTP/1.0") return absl::InvalidArgumentError("this is no HTTP/1.1 request");
  if (method != "GET" && method != "POST") return absl::UnimplementedError("only GET and POST are served");
  if (target.empty() || target[0] != '/') return absl::InvalidArgumentError("the target has to begin with a slash");
  HttpRequest request;
  request.method = method;
  const std::optional<std::string> path = Decoded(Take(target, '?'), false);
  auto query = ParseHttpForm(target);
  if (!path.has_value() || !query.has_value()) {
    return absl::InvalidArgumentError("a percent sign needs two hex digits behind it");
  }
  request.path = *path;
  request.query = *std::move(query);
  if (!ParseHeaders(head, request.headers)) return absl::InvalidArgumentError("a line of the header is none");
  if (request.headers.contains("transfer-encoding")) {
    return absl::InvalidArgumentError("a body needs a Content-Length, not a Transfer-Encoding");
  }
  return request;
}

}  // namespace temper
