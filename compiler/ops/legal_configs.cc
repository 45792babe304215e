#include "compiler/ops/legal_configs.h"

#include "absl/strings/str_cat.h"

namespace temper {

bool IsOfThisBuild(std::string_view template_name, int template_version) {
  const TemplateDef* def = FindTemplate(template_name);
  return def != nullptr && def->version == template_version;
}

const TemplateDef* LegalConfigs::Find(std::string_view template_name) const {
  const TemplateDef* def = FindTemplate(template_name);
  return def != nullptr && def->matches(workload_, target_) ? def : nullptr;
}

absl::Status LegalConfigs::Check(std::string_view template_name, const Config& config) {
  auto known = spaces_.find(template_name);
  if (known == spaces_.end()) {
    const std::string name(template_name);
    const TemplateDef* def = FindTemplate(template_name);
    if (def == nullptr) return absl::NotFoundError(absl::StrCat("no template is called '", name, "'"));
    if (!def->matches(workload_, target_))
      return absl::InvalidArgumentError(
          absl::StrCat(name, " does not fit ", Text(workload_), " for ", target_.generator));
    known = spaces_.emplace(name, def->space(workload_, target_)).first;
  }
  return known->second.Check(config);
}

absl::StatusOr<Config> LegalConfigs::Read(std::string_view template_name, std::string_view config) {
  TEMPER_ASSIGN_OR_RETURN(Config read, ParseConfig(config));
  TEMPER_RETURN_IF_ERROR(Check(template_name, read));
  return read;
}

}  // namespace temper
