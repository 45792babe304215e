// Results that the server has not acknowledged yet, kept through the worker's own end, and the name under which they
// are handed in. What is lost with the machine's power is measured again; what was acknowledged is gone from here.
//
// The folder holds `instance` (the name), `lock`, and `results`: one frame after another, each a length (4 bytes,
// little-endian), a checksum of what follows (8 bytes), a number (8 bytes) and then either a serialized
// SubmitResultsRequest or nothing, which says that the entry of that number is not needed any more. What does not check
// is the end: a process died while it wrote.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include "base/status.h"
#include "temper/v1/worker.pb.h"

namespace temper::worker {

// One lease's results.
struct SpoolEntry {
  int64_t number = 0;  // in order of time
  int64_t lease = 0;
  v1::SubmitResultsRequest results;
};

// Not thread-safe.
class Spool {
 public:
  static constexpr int64_t kMostBytes = int64_t{64} << 20;

  // In `folder`, which is made if need be. kFailedPrecondition: another worker has it. Where nothing can be written,
  // the spool is in memory, and a warning says so.
  static absl::StatusOr<std::unique_ptr<Spool>> Open(const std::string& folder, int64_t most_bytes = kMostBytes);
  // In memory, under a new name.
  static std::unique_ptr<Spool> InMemory();
  ~Spool();
  Spool(const Spool&) = delete;
  Spool& operator=(const Spool&) = delete;

  const std::string& instance() const { return instance_; }           // 128 random bits, as hex
  const std::deque<SpoolEntry>& entries() const { return entries_; }  // oldest first

  // Keeps results. When there is no room, the oldest go, with a warning. Returns the entry's number.
  int64_t Add(int64_t lease, const v1::SubmitResultsRequest& results);
  // The entry is not needed any more.
  void Remove(int64_t number);
  // Makes what was added durable, at most once a second.
  void Sync(int64_t now_ns);

 private:
  Spool() = default;
  absl::Status OpenFiles();
  absl::Status ReadInstance();
  void ReadResults();
  void Append(int64_t number, const std::string& payload);
  void Rewrite();
  void GiveUpFile(const char* what);

  std::string folder_, instance_;
  std::deque<SpoolEntry> entries_;
  int64_t next_ = 1, most_bytes_ = kMostBytes;
  int64_t live_bytes_ = 0, file_bytes_ = 0;
  int64_t synced_ns_ = 0;
  bool dirty_ = false;
  int lock_ = -1, file_ = -1;  // -1: in memory
};

// Where a worker for `key` keeps its spool when it is not told: below $XDG_STATE_HOME or ~/.local/state; empty if there
// is neither.
std::string SpoolFolder(const std::string& key);
// That folder, or where another worker has it already the first of "-2", "-3" and so on that none has.
std::unique_ptr<Spool> OpenDefaultSpool(const std::string& key);

}  // namespace temper::worker
