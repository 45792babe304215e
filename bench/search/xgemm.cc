#include "bench/search/xgemm.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "bench/search/known_gpus.h"

namespace temper {
namespace {

// One operand's knobs. A group's threads stand in rows of MDIMC along m and columns of NDIMC along n; each has a block
// of neighbouring results.
struct OperandKnobs {
  const char* tile;     // elements of a group's tile
  const char* threads;  // along it
  const char* vector;   // elements of an access
  const char* shared;   // 1: by way of shared memory, where
  const char* copying;  // so many threads bring it along the tile
};
constexpr OperandKnobs kA = {"MWG", "MDIMC", "VWM", "SA", "MDIMA"};
constexpr OperandKnobs kB = {"NWG", "NDIMC", "VWN", "SB", "NDIMB"};
constexpr const char* kStep = "KWG";  // of the reduction, which shared memory holds
constexpr int64_t kUsualSide = 4096;

constexpr double kLanes = 32, kTurnBytes = 128, kWord = 4;
constexpr double kWidest = 4;          // words of an access
constexpr double kCacheLatency = 200;  // until what no group asked for before is there, in cycles
constexpr double kSharedLatency = 25;
constexpr double kSchedulers = 4;          // of a unit, each with warps of its own
constexpr double kUnrolled = 2;            // steps of the reduction, whose operands are asked for together
constexpr double kDirectInstructions = 3;  // of an access to memory, with an address of 64 bits; shared memory's is one
constexpr double kLoopInstructions = 2;    // of a step of the reduction
constexpr double kCopyInstructions = 4;    // of an access that brings an operand to shared memory
constexpr double kStepInstructions = 10;   // and of all of these together
constexpr double kResultInstructions = 3;  // of each result
constexpr double kOtherRegisters = 26, kDirectRegisters = 8, kSpareRegisters = 14;

double Value(const Config& c, const char* knob) { return static_cast<double>(c[knob]); }

struct Operand {
  double tile, threads, each, words, copying;
  bool shared;
  Operand(const Config& c, const OperandKnobs& k)
      : tile(Value(c, k.tile)),
        threads(Value(c, k.threads)),
        each(tile / threads),
        words(std::min(kWidest, Value(c, k.vector))),
        copying(Value(c, k.copying)),
        shared(c[k.shared] != 0) {}

  // Words of an access by which a thread reads its neighbouring places: in shared memory, compilers join narrow ones.
  double read_words() const { return shared ? std::min(kWidest, each) : words; }
  double accesses() const { return each / read_words(); }  // of a thread, for a step of the reduction
  // Turns for a warp's, so many of whose lanes read different places.
  double turns(double lanes) const { return accesses() * BankTurns(read_words(), lanes, each); }
  // What a thread of so many does to bring its part for `step` steps: a block of neighbours in each of some of them.
  double copies(double step, double all_threads) const { return tile * step / all_threads / words; }
  // Of one such access by a warp: from memory by way of the unit's cache, line by line, and to shared memory, where
  // threads that bring other steps of the reduction meet in the same banks.
  double copy_turns() const {
    const double block = tile / copying;
    const double banks =
        kLanes / static_cast<double>(std::gcd(static_cast<int64_t>(block), static_cast<int64_t>(kLanes)));
    return std::max(words, kLanes / std::min(banks, copying)) +
           std::max(words, std::min(kLanes, copying) * block / kLanes * std::ceil(kLanes / copying));
  }
};

GpuFootprint FootprintOf(const Config& c, double m, double n, double k, const GpuTarget& t) {
  const Operand a(c, kA), b(c, kB);
  const double step = Value(c, kStep), threads = a.threads * b.threads, steps = std::ceil(k / step);
  const double results = a.each * b.each, held = results + a.each + b.each;
  GpuFootprint f;
  f.group_threads = threads;
  f.groups = std::ceil(m / a.tile) * std::ceil(n / b.tile);
  f.flops = 2 * m * n * k;
  f.padded_flops = 2 * f.groups * a.tile * b.tile * steps * step;
  f.compulsory_bytes = kWord * (m * k + k * n + 2 * m * n);
  f.vector_lanes = std::min(a.words, b.words);
  f.accumulators = results;
  f.reduction = k;
  const double most = static_cast<double>(MostRegisters(c["MDIMC"] * c["NDIMC"]));
  f.registers = std::min(most, kOtherRegisters + 1.05 * held + kDirectRegisters * (2 - a.shared - b.shared));
  const double spilled = std::max(0.0, held + kSpareRegisters - most);
  f.shared_bytes = kWord * step * (a.shared * a.tile + b.shared * b.tile);
  f.in_flight_bytes = kWord * kWidest * kWidest;

  const double warps = f.groups * std::ceil(threads / kLanes);
  double turns = k * (a.turns(std::min(a.threads, kLanes)) + b.turns(std::max(1.0, kLanes / a.threads)) + 2 * spilled);
  f.instructions = k * (kLoopInstructions + 2 * spilled) + steps * kStepInstructions + results * kResultInstructions;
  for (const Operand* o : {&a, &b}) {
    f.instructions += k * o->accesses() * (o->shared ? 1 : kDirectInstructions);
    if (!o->shared) continue;
    f.instructions += kCopyInstructions * steps * o->copies(step, threads);
    turns += steps * o->copies(step, threads) * o->copy_turns();
  }
  f.instructions *= f.groups * threads;
  f.shared_traffic = kTurnBytes * warps * turns;

  const TiledProduct product = {1, std::ceil(m / a.tile), std::ceil(n / b.tile), kWord * a.tile * k,
                                kWord * b.tile * k};
  f.memory_traffic = OperandTraffic(product, f, t) + 2 * kWord * m * n;
  f.cache_traffic = kWord * f.groups * (a.tile + b.tile) * k + 2 * kWord * m * n;
  // Each step of the reduction is new to a unit's own cache; a group's other warps have work meanwhile.
  const double rounds = k / kUnrolled, group_warps = std::ceil(threads / kLanes);
  const double step_cycles = kUnrolled * results * threads / t.unit_fmas;
  const double hidden = step_cycles * (1 - std::min(1.0, kSchedulers / group_warps));
  f.wait_cycles = rounds * std::max(0.0, (2 - a.shared - b.shared) * kCacheLatency - hidden);
  if (a.shared || b.shared) {
    f.barriers = 2 * steps;
    f.round_trips = steps * (a.shared + b.shared);
    f.wait_cycles += rounds * std::max(0.0, kSharedLatency - hidden);
  }
  return f;
}

}  // namespace

absl::StatusOr<MeasuredFootprint> XgemmFootprints(const MeasuredSpace& space) {
  if (space.kernel != "Xgemm")
    return absl::InvalidArgumentError(
        absl::StrCat("space '", space.name, "' is of kernel '", space.kernel, "', not Xgemm"));
  std::vector<const char*> needed = {kStep};
  for (const OperandKnobs& k : {kA, kB})
    needed.insert(needed.end(), {k.tile, k.threads, k.vector, k.shared, k.copying});
  for (const char* knob : needed) {
    const auto found = std::ranges::find(space.knobs, knob, &Knob::name);
    const bool positive = found != space.knobs.end() &&
                          std::ranges::all_of(found->values, [&](int64_t v) { return v >= (knob[0] == 'S' ? 0 : 1); });
    if (!positive)
      return absl::InvalidArgumentError(absl::StrCat("space '", space.name, "' lacks numbers of knob ", knob));
  }
  // Some drivers name a chip where the file's name tells the board.
  absl::StatusOr<const KnownGpu*> gpu = FindKnownGpu(space.device);
  if (!gpu.ok()) gpu = FindKnownGpu(space.name);
  if (!gpu.ok()) return FindKnownGpu(space.device).status();
  const auto side = [&](size_t i) {
    return static_cast<double>(i < space.problem_size.size() ? space.problem_size[i] : kUsualSide);
  };
  const Target target = TargetOf(**gpu);
  return MeasuredFootprint{target, [target, m = side(0), n = side(1), k = side(2)](const Config& c) {
                             return FootprintOf(c, m, n, k, *target.gpu());
                           }};
}

}  // namespace temper
