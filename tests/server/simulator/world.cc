#include "tests/server/simulator/world.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/hash.h"

namespace temper::simulator {
namespace {

constexpr size_t kNotesKept = 40;

}  // namespace

void World::After(absl::Duration delay, std::function<void()> event) {
  events_.push({now_ + delay, sequence_++, std::move(event)});
}

bool World::Step() {
  if (events_.empty()) return false;
  const Event next = events_.top();
  events_.pop();
  now_ = next.at;
  ++steps_;
  next.run();
  return true;
}

void World::Note(std::string_view line) {
  hash_ = (hash_ ^ StableHash(line) ^ static_cast<uint64_t>(absl::ToInt64Nanoseconds(now_))) * 0x9e3779b97f4a7c15ull;
  notes_.push_back(absl::StrFormat("%12.6f  ", absl::ToDoubleSeconds(now_ - absl::Hours(1))));
  notes_.back().append(line);
  if (notes_.size() > kNotesKept) notes_.pop_front();
}

std::string World::LastNotes() const { return absl::StrJoin(notes_, "\n"); }

}  // namespace temper::simulator
