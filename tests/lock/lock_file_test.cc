// The lock's file: what is written is read, and no change of what is pinned goes unseen.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/rng.h"
#include "lock/lock.h"
#include "lock/lock_diff.h"

namespace temper {
namespace {

class LockFileTest : public ::testing::Test {
 protected:
  LockFileTest() : path_(::testing::TempDir() + "/temper_lock_" + std::to_string(getpid())) {}
  void TearDown() override { std::filesystem::remove(path_); }

  std::string Text() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void SetText(const std::string& text) const { std::ofstream(path_, std::ios::binary) << text; }

  std::string path_;
};

Lock Example() {
  Lock lock{"", "net", {}};
  for (const char* target : {"llvm -mcpu=znver4", "llvm -mcpu=haswell"}) {
    LockPins pins;
    pins.target = target;
    pins.model_hash = "0123456789abcdef";
    pins.shapes = {"y=1,2", "x=3"};
    pins.dims = {"n=4", "m=0"};
    pins.values = {"z=true"};
    pins.codegen_id = "5-llvm19";
    pins.tools = "LLVM 19.1.7";
    pins.verdict = "tuned";
    pins.alternatives = {{{"aa", "bb"}, {"cc"}, true}};
    pins.kernels = {{"(f32[4]) relu(0)", 2, "default", 3, "nv=1"}, {"(f32[2]) exp(0)", 1, "default", 3, "nv=2"}};
    LockEvidence evidence;
    evidence.device = "desk";
    evidence.kernels[KernelId("(f32[4]) relu(0)")] = {"exact", "desk", 7, 1.25e-5, true, 0.75, true};
    PutEntry(lock, MakeEntry(pins, evidence));
  }
  return lock;
}

TEST_F(LockFileTest, WhatIsWrittenIsRead) {
  const Lock lock = Example();
  ASSERT_TRUE(WriteLock(lock, path_).ok());
  const std::string text = Text();
  const absl::StatusOr<Lock> read = ReadLock(path_);
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->entries.size(), 2u);
  EXPECT_LT(read->entries[0].pins.target, read->entries[1].pins.target);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(read->entries[i].pins, lock.entries[i].pins);
    EXPECT_TRUE(CheckWhole(*read, read->entries[i]).ok());
    EXPECT_EQ(read->entries[i].evidence.kernels.begin()->second.record, 7);
  }
  EXPECT_TRUE(DiffLocks(lock, *read).empty());
  ASSERT_TRUE(WriteLock(*read, path_).ok());
  EXPECT_EQ(Text(), text);
}

TEST_F(LockFileTest, ADigestIsOfAllThatIsPinned) {
  const LockPins pins = Example().entries[0].pins;
  const auto changed = [&](auto change) {
    LockPins other = pins;
    change(other);
    return DigestOf(other) != DigestOf(pins);
  };
  EXPECT_TRUE(changed([](LockPins& p) { p.target += "x"; }));
  EXPECT_TRUE(changed([](LockPins& p) { p.model_hash += "x"; }));
  EXPECT_TRUE(changed([](LockPins& p) { p.shapes.pop_back(); }));
  EXPECT_TRUE(changed([](LockPins& p) { p.dims.pop_back(); }));
  EXPECT_TRUE(changed([](LockPins& p) { p.values.clear(); }));
  EXPECT_TRUE(changed([](LockPins& p) { p.winograd = "off"; }));
  EXPECT_TRUE(changed([](LockPins& p) { p.tf32 = "on"; }));
  EXPECT_TRUE(changed([](LockPins& p) { p.bf16 = "on"; }));
  EXPECT_TRUE(changed([](LockPins& p) { p.codegen_id += "x"; }));
  EXPECT_TRUE(changed([](LockPins& p) { p.tools += "x"; }));
  EXPECT_TRUE(changed([](LockPins& p) { p.verdict = "default"; }));
  EXPECT_TRUE(changed([](LockPins& p) { p.alternatives[0].taken = false; }));
  EXPECT_TRUE(changed([](LockPins& p) { p.alternatives[0].instead[0] += "x"; }));
  EXPECT_TRUE(changed([](LockPins& p) { ++p.kernels[0].uses; }));
  EXPECT_TRUE(changed([](LockPins& p) { p.kernels[0].template_name += "x"; }));
  EXPECT_TRUE(changed([](LockPins& p) { ++p.kernels[0].template_version; }));
  EXPECT_TRUE(changed([](LockPins& p) { p.kernels[0].config += "x"; }));
  EXPECT_TRUE(changed([](LockPins& p) { p.kernels[0].workload += "x"; }));
}

// Whatever a disk or a hand does to it, the file is refused in one line, or it still pins the same.
TEST_F(LockFileTest, NoDamageChangesWhatIsPinned) {
  const Lock lock = Example();
  ASSERT_TRUE(WriteLock(lock, path_).ok());
  const std::string text = Text();
  Rng rng(1);
  int refused = 0;
  for (int round = 0; round < 600; ++round) {
    std::string damaged = text;
    const size_t at = rng.Below(damaged.size());
    switch (rng.Below(4)) {
      case 0:
        damaged[at] = static_cast<char>(rng.Below(256));
        break;
      case 1:
        damaged.erase(at, 1 + rng.Below(40));
        break;
      case 2:
        damaged.insert(at, damaged.substr(rng.Below(damaged.size()), rng.Below(40)));
        break;
      default:
        damaged.resize(at);
    }
    SetText(damaged);
    const absl::StatusOr<Lock> read = ReadLock(path_);
    if (!read.ok()) {
      ++refused;
      EXPECT_EQ(read.status().message().find('\n'), std::string::npos) << read.status();
      continue;
    }
    for (const LockEntry& entry : read->entries) {
      if (!CheckWhole(*read, entry).ok()) {
        ++refused;
        continue;
      }
      const auto same = std::ranges::find(lock.entries, entry.pins, &LockEntry::pins);
      EXPECT_NE(same, lock.entries.end()) << damaged;
    }
  }
  EXPECT_GT(refused, 300);
}

TEST_F(LockFileTest, AnEntryIsChosenByTargetByDeviceOrAsTheOnlyOne) {
  Lock lock = Example();
  lock.entries[0].evidence.device = "board";
  EXPECT_EQ((*FindEntry(lock, "llvm -mcpu=znver4", ""))->pins.target, "llvm -mcpu=znver4");
  EXPECT_EQ(*FindEntry(lock, "", "board"), &lock.entries[0]);
  lock.entries[1].pins.target = "llvm -mcpu=znver4 -threads=8";
  EXPECT_EQ(*FindEntry(lock, "llvm -mcpu=znver4", ""), &lock.entries[1]) << "of any number of threads";
  EXPECT_EQ(*FindEntry(lock, "llvm -mcpu=znver4 -threads=8", ""), &lock.entries[1]);
  EXPECT_FALSE(FindEntry(lock, "llvm -mcpu=znver4 -threads=2", "").ok());
  for (const auto& [target, device] : {std::pair("llvm", ""), {"", "none"}, {"", ""}}) {
    const absl::Status status = FindEntry(lock, target, device).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
    EXPECT_NE(status.message().find("board"), std::string_view::npos) << "those that there are: " << status;
  }
  lock.entries.pop_back();
  EXPECT_EQ(*FindEntry(lock, "", ""), &lock.entries[0]);
}

}  // namespace
}  // namespace temper
