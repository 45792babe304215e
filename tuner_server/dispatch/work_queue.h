// What waits for a worker of one device key, and who of it goes next: finals and models' checks before searches, then
// higher priorities, then in turns between owners and between the jobs of an owner. Not thread-safe.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tuner_server/dispatch/round_robin.h"
#include "tuner_server/dispatch/work.h"

namespace temper {

// Some items of a work, to be granted together.
struct Piece {
  std::shared_ptr<const Work> work;
  std::vector<int64_t> items;
  absl::Duration since;  // when it was queued, by the dispatcher's clock
};

class WorkQueue {
 public:
  // Behind what the job has here already; or, of what is tried again, before it: a batch waits for its last item.
  void Add(Piece piece, bool again = false);
  // Takes out what goes next among what `fits`. nullopt: nothing does.
  std::optional<Piece> Take(const std::function<bool(const Piece&)>& fits);
  // Drops what `unwanted` says so of. Cheap where the job has nothing here.
  void Drop(int64_t job, const std::function<bool(const Piece&)>& unwanted);
  void SetPriority(int64_t job, int priority);

  bool empty() const { return jobs_.empty(); }
  // How many pieces wait, by target and codegen id; none is zero.
  const std::map<std::pair<std::string, std::string>, int64_t>& pieces_for() const { return pieces_for_; }
  int64_t items() const { return items_; }  // waiting
  // The first piece that `fits`, whoever's turn it is; null: none.
  const Piece* Find(const std::function<bool(const Piece&)>& fits) const;
  void Visit(const std::function<void(const Piece&)>& visit) const;

 private:
  struct JobQueue {
    std::string owner;
    int priority = 0;
    std::deque<Piece> pieces;
  };
  // Of a job, the position of the piece that would go now.
  struct Ready {
    int64_t job;
    size_t at;
    bool closing;  // of finals or a model's check
  };
  std::vector<Ready> AllReady(const std::function<bool(const Piece&)>& fits) const;
  Ready Choose(const std::vector<Ready>& ready);
  Piece TakeAt(const Ready& ready);
  void Count(const Piece& piece);
  void Discount(const Piece& piece);  // it is here no longer

  // Those that rank alike take turns among themselves, whoever goes before them meanwhile.
  struct Turns {
    DeficitRoundRobin<std::string> owners;
    std::map<std::string, DeficitRoundRobin<int64_t>> jobs_of_owner;
  };

  std::map<int64_t, JobQueue> jobs_;             // those with pieces
  std::map<std::pair<bool, int>, Turns> turns_;  // by closing and priority
  int64_t items_ = 0;
  std::map<std::pair<std::string, std::string>, int64_t> pieces_for_;
};

}  // namespace temper
