// One device at work: its lock, its sandbox, its results, and its conversation with the server. A worker has one for
// each of its devices.
#pragma once

#include <memory>
#include <string>

#include "measure_worker/backend.h"
#include "measure_worker/sandbox/confinement.h"
#include "measure_worker/service/server_link.h"

namespace temper::worker {

struct StationOptions {
  std::string key;
  DeviceSpec device;
  std::string target = "host";
  std::string spool;  // a folder; empty: the default one
  bool shares_server_cores = false;
  std::string hint;  // of AgentOptions
};

class Station {
 public:
  // kInvalidArgument, kFailedPrecondition: the target does not run here, another worker has the spool.
  static absl::StatusOr<std::unique_ptr<Station>> Make(const StationOptions& options, const Confinement& confinement,
                                                       std::unique_ptr<ServerLink> link);
  virtual ~Station() = default;
  virtual void Start() = 0;
  // All as an Agent's.
  virtual void Stop(const std::string& why) = 0;
  virtual bool Lives() = 0;
  virtual std::string Refused() = 0;
};

}  // namespace temper::worker
