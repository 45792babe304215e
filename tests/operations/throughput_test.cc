#include "tuner_server/operations/throughput.h"

#include <gtest/gtest.h>

namespace temper {
namespace {

const absl::Time kStart = absl::FromUnixSeconds(1'700'000'040);  // a minute begins

TEST(Throughput, CountsByMinutes) {
  Throughput throughput;
  throughput.Add(kStart, 3, 1);
  throughput.Add(kStart + absl::Seconds(59), 2, 0);
  throughput.Add(kStart + absl::Seconds(60), 0, 0);  // nothing
  throughput.Add(kStart + absl::Minutes(5), 1, 1);
  throughput.Add(kStart, 1, 0);  // the clock was set back
  const auto minutes = throughput.Latest(kStart + absl::Minutes(5), 60);
  ASSERT_EQ(minutes.size(), 2u);
  EXPECT_EQ(minutes[0].start_unix_s, absl::ToUnixSeconds(kStart));
  EXPECT_EQ(minutes[0].measured, 5);
  EXPECT_EQ(minutes[0].failed, 1);
  EXPECT_EQ(minutes[1].measured, 2);
  EXPECT_EQ(throughput.Latest(kStart + absl::Minutes(5), 5).size(), 1u);
  EXPECT_EQ(throughput.Latest(kStart + absl::Minutes(5), 6).size(), 2u);
}

TEST(Throughput, KeepsADay) {
  Throughput throughput;
  for (int64_t i = 0; i < 2 * Throughput::kMinutes; ++i) throughput.Add(kStart + absl::Minutes(i), 1, 0);
  EXPECT_EQ(throughput.Latest(kStart + absl::Minutes(2 * Throughput::kMinutes), 10 * Throughput::kMinutes).size(),
            static_cast<size_t>(Throughput::kMinutes));
}

}  // namespace
}  // namespace temper
