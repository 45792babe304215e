// How a task's best fell over its trials, and what is still to be gained by more of them.
//
// The distance to what can be reached is taken to fall as 1/n with the trials n: then as many trials again halve it,
// and all that is left is what the last doubling of the trials brought. Three doublings are asked and averaged, and
// the least that is expected is all that was gained since the first trial, spread over the trials: a search that stood
// still for a while is not over.
#pragma once

#include <utility>
#include <vector>

namespace temper {

class Course {
 public:
  // After one more trial the best is `best_s`; 0: none is ok yet. What is higher than before counts as no change.
  void Add(double best_s);

  int trials() const { return trials_; }
  // Seconds that an unlimited number of further trials is expected to gain. Infinite while there are too few to tell.
  double GainLeft() const;
  // The share of it that `more` trials are expected to bring.
  double ShareWithin(double more) const;

 private:
  // The best after so many trials; infinite where there was none.
  double BestAfter(int trials) const;

  int trials_ = 0;
  std::vector<std::pair<int, double>> steps_;  // the trial that made a new best, and that best
};

}  // namespace temper
