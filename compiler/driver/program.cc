#include "compiler/driver/program.h"

#include <algorithm>

namespace temper::driver {

const Kernel* Program::Find(std::string_view symbol) const {
  const auto found = std::ranges::find(kernels, symbol, &std::pair<std::string, Kernel>::first);
  return found == kernels.end() ? nullptr : &found->second;
}

absl::StatusOr<Loaded> Loaded::Make(Session& session, const Code& code, Kernel kernel) {
  std::vector<std::string> names;
  for (const Kernel::Launch& launch : kernel.launches) names.push_back(launch.function);
  TEMPER_ASSIGN_OR_RETURN(std::vector<Function> functions, session.Build(code, names));
  return Loaded{std::move(kernel), std::move(functions)};
}

LaunchCall Loaded::Call(int64_t launch, std::span<void* const> arguments) const {
  const auto i = static_cast<size_t>(launch);
  const Kernel::Launch& told = kernel.launches[i];
  return {&functions[i], {told.groups, told.threads, told.shared_bytes}, arguments};
}

}  // namespace temper::driver
