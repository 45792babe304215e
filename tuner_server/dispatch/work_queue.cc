#include "tuner_server/dispatch/work_queue.h"

#include <algorithm>

namespace temper {
namespace {

int64_t CostOf(const Piece& piece) { return std::max<int64_t>(1, static_cast<int64_t>(piece.items.size())); }

bool IsClosing(const Piece& piece) { return piece.work->kind != WorkKind::kBatch; }

}  // namespace

void WorkQueue::Add(Piece piece, bool again) {
  JobQueue& queue = jobs_[piece.work->job];
  if (queue.pieces.empty()) {
    queue.owner = piece.work->owner;
    queue.priority = piece.work->priority;
  }
  Count(piece);
  queue.pieces.insert(again ? queue.pieces.begin() : queue.pieces.end(), std::move(piece));
}

void WorkQueue::Count(const Piece& piece) {
  items_ += static_cast<int64_t>(piece.items.size());
  ++pieces_for_[{piece.work->target, piece.work->codegen_id}];
}

void WorkQueue::Discount(const Piece& piece) {
  items_ -= static_cast<int64_t>(piece.items.size());
  const auto alike = pieces_for_.find({piece.work->target, piece.work->codegen_id});
  if (--alike->second == 0) pieces_for_.erase(alike);
}

std::vector<WorkQueue::Ready> WorkQueue::AllReady(const std::function<bool(const Piece&)>& fits) const {
  std::vector<Ready> ready;
  for (const auto& [job, queue] : jobs_) {
    // Batches that the job no longer waits for may still be before its finals.
    auto piece = std::ranges::find_if(queue.pieces, [&](const Piece& p) { return IsClosing(p) && fits(p); });
    if (piece == queue.pieces.end()) piece = std::ranges::find_if(queue.pieces, fits);
    if (piece == queue.pieces.end()) continue;
    ready.push_back({job, static_cast<size_t>(piece - queue.pieces.begin()), IsClosing(*piece)});
  }
  return ready;
}

WorkQueue::Ready WorkQueue::Choose(const std::vector<Ready>& ready) {
  const auto rank = [&](const Ready& r) { return std::pair(r.closing, jobs_.at(r.job).priority); };
  const auto highest = rank(*std::ranges::max_element(ready, {}, rank));
  std::map<std::string, std::map<int64_t, int64_t>> costs;  // by owner and job
  std::map<std::string, int64_t> cheapest;
  for (const Ready& r : ready) {
    if (rank(r) != highest) continue;
    const JobQueue& queue = jobs_.at(r.job);
    const int64_t cost = CostOf(queue.pieces[r.at]);
    costs[queue.owner][r.job] = cost;
    const auto [least, first] = cheapest.emplace(queue.owner, cost);
    least->second = std::min(least->second, cost);
  }
  Turns& turns = turns_[highest];
  const std::string owner = turns.owners.Next(cheapest);
  DeficitRoundRobin<int64_t>& jobs = turns.jobs_of_owner[owner];
  const int64_t job = jobs.Next(costs.at(owner));
  const int64_t cost = costs.at(owner).at(job);
  turns.owners.Charge(owner, cost);
  jobs.Charge(job, cost);
  return *std::ranges::find(ready, job, &Ready::job);
}

Piece WorkQueue::TakeAt(const Ready& ready) {
  JobQueue& queue = jobs_.at(ready.job);
  Piece piece = std::move(queue.pieces[ready.at]);
  queue.pieces.erase(queue.pieces.begin() + static_cast<std::ptrdiff_t>(ready.at));
  Discount(piece);
  if (!queue.pieces.empty()) return piece;
  const std::string owner = queue.owner;
  jobs_.erase(ready.job);
  const bool last = std::ranges::none_of(jobs_, [&](const auto& entry) { return entry.second.owner == owner; });
  if (!last) return piece;
  for (auto& [rank, turns] : turns_) turns.jobs_of_owner.erase(owner);
  return piece;
}

std::optional<Piece> WorkQueue::Take(const std::function<bool(const Piece&)>& fits) {
  const std::vector<Ready> ready = AllReady(fits);
  if (ready.empty()) return std::nullopt;
  return TakeAt(ready.size() == 1 ? ready.front() : Choose(ready));
}

void WorkQueue::Drop(int64_t job, const std::function<bool(const Piece&)>& unwanted) {
  const auto queue = jobs_.find(job);
  if (queue == jobs_.end()) return;
  std::erase_if(queue->second.pieces, [&](const Piece& piece) {
    if (!unwanted(piece)) return false;
    Discount(piece);
    return true;
  });
  if (queue->second.pieces.empty()) jobs_.erase(queue);
}

void WorkQueue::SetPriority(int64_t job, int priority) {
  if (const auto queue = jobs_.find(job); queue != jobs_.end()) queue->second.priority = priority;
}

const Piece* WorkQueue::Find(const std::function<bool(const Piece&)>& fits) const {
  for (const auto& [job, queue] : jobs_) {
    const auto piece = std::ranges::find_if(queue.pieces, fits);
    if (piece != queue.pieces.end()) return &*piece;
  }
  return nullptr;
}

void WorkQueue::Visit(const std::function<void(const Piece&)>& visit) const {
  for (const auto& [job, queue] : jobs_) {
    for (const Piece& piece : queue.pieces) visit(piece);
  }
}

}  // namespace temper
