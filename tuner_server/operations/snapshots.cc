#include "tuner_server/operations/snapshots.h"

#include <algorithm>
#include <filesystem>
#include <ranges>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "storage/store.h"

namespace temper {
namespace {

namespace fs = std::filesystem;

// STEM-20261122T094700Z.db: names in the order of their times.
constexpr char kTimeFormat[] = "%E4Y%m%dT%H%M%SZ";
constexpr char kSuffix[] = ".db";

std::optional<absl::Time> TimeOf(const std::string& name, const std::string& stem) {
  if (!absl::StartsWith(name, stem + "-") || !absl::EndsWith(name, kSuffix)) return std::nullopt;
  const size_t begin = stem.size() + 1, suffix = sizeof kSuffix - 1;
  if (name.size() < begin + suffix) return std::nullopt;
  absl::Time time;
  const std::string text = name.substr(begin, name.size() - begin - suffix);
  if (!absl::ParseTime(kTimeFormat, text, absl::UTCTimeZone(), &time, nullptr)) return std::nullopt;
  return time;
}

}  // namespace

Snapshots::Snapshots(std::string database, SnapshotOptions options, const Clock& clock)
    : database_(std::move(database)),
      stem_(fs::path(database_).stem().string()),
      options_(std::move(options)),
      clock_(&clock) {}

absl::StatusOr<Snapshots> Snapshots::Open(std::string database, SnapshotOptions options, const Clock& clock) {
  std::error_code error;
  if (!fs::is_directory(options.directory, error)) {
    return absl::InvalidArgumentError(absl::StrCat("--snapshot-dir ", options.directory, ": there is no such folder"));
  }
  if (database == "memory:") return absl::InvalidArgumentError("--snapshot-dir wants a database in a file");
  if (options.keep < 1) return absl::InvalidArgumentError("--snapshot-keep takes a number from 1 on");
  if (options.every < absl::Seconds(1)) return absl::InvalidArgumentError("--snapshot-every takes a second or more");
  return Snapshots(std::move(database), std::move(options), clock);
}

std::string Snapshots::PathAt(absl::Time time) const {
  const std::string text = absl::FormatTime(kTimeFormat, time, absl::UTCTimeZone());
  return (fs::path(options_.directory) / absl::StrCat(stem_, "-", text, kSuffix)).string();
}

std::vector<std::string> Snapshots::Files() const {
  std::vector<std::string> files;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(options_.directory, error)) {
    if (TimeOf(entry.path().filename().string(), stem_).has_value()) files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::optional<absl::Time> Snapshots::Newest() const {
  // What is dated later than now was taken while the clock was wrong: it says nothing about those since.
  const std::string now = PathAt(clock_->Wall());
  for (const std::string& file : Files() | std::views::reverse) {
    if (file <= now) return TimeOf(fs::path(file).filename().string(), stem_);
  }
  return std::nullopt;
}

std::optional<absl::Duration> Snapshots::Age() const {
  const std::optional<absl::Time> newest = Newest();
  if (!newest.has_value()) return std::nullopt;
  return std::max(clock_->Wall() - *newest, absl::ZeroDuration());
}

absl::Status Snapshots::Take() {
  const std::string taken = PathAt(clock_->Wall());
  TEMPER_RETURN_IF_ERROR(SnapshotStore(database_, taken));
  std::vector<std::string> others = Files();
  std::erase(others, taken);  // it stays, however others are dated
  std::error_code error;
  for (size_t i = 0; i + static_cast<size_t>(options_.keep) <= others.size(); ++i) fs::remove(others[i], error);
  return absl::OkStatus();
}

}  // namespace temper
