#include "cost_model/shipped.h"

#include "absl/strings/str_cat.h"
#include "base/log.h"

namespace temper {
namespace {

absl::StatusOr<Booster> Usable(std::string_view text) {
  TEMPER_ASSIGN_OR_RETURN(Booster b, ParseBooster(text));
  const int version = FindTemplate(b.template_name)->version;
  if (version != b.template_version) {
    return absl::FailedPreconditionError(absl::StrCat("made for version ", b.template_version, " of template ",
                                                      b.template_name, ", this build has ", version));
  }
  return b;
}

}  // namespace

// Generated from cost_model/boosters.
std::span<const std::pair<std::string_view, std::string_view>> BoosterFiles();

std::vector<Booster> UsableBoosters(std::span<const std::pair<std::string_view, std::string_view>> files) {
  std::vector<Booster> boosters;
  std::string passed_over;
  for (const auto& [name, text] : files) {
    absl::StatusOr<Booster> booster = Usable(text);
    if (booster.ok())
      boosters.push_back(*std::move(booster));
    else
      absl::StrAppend(&passed_over, passed_over.empty() ? "" : "; ", std::string(name), ": ",
                      booster.status().message());
  }
  if (!passed_over.empty()) spdlog::warn("boosters passed over: {}", passed_over);
  return boosters;
}

std::vector<Booster> ShippedBoosters() { return UsableBoosters(BoosterFiles()); }

}  // namespace temper
