// Which jobs run. Only so many do at once: each holds what it learned, and searches on the server's cores.
// Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "tuner_server/service/fair_share.h"

namespace temper {

class JobPlaces {
 public:
  explicit JobPlaces(int most) : places_(static_cast<size_t>(most)) {}

  // Whether the job has a place. Otherwise it waits for one until it is given one or leaves.
  bool Ask(int64_t job, const std::string& owner, int priority);
  void SetPriority(int64_t job, int priority);  // of a job that waits
  // The job needs no place, or none any more. True: another job has one now.
  bool Leave(int64_t job);

 private:
  struct Wish {
    std::string owner;
    int priority = 0;
  };
  // Free places go to the jobs of the highest priority, among these to the owner who has the fewest, and then to the
  // oldest job. True: one was given.
  bool Give();

  FairShares places_;                       // by owner
  std::map<int64_t, std::string> running_;  // job: owner
  std::map<int64_t, Wish> waiting_;         // by job
};

}  // namespace temper
