#include "security/identity.h"

#include <filesystem>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/secure_random.h"
#include "security/files.h"

namespace temper {

std::string ClientIdentity(const std::string& directory) {
  if (directory.empty()) return "";
  const std::string path = absl::StrCat(directory, "/identity");
  std::error_code ignored;
  std::filesystem::create_directories(directory, ignored);
  absl::StatusOr<std::string> kept = ReadSmallFile(path, Secrecy::kPrivate);
  if (absl::IsNotFound(kept.status())) {
    // Another process may make it at the same time; then its identity counts.
    WriteWholeFile(path, absl::StrCat(SecureHex(), "\n"), Secrecy::kPrivate, Existing::kRefuse).IgnoreError();
    kept = ReadSmallFile(path, Secrecy::kPrivate);
  }
  if (!kept.ok()) {
    spdlog::info("no identity: {}", std::string(kept.status().message()));
    return "";
  }
  return std::string(absl::StripAsciiWhitespace(*kept));
}

}  // namespace temper
