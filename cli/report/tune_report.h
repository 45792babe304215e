// What a job came to, for scripts and for people.
#pragma once

#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/report/progress.h"

namespace temper {

struct TuneReport {
  std::string model, device;
  WatchedJob view;
  double seconds = 0;  // from the start of the command

  nlohmann::ordered_json Json() const;
  // One line each: the result, trials by operator, the job's warnings.
  void Print(std::FILE* out, bool revalidated) const;
};

}  // namespace temper
