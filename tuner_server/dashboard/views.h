// What the dashboard tells, as JSON: docs/dashboard.md has every field. All lists are bounded.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "storage/overview.h"
#include "storage/record.h"
#include "tuner_server/dispatch/dispatcher.h"
#include "tuner_server/service/job_feed.h"

namespace temper {

inline constexpr size_t kMostTasks = 200, kMostModelPoints = 256, kMostTaskPoints = 64, kMostFailureGroups = 100;

using Json = nlohmann::ordered_json;

Json JobJson(const JobRow& row);
Json CurveJson(const std::vector<std::pair<int, double>>& curve);  // of JobFeed::Curve
// A job with its tasks and curves. `news`: all of it, while it runs; else the row says what is known.
Json JobDetailJson(const JobRow& row, const std::optional<JobNews>& news, const JobCurve& curve);
Json DeviceJson(const Dispatcher::SessionView& view, absl::Duration now);
Json BestJson(const BestRow& row);
Json ModelJson(const ModelRow& row);
// Grouped by class and cause, the largest group first.
Json FailuresJson(const FailureRows& failures);

}  // namespace temper
