// Faults of the disk and deaths of the process, at any call: what was acknowledged is there afterwards, and what was
// asked for is there as a whole or not at all.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <map>
#include <set>
#include <vector>

#include "gmock/gmock.h"
#include "storage/sqlite/open.h"
#include "tests/storage/fault_vfs.h"
#include "tests/storage/files.h"
#include "tests/storage/random.h"

namespace temper {
namespace {

using testing::HasSubstr;

// A client that writes at random, and remembers what it asked for and what it was told.
class Client {
 public:
  explicit Client(uint64_t seed) : rng_(seed) {}

  absl::Status Step(Store& store) {
    Operation& operation = operations_.emplace_back(jobs_.empty() || rng_.Below(8) == 0 ? NewJob() : Next());
    const absl::Status status = Do(store, operation);
    operation.acknowledged = status.ok();
    if (operation.creates && !status.ok()) jobs_.pop_back();
    ++answered_;
    return status;
  }
  size_t answered() const { return answered_; }  // operations; from any thread

  // `store` came back after a fault, when the first `answered` operations had been answered.
  void Check(Store& store, size_t answered) const {
    CheckRecords(store, answered);
    CheckJobs(store, answered);
    CheckLeases(store, answered);
    CheckBest(store);
  }

 private:
  struct Operation {
    std::vector<Record> records;  // told from each other by their candidates
    std::vector<LeaseRow> granted;
    std::vector<int64_t> closed;
    JobRow job;  // id 0: none is changed
    bool creates = false;
    bool acknowledged = false;
  };

  Operation NewJob() {
    Operation operation;
    operation.creates = true;
    operation.job.id = static_cast<int64_t>(jobs_.size()) + 1;
    operation.job.request = std::string(rng_.Below(9000), 'r');
    jobs_.push_back(operation.job);
    return operation;
  }

  Operation Next() {
    Operation operation;
    JobRow& job = jobs_[rng_.Below(jobs_.size())];
    if (rng_.Below(6) == 0) {
      ++job.trials;
      if (rng_.Below(4) == 0) job.state = "done";
      operation.job = job;
      return operation;
    }
    for (int64_t n = rng_.Below(5); n >= 0; --n) {
      Record& r = operation.records.emplace_back(RandomRecord(rng_));
      r.candidate = ++last_candidate_;
      r.attempt = 1;
      r.job = job.id;
      r.costs_s.resize(r.costs_s.size() + rng_.Below(200), 1e-6);  // so that the log grows long enough to be emptied
    }
    for (int64_t n = rng_.Below(3); n > 0; --n) {
      operation.granted.push_back({++last_lease_, "instance", job.id, std::string(rng_.Below(50), 'w'), 1});
      if (rng_.Below(2) == 0) operation.closed.push_back(1 + rng_.Below(last_lease_));
    }
    return operation;
  }

  static absl::Status Do(Store& store, const Operation& operation) {
    if (operation.creates) return store.CreateJob(operation.job).status();
    if (operation.job.id != 0) return store.UpdateJob(operation.job);
    return store.Commit({operation.records, operation.granted, operation.closed}).status();
  }

  // Of operation i, when the first `answered` had been answered: whether it has to be there, and whether it may be.
  bool Must(size_t i, size_t answered) const { return i < answered && operations_[i].acknowledged; }
  bool May(size_t i, size_t answered) const { return i <= answered; }

  void CheckRecords(Store& store, size_t answered) const {
    std::map<int64_t, Record> kept;
    for (Record& r : All(store)) {
      r.id = 0;
      const bool first = kept.emplace(r.candidate, r).second;
      EXPECT_TRUE(first) << "candidate " << r.candidate << " has two records";
    }
    size_t explained = 0;
    for (size_t i = 0; i < operations_.size(); ++i) {
      const std::vector<Record>& records = operations_[i].records;
      size_t found = 0;
      for (const Record& r : records) {
        const auto same = kept.find(r.candidate);
        if (same == kept.end()) continue;
        ++found;
        EXPECT_EQ(Line(same->second), Line(r));
      }
      EXPECT_TRUE(!Must(i, answered) || found == records.size()) << "acknowledged and lost: operation " << i;
      EXPECT_TRUE(May(i, answered) || found == 0) << "from the future: operation " << i;
      EXPECT_TRUE(found == 0 || found == records.size()) << "half there: operation " << i;
      explained += found;
    }
    EXPECT_EQ(explained, kept.size()) << "records that nobody asked for";
  }

  void CheckJobs(Store& store, size_t answered) const {
    for (const JobRow& job : jobs_) {
      std::optional<JobRow> least;
      int64_t most_trials = -1;
      for (size_t i = 0; i < operations_.size(); ++i) {
        const JobRow& row = operations_[i].job;
        if (row.id != job.id) continue;
        if (Must(i, answered)) least = row;
        if (May(i, answered)) most_trials = row.trials;
      }
      const auto kept = store.GetJob(job.id);
      if (!kept.ok()) {
        EXPECT_TRUE(absl::IsNotFound(kept.status())) << kept.status();
        EXPECT_FALSE(least.has_value()) << "acknowledged and lost: job " << job.id;
        continue;
      }
      EXPECT_LE(kept->trials, most_trials);
      EXPECT_GE(kept->trials, least.has_value() ? least->trials : 0) << "job " << job.id;
      EXPECT_TRUE(kept->request == (IsFinalJobState(kept->state) ? "" : job.request)) << "job " << job.id;
    }
  }

  void CheckLeases(Store& store, size_t answered) const {
    std::set<int64_t> open, sure, possible;
    const std::vector<LeaseRow> leases = *store.Leases();
    for (const LeaseRow& lease : leases) {
      open.insert(lease.id);
      EXPECT_FALSE(IsFinalJobState(store.GetJob(lease.job)->state)) << "a lease of a job that is over";
    }
    for (size_t i = 0; i < operations_.size() && May(i, answered); ++i) {
      const Operation& operation = operations_[i];
      for (const LeaseRow& lease : operation.granted) {
        const auto job = store.GetJob(lease.job);
        possible.insert(lease.id);
        if (Must(i, answered) && job.ok() && !IsFinalJobState(job->state)) sure.insert(lease.id);
      }
      for (const int64_t id : operation.closed) sure.erase(id);
      for (const int64_t id : operation.closed) {
        if (Must(i, answered)) possible.erase(id);
      }
    }
    EXPECT_TRUE(std::includes(open.begin(), open.end(), sure.begin(), sure.end()));
    EXPECT_TRUE(std::includes(possible.begin(), possible.end(), open.begin(), open.end()));
  }

  // The table of bests says of the records that are there what a search from end to end says.
  static void CheckBest(Store& store) {
    const std::unique_ptr<Store> simple = *OpenStore("memory:");
    ASSERT_TRUE(simple->Append(All(store)).ok());
    EXPECT_EQ(Lines(AllBest(store)), Lines(AllBest(*simple)));
  }

  Rng rng_;
  std::vector<JobRow> jobs_;
  int64_t last_candidate_ = 0, last_lease_ = 0;
  std::vector<Operation> operations_;
  std::atomic<size_t> answered_ = 0;
};

constexpr int kSteps = 120;

// Opens the file, looks at every page of it, and has `client` check what it holds.
void CheckFile(const std::string& path, const Client& client, size_t answered) {
  {
    const auto store = OpenStore(path);
    ASSERT_TRUE(store.ok()) << store.status();
    client.Check(**store, answered);
  }
  const auto reader = OpenReader(path, Access::kReadOnly);
  ASSERT_TRUE(reader.ok()) << reader.status();
  const absl::Status sound = CheckReadable(path, **reader, CheckDepth::kWhole);
  EXPECT_TRUE(sound.ok()) << sound;
}

void CheckImage(const FaultVfs::Image& image, const Client& client, size_t answered) {
  const TempFolder folder;
  for (const auto& [name, content] : image) Overwrite(folder.File(name), content);
  CheckFile(folder.File("records.db"), client, answered);
}

// Row 3 of the matrix.
TEST(PowerLoss, LosesNothingThatWasAcknowledged) {
  size_t losses = 0, emptied_logs = 0;
  for (uint64_t seed = 0; seed < 16; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const TempFolder folder;
    const std::string path = folder.File("records.db");
    Client client(seed);
    std::vector<std::pair<size_t, FaultVfs::Image>> images;
    {
      FaultVfs disk(seed);
      disk.LosePowerNowAndThen(
          400, [&](FaultVfs::Image image) { images.emplace_back(client.answered(), std::move(image)); });
      auto store = OpenStore(path);
      ASSERT_TRUE(store.ok()) << store.status();
      for (int i = 0; i < kSteps; ++i) ASSERT_TRUE(client.Step(**store).ok());
      emptied_logs += std::filesystem::file_size(path) > 100'000;
      images.emplace_back(client.answered(), disk.LosePower());
    }
    for (const auto& [answered, image] : images) CheckImage(image, client, answered);
    losses += images.size();
  }
  EXPECT_GT(losses, 40u) << "else this proves little";
  EXPECT_GT(emptied_logs, 8u) << "the log has to be emptied under way, or only half of the writes were tried";
}

// Row 2: killed before a commit, after it, before its acknowledgement: at any call.
TEST(Kill, AtAnyCallLosesNothingThatWasAcknowledged) {
  for (uint64_t seed = 0; seed < 24; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const TempFolder folder;
    const std::string path = folder.File("records.db");
    int acknowledgements[2];
    ASSERT_EQ(pipe(acknowledgements), 0);
    const int died = InChild([&] {
      FaultVfs disk(seed);
      disk.KillAt(1 + Rng(seed).Below(1500));
      auto store = OpenStore(path);
      Client client(seed);
      for (int i = 0; store.ok() && i < 10 * kSteps; ++i) {
        if (!client.Step(**store).ok() || write(acknowledgements[1], "x", 1) != 1) return 1;
      }
      return 2;
    });
    EXPECT_EQ(died, 128 + SIGKILL);
    close(acknowledgements[1]);
    size_t answered = 0;
    for (char byte; read(acknowledgements[0], &byte, 1) == 1;) ++answered;
    close(acknowledgements[0]);
    // The same client again, as far as the one that died may have come.
    Client client(seed);
    const std::unique_ptr<Store> ideal = *OpenStore("memory:");
    for (size_t i = 0; i <= answered; ++i) ASSERT_TRUE(client.Step(*ideal).ok());
    CheckFile(path, client, answered);
  }
}

// Row 27: one call fails, the nth of its kind, and the next would not.
TEST(BrokenDisk, IsNeverWrittenAgainAndLosesNothingThatWasAcknowledged) {
  const std::pair<DiskCall, std::vector<int64_t>> faults[] = {
      {DiskCall::kWrite, {1, 2, 3, 5, 9, 14, 20, 33, 54, 88, 143, 300, 600, 1000, 1300}},
      {DiskCall::kSync, {1, 2, 3, 4, 5, 6, 8, 13, 34, 55, 80, 100}},
      {DiskCall::kTruncate, {1}},
      {DiskCall::kRead, {1, 2, 3, 4, 5, 8, 13}}};
  size_t broken_under_way = 0;
  for (const auto& [call, counts] : faults) {
    for (const int64_t nth : counts) {
      SCOPED_TRACE(testing::Message() << "call " << static_cast<int>(call) << " number " << nth);
      const TempFolder folder;
      const std::string path = folder.File("records.db");
      Client client(nth);
      FaultVfs::Image image;
      {
        FaultVfs disk(nth);
        disk.Fail(call, nth, EIO);
        auto store = OpenStore(path);
        absl::Status status = store.status();
        for (int i = 0; status.ok() && i < kSteps; ++i) status = client.Step(**store);
        if (disk.Failed() && !status.ok()) {
          EXPECT_TRUE(absl::IsDataLoss(status)) << status;
          EXPECT_THAT(std::string(status.message()), testing::AllOf(HasSubstr(path), testing::Not(HasSubstr("\n"))));
        } else {
          EXPECT_TRUE(status.ok()) << status;
        }
        if (store.ok() && absl::IsDataLoss(status)) {
          ++broken_under_way;
          for (int i = 0; i < 5; ++i)
            EXPECT_EQ(client.Step(**store), status) << "for good, though the disk works again";
        }
        image = disk.LosePower();
      }
      if (image.contains("records.db")) CheckImage(image, client, client.answered());
      CheckFile(path, client, client.answered());
    }
  }
  EXPECT_GT(broken_under_way, 10u);
}

TEST(BrokenDisk, IsToldToWhoReads) {
  const TempFolder folder;
  const std::string path = folder.File("records.db");
  FaultVfs disk(1);
  const auto store = OpenStore(path);
  ASSERT_TRUE(store.ok());
  ASSERT_TRUE((*store)->Append(std::vector<Record>(50, GoodRecord())).ok());
  disk.Fail(DiskCall::kRead, 1, EIO);
  const absl::Status read = (*store)->Scan({}, [](const Record&) {});
  EXPECT_TRUE(absl::IsDataLoss(read)) << read;
  EXPECT_EQ(All(**store).size(), 50u);
  EXPECT_EQ((*store)->Health(), read);
  EXPECT_EQ((*store)->Append(std::vector<Record>(1, GoodRecord())).status(), read) << "what is not sound takes nothing";
}

// Row 26: the disk is full for a while.
TEST(FullDisk, RefusesThenGoesOnAndLosesNothingThatWasAcknowledged) {
  size_t refused = 0;
  for (uint64_t seed = 0; seed < 12; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const TempFolder folder;
    const std::string path = folder.File("records.db");
    Client client(seed);
    FaultVfs::Image image;
    {
      FaultVfs disk(seed);
      auto store = OpenStore(path);
      ASSERT_TRUE(store.ok()) << store.status();
      disk.Fail(DiskCall::kWrite, 10 + Rng(seed).Below(1000), ENOSPC, 40);
      for (int i = 0; i < kSteps; ++i) {
        const absl::Status status = client.Step(**store);
        EXPECT_TRUE(status.ok() || absl::IsResourceExhausted(status)) << status;
        refused += !status.ok();
      }
      ASSERT_TRUE(disk.Failed());
      EXPECT_TRUE(client.Step(**store).ok()) << "there is room again";
      image = disk.LosePower();
    }
    CheckImage(image, client, client.answered());
    CheckFile(path, client, client.answered());
  }
  EXPECT_GT(refused, 20u);
}

}  // namespace
}  // namespace temper
