#include "compiler/graph/extract.h"
#include "compiler/graph/graph_json.h"
#include "tests/proto/fuzz/targets.h"

namespace temper::fuzz {

void Graphs(std::string_view bytes) {
  const absl::StatusOr<Graph> g = GraphFromJson(bytes);
  if (!g.ok()) return;
  const std::string json = ToJson(*g);
  const absl::StatusOr<Graph> back = GraphFromJson(json);
  Expect(back.ok() && ToJson(*back) == json, "a graph's JSON gives it back");
  const absl::StatusOr<std::vector<Task>> tasks = ExtractTasks(*g);
  if (!tasks.ok()) return;
  for (const Task& task : *tasks) Expect(ParseWorkload(Text(task.workload)).ok(), "tasks can travel");
  Expect(!ModelHash(*tasks).empty(), "a model has a hash");
}

}  // namespace temper::fuzz
