#include "compiler/package/manifest.h"

#include <algorithm>
#include <array>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "compiler/package/package.h"

namespace temper {
namespace {

using nlohmann::json;

constexpr struct {
  const char* name;
  bool (json::*is)() const noexcept;
} kFields[] = {{"model", &json::is_string},       {"target", &json::is_string},       {"tuned", &json::is_boolean},
               {"arena_bytes", &json::is_number}, {"weight_bytes", &json::is_number}, {"prefix", &json::is_string}};

absl::Status CheckVariants(const json& manifest, const std::string& dir) {
  if (!manifest.contains("variants")) return absl::OkStatus();
  const auto is_variant = [](const json& v) {
    return v.is_object() && v.contains("name") && v["name"].is_string() &&
           std::ranges::all_of(std::array{"inputs", "outputs", "steps"},
                               [&](const char* list) { return v.contains(list) && v[list].is_array(); });
  };
  const json& variants = manifest["variants"];
  if (variants.is_array() && std::ranges::all_of(variants, is_variant)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(dir, "/manifest.json is damaged: its variants are none"));
}

}  // namespace

absl::StatusOr<nlohmann::json> ReadManifest(const std::string& dir) {
  std::ifstream file(dir + "/manifest.json");
  if (!file) return absl::NotFoundError(absl::StrCat(dir, " is not a package: it has no manifest.json"));
  nlohmann::json manifest = nlohmann::json::parse(file, nullptr, false);
  if (manifest.is_discarded()) return absl::InvalidArgumentError(absl::StrCat(dir, "/manifest.json is damaged"));
  if (!manifest.is_object() || !manifest.contains("version") || !manifest["version"].is_number_integer())
    return absl::InvalidArgumentError(absl::StrCat(dir, "/manifest.json is damaged: it says no version"));
  if (const auto version = manifest["version"].get<int64_t>(); version != kPackageVersion) {
    return absl::FailedPreconditionError(absl::StrCat(dir, " is a package of version ", version,
                                                      ", this program reads ", kPackageVersion,
                                                      ": compile the model again"));
  }
  for (const auto& [name, is] : kFields) {
    if (manifest.contains(name) && !(manifest[name].*is)()) {
      return absl::InvalidArgumentError(
          absl::StrCat(dir, "/manifest.json is damaged: its ", name, " is of the type ", manifest[name].type_name()));
    }
  }
  TEMPER_RETURN_IF_ERROR(CheckVariants(manifest, dir));
  return manifest;
}

}  // namespace temper
