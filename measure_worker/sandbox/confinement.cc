#include "measure_worker/sandbox/confinement.h"

#include <unistd.h>

#include <spdlog/spdlog.h>

#include "absl/strings/str_cat.h"
#include "measure_worker/sandbox/process.h"

namespace temper::worker {
namespace {

constexpr SandboxTier kTiers[] = {SandboxTier::kBasic, SandboxTier::kIsolated, SandboxTier::kFull};

bool Works(const char* what, const Confinement& confinement) {
  const absl::Status tried = ChildProcess::Try(confinement);
  if (!tried.ok()) spdlog::debug("the sandbox has no {}: {}", what, std::string(tried.message()));
  return tried.ok();
}

}  // namespace

SandboxTier TierOf(const Confinement& c) {
  const bool isolated = c.files && (c.own_uid || geteuid() != 0);
  if (!isolated) return SandboxTier::kBasic;
  return c.namespaces && c.cgroup.has_value() ? SandboxTier::kFull : SandboxTier::kIsolated;
}

std::string_view Text(SandboxTier tier) {
  switch (tier) {
    case SandboxTier::kBasic:
      return "basic";
    case SandboxTier::kIsolated:
      return "isolated";
    case SandboxTier::kFull:
      return "full";
  }
  return "basic";
}

absl::StatusOr<SandboxTier> ParseSandboxTier(std::string_view text) {
  for (const SandboxTier tier : kTiers) {
    if (Text(tier) == text) return tier;
  }
  return absl::InvalidArgumentError(absl::StrCat("no sandbox tier '", absl::string_view(text.data(), text.size()),
                                                 "'; there are: basic, isolated, full"));
}

std::string Text(const Confinement& c) {
  std::string text = absl::StrCat(std::string(Text(TierOf(c))), ": filter, limits");
  if (c.files) absl::StrAppend(&text, ", files");
  if (c.own_uid) absl::StrAppend(&text, ", uid");
  if (c.namespaces) absl::StrAppend(&text, c.user_namespace ? ", namespaces of a user" : ", namespaces");
  if (c.cgroup.has_value()) absl::StrAppend(&text, c.cgroup->v2 ? ", cgroup v2" : ", cgroup v1");
  return text;
}

absl::StatusOr<Confinement> ProbeConfinement() {
  if (const absl::Status basic = ChildProcess::Try({}); !basic.ok()) {
    return absl::UnavailableError(absl::StrCat("no measuring child can be confined here: ", basic.message()));
  }
  const bool root = geteuid() == 0;
  Confinement all;
  all.files = Works("rules for files", {.files = true});
  all.own_uid = root && Works("user of its own", {.own_uid = true});
  all.namespaces = Works("namespaces", {.namespaces = true, .user_namespace = !root});
  all.user_namespace = all.namespaces && !root;
  if (absl::StatusOr<CgroupHome> home = FindCgroupHome(); !home.ok()) {
    spdlog::debug("the sandbox has no control group: {}", std::string(home.status().message()));
  } else if (Works("control group", {.cgroup = *home})) {
    all.cgroup = *std::move(home);
  }
  if (const absl::Status together = ChildProcess::Try(all); !together.ok()) {
    spdlog::warn("the sandbox is only a basic one, for its parts do not work together: {}",
                 std::string(together.message()));
    return Confinement{};
  }
  return all;
}

}  // namespace temper::worker
