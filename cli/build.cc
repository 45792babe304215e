// From a model's file to its package, as compile, bench and run do it.
#include <cstdio>

#include "cli/command.h"
#include "compiler/graph/extract.h"

namespace temper {

absl::StatusOr<PackageReport> BuildPackage(const ModelOptions& model, const RecordOptions& options,
                                           const std::string& dir, const std::string& prefix) {
  TEMPER_ASSIGN_OR_RETURN(std::unique_ptr<Records> records, Records::Open(options));
  TEMPER_ASSIGN_OR_RETURN(const Target target, records->ResolveTarget());
  TEMPER_ASSIGN_OR_RETURN(Graph graph, LoadModel(model, target));
  TEMPER_ASSIGN_OR_RETURN(std::vector<Task> tasks, ExtractTasks(graph));
  TEMPER_RETURN_IF_ERROR(records->ObeyVerdict(ModelHash(tasks), target));
  if (records->kept_default_by() != 0) {
    std::printf("default configs are used: job %lld found the tuned model slower end to end; tune again to look on\n",
                static_cast<long long>(records->kept_default_by()));
  }
  TEMPER_RETURN_IF_ERROR(records->TakeAlternatives(graph, target));
  auto choose = [&](const Workload& w, const Target& t) { return records->Choose(w, t); };
  return WritePackage(graph, target, choose, dir, nullptr, prefix);
}

}  // namespace temper
