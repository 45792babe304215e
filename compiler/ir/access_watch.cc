#include "compiler/ir/access_watch.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <tuple>

#include "absl/strings/str_cat.h"

namespace temper::ir {
namespace {

constexpr int64_t kBanks = 32, kBankBytes = 4;

std::string Coordinates(int64_t number, const std::array<int64_t, 3>& extents) {
  return absl::StrCat("(", number % extents[0], ",", number / extents[0] % extents[1], ",",
                      number / extents[0] / extents[1], ")");
}

std::string ElementName(const BufferNode& buffer, int64_t position) {
  std::string indices;
  for (size_t d = buffer.shape.size(); d-- > 0; position /= buffer.shape[d]) {
    indices = absl::StrCat(position % buffer.shape[d], indices.empty() ? "" : ", ", indices);
  }
  return absl::StrCat(buffer.name, "[", indices, "]");
}

const char* Deed(bool one_writes, bool other_writes) {
  return one_writes && other_writes ? "both write" : "one writes and the other reads";
}

}  // namespace

std::string AccessWatch::ThreadName(int64_t thread) const { return Coordinates(thread, launch_.threads); }
std::string AccessWatch::GroupName(int64_t group) const { return Coordinates(group, launch_.groups); }

void AccessWatch::EnterGroup(int64_t group) {
  group_ = group;
  ++phase_;
  for (int array : shared_) elements_[array].clear();
  shared_.clear();
}

absl::Status AccessWatch::GroupRace(const Access& access, int64_t other, bool other_wrote) const {
  return absl::FailedPreconditionError(absl::StrCat("groups ", GroupName(other), " and ", GroupName(group_),
                                                    " race: ", Deed(access.write, other_wrote), " ",
                                                    ElementName(*access.buffer, access.position)));
}

absl::Status AccessWatch::ThreadRace(const Access& access, int64_t other, bool other_wrote) const {
  return absl::FailedPreconditionError(absl::StrCat(
      "threads ", ThreadName(other), " and ", ThreadName(thread_), " of group ", GroupName(group_), " race: ",
      Deed(access.write, other_wrote), " ", ElementName(*access.buffer, access.position), " with no barrier between"));
}

absl::Status AccessWatch::Touch(const Access& access) {
  std::vector<Element>& elements = elements_[access.array];
  const bool shared = access.buffer->scope == Scope::kShared;
  if (elements.empty()) {
    elements.resize(static_cast<size_t>(NumElements(access.buffer->shape)));
    if (shared) shared_.push_back(access.array);
  }
  if (shared && traffic_ != nullptr && access.site != nullptr) {
    const int64_t bytes = SizeOf(access.buffer->dtype);
    requests_.push_back({access.site, access.step, thread_ % warp_width_, access.position * bytes, bytes});
  }
  Element& e = elements[static_cast<size_t>(access.position)];
  if (shared && !access.write && e.writer < 0) {
    return absl::FailedPreconditionError(absl::StrCat("thread ", ThreadName(thread_), " of group ", GroupName(group_),
                                                      " reads ", ElementName(*access.buffer, access.position),
                                                      " of shared memory, which nothing wrote"));
  }
  if (e.writer >= 0 && e.writer_group != group_) return GroupRace(access, e.writer_group, true);
  if (e.written_in == phase_ && e.writer != thread_) return ThreadRace(access, e.writer, true);
  if (e.read_in != phase_) {
    e.read_in = phase_;
    e.readers[0] = e.readers[1] = -1;
  }
  if (access.write) {
    for (int64_t reader_group : e.reader_groups) {
      if (reader_group >= 0 && reader_group != group_) return GroupRace(access, reader_group, false);
    }
    for (int64_t reader : e.readers) {
      if (reader >= 0 && reader != thread_) return ThreadRace(access, reader, false);
    }
    e.writer_group = group_;
    e.writer = thread_;
    e.written_in = phase_;
    return absl::OkStatus();
  }
  e.reader_groups[e.reader_groups[0] < 0 || e.reader_groups[0] == group_ ? 0 : 1] = group_;
  e.readers[e.readers[0] < 0 || e.readers[0] == thread_ ? 0 : 1] = thread_;
  return absl::OkStatus();
}

// What all lanes of a warp ask at one run of a load or store: as many of them together as make 128 bytes.
void AccessWatch::Count(const Request* begin, const Request* end) {
  std::map<int64_t, std::set<int64_t>> elements;  // that each lane asks for
  int64_t widest = kBankBytes;                    // bytes of a lane
  for (const Request* r = begin; r != end; ++r) {
    std::set<int64_t>& own = elements[r->lane];
    own.insert(r->byte);
    widest = std::max(widest, r->bytes * static_cast<int64_t>(own.size()));
  }
  const int64_t together = std::max<int64_t>(1, kBanks * kBankBytes / widest);
  std::map<int64_t, std::set<int64_t>> words;  // asked by each part of the warp
  for (const Request* r = begin; r != end; ++r) {
    for (int64_t byte = r->byte; byte < r->byte + r->bytes; byte += kBankBytes) {
      words[r->lane / together].insert(byte / kBankBytes);
    }
  }
  for (const auto& [part, asked] : words) {
    std::array<int64_t, kBanks> passes = {};
    for (int64_t word : asked) ++passes[static_cast<size_t>(word % kBanks)];
    ++traffic_->requests;
    traffic_->conflicts += *std::ranges::max_element(passes) - 1;
  }
}

void AccessWatch::EndWarp() {
  std::ranges::stable_sort(requests_, [](const Request& a, const Request& b) {
    return a.site == b.site ? a.step < b.step : std::less<>()(a.site, b.site);
  });
  for (size_t i = 0, next = 0; i < requests_.size(); i = next) {
    while (next < requests_.size() && requests_[next].site == requests_[i].site &&
           requests_[next].step == requests_[i].step) {
      ++next;
    }
    Count(&requests_[i], requests_.data() + next);
  }
  requests_.clear();
}

}  // namespace temper::ir
