// Which configs are legal for a workload on a target. Records, locks and boosters say what another build, or somebody,
// once found good: all of it passes here before a footprint is asked for or code is made.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "compiler/ops/template.h"

namespace temper {

// Whether this build has the template in this version; what was made with another is of other code.
bool IsOfThisBuild(std::string_view template_name, int template_version);

class LegalConfigs {
 public:
  // Both outlive it. Not thread-safe: spaces are made when they are asked for.
  LegalConfigs(const Workload& w, const Target& t) : workload_(w), target_(t) {}

  // The template of the name, if it fits the workload; null otherwise.
  const TemplateDef* Find(std::string_view template_name) const;
  // kNotFound: no template is called so. kInvalidArgument: it does not fit, or the config is none of it.
  absl::Status Check(std::string_view template_name, const Config& config);
  // A config from its text. Errors as above.
  absl::StatusOr<Config> Read(std::string_view template_name, std::string_view config);

 private:
  const Workload& workload_;
  const Target& target_;
  std::map<std::string, ConfigSpace, std::less<>> spaces_;  // by template
};

}  // namespace temper
