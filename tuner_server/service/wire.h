// The server's own values to and from the wire; those that clients share are in proto/convert.h.
#pragma once

#include "proto/convert.h"
#include "temper/v1/worker.pb.h"
#include "tuner_server/dispatch/dispatcher.h"
#include "tuner_server/service/job_feed.h"
#include "tuner_server/tuning/job_loop.h"

namespace temper {

WorkerInfo FromWire(const v1::RegisterRequest& request);
v1::RegisterRequest ToWire(const WorkerInfo& worker);
ItemResult ItemResultOf(const v1::CandidateResult& result);
ItemResult ItemResultOf(const v1::ModelResult& result);
v1::Lease ToWire(const Dispatcher::Grant& grant);
v1::SyncReply ToWire(const Dispatcher::SyncOutcome& outcome);
v1::Device ToWire(const Dispatcher::SessionView& view, absl::Duration now);
v1::JobEvent ToWire(const JobNews& news);
// The id is the store's to give.
absl::StatusOr<JobSpec> FromWire(const v1::SubmitJobRequest& request);
// The last word on a job of which only the row is left.
v1::JobEvent FinalEvent(const JobRow& row);

}  // namespace temper
