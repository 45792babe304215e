#include <optional>

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

}  // namespace

absl::StatusOr<HttpRequest> ParseHttpRequest(std::string_view head) {
  std::string_view line = head.substr(0, head.find_first_of("\r\n"));
  const std::string_view method = Take(line, ' ');
  std::string_view target = Take(line, ' ');
  if (line != "HTTP/1.1" && line != "HTTP/1.0") return absl::InvalidArgumentError("this is no HTTP/1.1 request");
  if (method != "GET") return absl::UnimplementedError("only GET is served");
  if (target.empty() || target[0] != '/') return absl::InvalidArgumentError("the target has to begin with a slash");
  HttpRequest request;
  const std::optional<std::string> path = Decoded(Take(target, '?'), false);
  bool sound = path.has_value();
  if (sound) request.path = *path;
  while (sound && !target.empty()) {
    std::string_view value = Take(target, '&');
    const std::optional<std::string> name = Decoded(Take(value, '='), true), text = Decoded(value, true);
    sound = name.has_value() && text.has_value();
    if (sound) request.query[*name] = *text;
  }
  if (!sound) return absl::InvalidArgumentError("a percent sign needs two hex digits behind it");
  return request;
}

}  // namespace temper
