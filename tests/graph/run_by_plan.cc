#include "tests/graph/run_by_plan.h"

#include <algorithm>
#include <cstring>

#include "compiler/graph/alias.h"
#include "compiler/graph/extract.h"
#include "compiler/graph/memory_plan.h"

namespace temper::testing {
namespace {

constexpr int64_t kScratchBytes = 192;  // of every kernel

// For each logical position, where it lies in physical memory.
std::vector<int64_t> PhysicalPositions(const TensorType& t) {
  const size_t rank = t.shape.size();
  std::vector<int64_t> stride(rank, 1), index(rank, 0), positions;
  int64_t step = 1;
  for (size_t p = rank; p-- > 0;) {
    const size_t axis = t.perm.empty() ? p : static_cast<size_t>(t.perm[p]);
    stride[axis] = step;
    step *= t.shape[axis];
  }
  for (int64_t n = NumElements(t.shape); n > 0; --n) {
    int64_t at = 0;
    for (size_t d = 0; d < rank; ++d) at += index[d] * stride[d];
    positions.push_back(at);
    for (size_t d = rank; d-- > 0 && ++index[d] == t.shape[d];) index[d] = 0;
  }
  return positions;
}

class Machine {
 public:
  Machine(const Graph& g, BufferPlan plan)
      : g_(g), plan_(std::move(plan)), arena_(static_cast<size_t>(plan_.arena_bytes), '\xff') {
    // What is no arena's: a buffer of its own.
    for (ValueId v : g.outputs) Own(v);
    for (ValueId v : g.inputs) Own(v);
    for (size_t v = 0; v < g.values.size(); ++v) {
      if (g.values[v].is_constant) Own(static_cast<ValueId>(v));
    }
  }

  absl::StatusOr<std::vector<NDArray>> Run(const std::vector<NDArray>& inputs) {
    for (size_t v = 0; v < g_.values.size(); ++v) {
      if (g_.values[v].is_constant) TEMPER_RETURN_IF_ERROR(Write(static_cast<ValueId>(v), *g_.values[v].constant));
    }
    for (size_t i = 0; i < inputs.size(); ++i) TEMPER_RETURN_IF_ERROR(Write(g_.inputs[i], inputs[i]));
    const Aliases aliases(g_);
    for (const Group& group : g_.groups) {
      if (aliases.Have(group)) continue;
      TEMPER_ASSIGN_OR_RETURN(Extracted e, Extract(g_, group));
      // A kernel may write before it has read: its result may not lie where an operand does, but for the one in place.
      TEMPER_ASSIGN_OR_RETURN(char* place, Place(e.output));
      const ValueId root = plan_.alias_of[static_cast<size_t>(e.output)];
      const bool in_place = std::any_of(e.inputs.begin(), e.inputs.end(),
                                        [&](ValueId v) { return plan_.alias_of[static_cast<size_t>(v)] == root; });
      if (!in_place && !plan_.part[static_cast<size_t>(e.output)].has_value())
        std::memset(place, 0xff, static_cast<size_t>(Bytes(e.output)));
      const size_t group_index = static_cast<size_t>(&group - g_.groups.data());
      std::memset(arena_.data() + plan_.scratch[group_index], 0xff, static_cast<size_t>(kScratchBytes));
      std::vector<NDArray> args;
      for (ValueId v : e.inputs) {
        TEMPER_ASSIGN_OR_RETURN(NDArray a, Read(v));
        args.push_back(std::move(a));
      }
      TEMPER_ASSIGN_OR_RETURN(NDArray result, RunReference(e.workload, args));
      TEMPER_RETURN_IF_ERROR(Write(e.output, result));
    }
    std::vector<NDArray> outputs;
    for (ValueId v : g_.outputs) {
      TEMPER_ASSIGN_OR_RETURN(NDArray a, Read(v));
      outputs.push_back(std::move(a));
    }
    return outputs;
  }

 private:
  void Own(ValueId v) {
    own_.resize(g_.values.size());
    own_[static_cast<size_t>(v)].resize(static_cast<size_t>(Bytes(v)), '\xff');
  }
  int64_t Bytes(ValueId v) const { return NumElements(g_.values[v].type.shape) * SizeOf(g_.values[v].type.dtype); }

  absl::StatusOr<char*> Place(ValueId v) {
    const ValueId root = plan_.alias_of[static_cast<size_t>(v)];
    if (plan_.alias_of[static_cast<size_t>(root)] != root) return absl::InternalError("an alias of an alias");
    const int64_t offset = plan_.offset[static_cast<size_t>(v)], start = plan_.start[static_cast<size_t>(v)];
    if (offset >= 0) {
      if (offset % 64 != 0 || offset + Bytes(v) > plan_.arena_bytes) return absl::InternalError("a bad offset");
      if (offset != plan_.offset[static_cast<size_t>(root)] + start) return absl::InternalError("not in its root");
      return arena_.data() + offset;
    }
    std::vector<char>& own = own_[static_cast<size_t>(root)];
    if (static_cast<int64_t>(own.size()) < start + Bytes(v))
      return absl::InternalError("a value without a place: " + g_.values[v].name);
    return own.data() + start;
  }

  absl::StatusOr<NDArray> Read(ValueId v) {
    TEMPER_ASSIGN_OR_RETURN(const char* from, Place(v));
    const TensorType& t = g_.values[v].type;
    NDArray a(t.dtype, t.shape);
    const size_t size = static_cast<size_t>(SizeOf(t.dtype));
    char* to = static_cast<char*>(a.MutableData());
    for (int64_t at : PhysicalPositions(t)) {
      std::memcpy(to, from + static_cast<size_t>(at) * size, size);
      to += size;
    }
    return a;
  }

  absl::Status Write(ValueId v, const NDArray& a) {
    TEMPER_ASSIGN_OR_RETURN(char* to, Place(v));
    const TensorType& t = g_.values[v].type;
    const size_t size = static_cast<size_t>(SizeOf(t.dtype));
    const char* from = static_cast<const char*>(a.data());
    const std::optional<Part>& part = plan_.part[static_cast<size_t>(v)];
    for (int64_t at : PhysicalPositions(t)) {
      if (part.has_value()) at = at / part->inner * part->total + part->offset + at % part->inner;
      std::memcpy(to + static_cast<size_t>(at) * size, from, size);
      from += size;
    }
    return absl::OkStatus();
  }

  const Graph& g_;
  BufferPlan plan_;
  std::vector<char> arena_;
  std::vector<std::vector<char>> own_;  // per value
};

}  // namespace

absl::StatusOr<std::vector<NDArray>> RunByPlan(const Graph& g, const std::vector<NDArray>& inputs) {
  TEMPER_ASSIGN_OR_RETURN(BufferPlan plan,
                          PlanMemory(g, {std::vector<int64_t>(g.groups.size(), kScratchBytes), InPlaceOperands(g)}));
  return Machine(g, std::move(plan)).Run(inputs);
}

}  // namespace temper::testing
