#include "tuner_server/operations/operations.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/chores.h"
#include "base/log.h"
#include "tuner_server/operations/http.h"
#include "tuner_server/operations/pages.h"

namespace temper {
namespace {

Chore TakingSnapshots(Snapshots& snapshots, absl::Duration every, Metrics& metrics) {
  const absl::Duration age = snapshots.Age().value_or(absl::InfiniteDuration());
  return {.name = "a snapshot",
          .every = every,
          .run =
              [&snapshots, &metrics] {
                const absl::Status taken = snapshots.Take();
                metrics.Add(Metric::kSnapshots, taken.ok() ? "ok" : "failed");
                return taken;
              },
          // A server that starts anew goes on with the rhythm of the one before.
          .first_in = std::max(every - age, absl::ZeroDuration())};
}

}  // namespace

absl::StatusOr<absl::Duration> ParsePeriod(std::string_view text) {
  absl::Duration period;
  int days = 0;
  const absl::string_view view(text.data(), text.size());
  if (absl::EndsWith(view, "d") && absl::SimpleAtoi(view.substr(0, view.size() - 1), &days)) {
    period = absl::Hours(24) * days;
  } else if (!absl::ParseDuration(view, &period)) {
    period = absl::ZeroDuration();
  }
  if (period >= absl::Seconds(1) && period < absl::InfiniteDuration()) return period;
  return absl::InvalidArgumentError(absl::StrCat("'", view, "' is no period such as 30m, 6h or 7d"));
}

struct Operations::Impl {
  std::optional<Snapshots> snapshots;
  std::optional<ChoreThread> chores;
  std::unique_ptr<HttpListener> http;  // ends first: its pages ask the others
  std::string address;
};

Operations::Operations(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Operations::~Operations() = default;
const std::string& Operations::http_address() const { return impl_->address; }

absl::StatusOr<std::unique_ptr<Operations>> Operations::Start(const OperationsOptions& options,
                                                              const std::string& database, Store& store,
                                                              Metrics& metrics, std::function<FleetStatus()> status,
                                                              const Clock& clock, std::vector<HttpRoute> more) {
  auto impl = std::make_unique<Impl>();
  std::vector<Chore> chores;
  if (!options.snapshots.directory.empty()) {
    TEMPER_ASSIGN_OR_RETURN(impl->snapshots, Snapshots::Open(database, options.snapshots, clock));
    chores.push_back(TakingSnapshots(*impl->snapshots, options.snapshots.every, metrics));
  }
  if (!options.retention.KeepsAll()) {
    chores.push_back({.name = "dropping what is old",
                      .every = absl::Hours(24),
                      .run = [&store, &clock, keep = options.retention] { return DropOld(store, keep, clock.Wall()); },
                      .first_in = absl::Minutes(10)});  // not while everybody comes back after a start
  }
  if (!options.http.empty()) {
    const auto snapshot_age = [impl = impl.get()]() -> std::optional<absl::Duration> {
      return impl->snapshots.has_value() ? impl->snapshots->Age() : std::nullopt;
    };
    std::vector<HttpRoute> routes = OperationsPages({&metrics, std::move(status), snapshot_age});
    std::ranges::move(more, std::back_inserter(routes));
    TEMPER_ASSIGN_OR_RETURN(
        impl->http,
        HttpListener::Start({.listen = options.http, .beyond_loopback = options.beyond_loopback}, std::move(routes)));
    impl->address = impl->http->address();
  }
  if (!chores.empty()) impl->chores.emplace(std::move(chores), clock);
  return std::unique_ptr<Operations>(new Operations(std::move(impl)));
}

}  // namespace temper
