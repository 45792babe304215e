// What the fault tests share: a real server over a database in a folder of the test's, fake workers, jobs of operators
// by themselves, and the promises, checked on what the store has in the end.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "base/temporary_directory.h"
#include "client/tuner_client.h"
#include "storage/store.h"
#include "tests/chaos/fake_worker.h"
#include "tests/chaos/process.h"

namespace temper {

inline constexpr char kKey[] = "fake-device";

// TEMPER_SOAK=1: the full figures of the promises.
bool Soaking();

// For what should take a second at most; with leases of a minute, several of those.
inline const absl::Duration kPatience = Soaking() ? absl::Minutes(5) : absl::Seconds(60);

// Until `holds`, looking every few milliseconds; false after `patience`.
template <typename Condition>
bool Eventually(Condition holds, absl::Duration patience = kPatience) {
  for (const absl::Time give_up = absl::Now() + patience; absl::Now() < give_up;) {
    if (holds()) return true;
    absl::SleepFor(absl::Milliseconds(5));
  }
  return holds();
}

class FleetTest : public testing::Test {
 protected:
  void SetUp() override;

  std::string Path(const std::string& name) const { return dir_.path() + "/" + name; }
  // The server, over the database of this test; again at the same address.
  void StartServer(std::vector<std::string> environment = {});
  std::unique_ptr<TunerClient> Client(absl::Duration call_timeout = kPatience) const;
  std::unique_ptr<FakeWorker> Worker(const std::string& name, absl::Duration trial = absl::Milliseconds(1));

  // Small matrix products by themselves, searched at random. Each call's are others, of which nothing is known yet.
  v1::SubmitJobRequest OperatorsJob(int operators, int trials_each);
  v1::SubmitJobRequest ModelJob(int trials);
  int64_t Submit(const v1::SubmitJobRequest& request);
  // The state in which the job ended, or that it is in when patience ends.
  std::string AwaitEnd(int64_t job);

  // For messages: the jobs and devices as the server tells them.
  std::string Situation() const;
  // Each by its number: P1 nothing acknowledged is lost, P2 all jobs are final, P3 one record an execution. The server
  // is not to run. `late`: workers may have stood still until their job was forgotten, and their results, which others
  // had measured again meanwhile, were acknowledged so that they let go of them.
  void ExpectPromises(bool late = false);

  TemporaryDirectory dir_;
  ServerProcessOptions options_;
  ServerProcess server_;
  std::unique_ptr<Ledger> ledger_;
  std::atomic<int> operators_ = 0;  // that jobs were made of
};

}  // namespace temper
