// Failures of the database in groups of one class and one cause.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "storage/record.h"

namespace temper {

struct FailureGroup {
  Outcome outcome = Outcome::kInfrastructure;
  std::string cause;  // see trial/cause.h
  int count = 0;
  std::map<std::string, int> templates;  // how often each failed so
  std::set<std::string> workloads;
  Record example;  // the latest one
};

class FailureGroups {
 public:
  void Add(const Record& r);  // an ok one counts as an attempt only
  int attempts() const { return attempts_; }
  int failures() const { return failures_; }
  std::vector<FailureGroup> Largest() const;  // the largest group first

 private:
  int attempts_ = 0, failures_ = 0;
  std::map<std::pair<Outcome, std::string>, FailureGroup> groups_;  // by class and cause
};

}  // namespace temper
