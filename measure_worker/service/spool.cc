#include "measure_worker/service/spool.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/secure_random.h"
#include "base/state_directory.h"

namespace temper::worker {
namespace {

namespace fs = std::filesystem;

constexpr size_t kLengthBytes = 4, kChecksumBytes = 8, kNumberBytes = 8;
constexpr size_t kFrameBytes = kLengthBytes + kChecksumBytes + kNumberBytes;
constexpr int64_t kSyncIntervalNs = 1'000'000'000;
constexpr int64_t kWorthRewriting = 1 << 20;
constexpr size_t kInstanceDigits = 32;
constexpr int kMostSpools = 64;  // of workers of one key on one machine

void PutNumber(std::string& bytes, uint64_t value, size_t size) {
  for (size_t i = 0; i < size; ++i) bytes.push_back(static_cast<char>(value >> (8 * i)));
}

uint64_t GetNumber(std::string_view bytes) {
  uint64_t value = 0;
  for (size_t i = bytes.size(); i-- > 0;) value = value << 8 | static_cast<uint8_t>(bytes[i]);
  return value;
}

std::string FrameOf(int64_t number, const std::string& payload) {
  std::string body;
  PutNumber(body, static_cast<uint64_t>(number), kNumberBytes);
  body += payload;
  std::string frame;
  PutNumber(frame, payload.size(), kLengthBytes);
  PutNumber(frame, StableHash(body), kChecksumBytes);
  return frame + body;
}

std::string ReadAll(int fd) {
  std::string bytes;
  char buffer[1 << 16];
  lseek(fd, 0, SEEK_SET);
  for (ssize_t got; (got = read(fd, buffer, sizeof buffer)) > 0;) bytes.append(buffer, static_cast<size_t>(got));
  return bytes;
}

bool WriteAll(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t put = write(fd, bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(put));
  }
  return true;
}

absl::Status Unusable(const std::string& path) {
  return absl::UnavailableError(absl::StrCat(path, ": ", strerror(errno)));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Spool>> Spool::Open(const std::string& folder, int64_t most_bytes) {
  std::unique_ptr<Spool> spool(new Spool);
  spool->most_bytes_ = most_bytes;
  spool->folder_ = folder;
  const absl::Status opened = spool->OpenFiles();
  if (absl::IsFailedPrecondition(opened)) return opened;
  if (!opened.ok()) {
    spdlog::warn("results that wait to be handed in are kept in memory only: {}", std::string(opened.message()));
    return InMemory();
  }
  spool->ReadResults();
  return spool;
}

std::unique_ptr<Spool> Spool::InMemory() {
  std::unique_ptr<Spool> spool(new Spool);
  spool->instance_ = SecureHex();
  return spool;
}

Spool::~Spool() {
  for (const int fd : {file_, lock_}) {
    if (fd >= 0) close(fd);
  }
}

absl::Status Spool::OpenFiles() {
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) return absl::UnavailableError(absl::StrCat(folder_, ": ", error.message()));
  fs::permissions(folder_, fs::perms::owner_all, error);  // the name is a right
  const std::string lock = folder_ + "/lock";
  lock_ = open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (lock_ < 0) return Unusable(lock);
  if (flock(lock_, LOCK_EX | LOCK_NB) != 0)
    return absl::FailedPreconditionError(absl::StrCat("another worker keeps its results in ", folder_));
  TEMPER_RETURN_IF_ERROR(ReadInstance());
  const std::string results = folder_ + "/results";
  file_ = open(results.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  return file_ < 0 ? Unusable(results) : absl::OkStatus();
}

absl::Status Spool::ReadInstance() {
  const std::string path = folder_ + "/instance", next = folder_ + "/instance.new";
  if (const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC); fd >= 0) {
    instance_ = std::string(absl::StripAsciiWhitespace(ReadAll(fd)));
    close(fd);
    if (instance_.size() == kInstanceDigits && std::all_of(instance_.begin(), instance_.end(), absl::ascii_isxdigit))
      return absl::OkStatus();
  }
  instance_ = SecureHex();
  const int fd = open(next.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  const bool written = fd >= 0 && WriteAll(fd, instance_ + "\n") && fsync(fd) == 0;
  const absl::Status status = written ? absl::OkStatus() : Unusable(next);
  if (fd >= 0) close(fd);
  if (written && rename(next.c_str(), path.c_str()) != 0) return Unusable(path);
  return status;
}

void Spool::ReadResults() {
  const std::string bytes = ReadAll(file_);
  size_t at = 0;
  while (bytes.size() - at >= kFrameBytes) {
    const std::string_view rest = std::string_view(bytes).substr(at);
    const size_t length = GetNumber(rest.substr(0, kLengthBytes));
    if (rest.size() - kFrameBytes < length) break;
    const std::string_view body = rest.substr(kLengthBytes + kChecksumBytes, kNumberBytes + length);
    if (GetNumber(rest.substr(kLengthBytes, kChecksumBytes)) != StableHash(body)) break;
    SpoolEntry entry;
    entry.number = static_cast<int64_t>(GetNumber(body.substr(0, kNumberBytes)));
    if (length == 0) {
      std::erase_if(entries_, [&](const SpoolEntry& e) { return e.number == entry.number; });
    } else if (entry.results.ParseFromArray(body.data() + kNumberBytes, static_cast<int>(length))) {
      if (entry.results.results_size() > 0) entry.lease = entry.results.results(0).lease();
      if (entry.results.models_size() > 0) entry.lease = entry.results.models(0).lease();
      next_ = std::max(next_, entry.number + 1);
      entries_.push_back(std::move(entry));
    }
    at += kFrameBytes + length;
  }
  for (const SpoolEntry& entry : entries_) live_bytes_ += static_cast<int64_t>(entry.results.ByteSizeLong());
  // Without the torn end, and without what is not needed any more.
  if (at > 0 || !bytes.empty()) Rewrite();
  if (!entries_.empty()) spdlog::info("{} leases' results of an earlier life wait to be handed in", entries_.size());
}

int64_t Spool::Add(int64_t lease, const v1::SubmitResultsRequest& results) {
  SpoolEntry entry{next_++, lease, results};
  const std::string payload = results.SerializeAsString();
  live_bytes_ += static_cast<int64_t>(payload.size());
  entries_.push_back(std::move(entry));
  Append(entries_.back().number, payload);
  while (live_bytes_ > most_bytes_ && entries_.size() > 1) {
    LogWarn({.lease = entries_.front().lease}, "the results of lease {} are dropped: too many wait to be handed in",
            entries_.front().lease);
    Remove(entries_.front().number);
  }
  return next_ - 1;
}

void Spool::Remove(int64_t number) {
  const auto found =
      std::find_if(entries_.begin(), entries_.end(), [&](const SpoolEntry& e) { return e.number == number; });
  if (found == entries_.end()) return;
  live_bytes_ -= static_cast<int64_t>(found->results.ByteSizeLong());
  entries_.erase(found);
  if (entries_.empty() || file_bytes_ > 2 * live_bytes_ + kWorthRewriting) {
    Rewrite();
  } else {
    Append(number, "");
  }
}

void Spool::Sync(int64_t now_ns) {
  if (file_ < 0 || !dirty_ || (synced_ns_ != 0 && now_ns - synced_ns_ < kSyncIntervalNs)) return;
  synced_ns_ = now_ns;
  dirty_ = false;
  if (fdatasync(file_) != 0) GiveUpFile("made durable");
}

void Spool::Append(int64_t number, const std::string& payload) {
  if (file_ < 0) return;
  const std::string frame = FrameOf(number, payload);
  file_bytes_ += static_cast<int64_t>(frame.size());
  dirty_ = true;
  if (!WriteAll(file_, frame)) GiveUpFile("written");
}

// The file as it would be had it held only what is here.
void Spool::Rewrite() {
  if (file_ < 0) return;
  if (entries_.empty() && ftruncate(file_, 0) == 0) {
    file_bytes_ = 0;
    return;
  }
  const std::string path = folder_ + "/results", next = folder_ + "/results.new";
  const int fd = open(next.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
  if (fd < 0) return GiveUpFile("written");
  close(file_);
  file_ = fd;
  file_bytes_ = 0;
  for (const SpoolEntry& entry : entries_) Append(entry.number, entry.results.SerializeAsString());
  if (file_ >= 0 && rename(next.c_str(), path.c_str()) != 0) GiveUpFile("written");
}

void Spool::GiveUpFile(const char* what) {
  spdlog::warn("results that wait to be handed in are kept in memory only: they can not be {}: {}", what,
               strerror(errno));
  close(file_);
  file_ = -1;
}

std::string SpoolFolder(const std::string& key) {
  const std::string parent = StateDirectory();
  if (parent.empty()) return "";
  std::string name = key;
  for (char& c : name) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '.' && c != '_' && c != '-') c = '_';
  }
  return absl::StrCat(parent, "/spool-", name);
}

std::unique_ptr<Spool> OpenDefaultSpool(const std::string& key) {
  const std::string folder = SpoolFolder(key);
  for (int i = 1; i <= kMostSpools && !folder.empty(); ++i) {
    auto spool = Spool::Open(i == 1 ? folder : absl::StrCat(folder, "-", i));
    if (spool.ok()) return *std::move(spool);
  }
  spdlog::warn("results that wait to be handed in are kept in memory only: no folder for them; give --spool");
  return Spool::InMemory();
}

}  // namespace temper::worker
