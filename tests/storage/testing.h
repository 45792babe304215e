// What the storage tests share: records to start from, and a folder that goes away.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <string>

#include "gtest/gtest.h"
#include "storage/store.h"

namespace temper {

inline Record GoodRecord() {
  Record r;
  r.workload = "(f32[64,64], const f32[64,64]) matmul(0,1) -> f32[64,64]; relu(2) -> f32[64,64]; anchor=0";
  r.anchor = "(f32[64,64], const f32[64,64]) matmul(0,1) -> f32[64,64]";
  r.target = "llvm -mcpu=x86-64-v3 -threads=2";
  r.device_key = "laptop";
  r.fingerprint = "Some CPU, 2 cores";
  r.threads = 2;
  r.template_name = "matmul.packed";
  r.template_version = 1;
  r.config = "mr=6,nr=16";
  r.codegen_id = "1.1.19";
  r.costs_s = {3e-4, 1e-4, 2e-4};
  r.tuner = "xgb";
  r.job = 7;
  r.time_unix_ms = 1700000000123;
  return r;
}

inline Record WithCosts(Record r, std::vector<double> costs_s) {
  r.costs_s = std::move(costs_s);
  return r;
}

inline Record Failure(Outcome outcome, const std::string& error) {
  Record r = GoodRecord();
  r.outcome = outcome;
  r.error = error;
  r.costs_s.clear();
  return r;
}

// The query that a build on GoodRecord's own device asks.
inline BestQuery QueryFor(const Record& r) {
  return {r.workload, r.anchor, r.target, r.device_key, r.fingerprint, r.threads, {}};
}

inline std::vector<Record> All(Store& store, const RecordFilter& filter = {}) {
  std::vector<Record> found;
  EXPECT_TRUE(store.Scan(filter, [&](const Record& r) { found.push_back(r); }).ok());
  return found;
}

inline std::vector<Record> AllBest(Store& store, const RecordFilter& filter = {}) {
  std::vector<Record> found;
  EXPECT_TRUE(store.ScanBest(filter, [&](const Record& r) { found.push_back(r); }).ok());
  return found;
}

// Every field, in one comparable text.
inline std::string Line(const Record& r) { return ToJsonLine(r); }

class TempFolder {
 public:
  TempFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "temper-storage-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string File(const std::string& name) const { return (std::filesystem::path(path_) / name).string(); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace temper
