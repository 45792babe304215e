#include "measure_worker/sandbox/conversation.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "compiler/timing/timing.h"

namespace temper::worker {

namespace {

constexpr int64_t kNsInMs = 1'000'000;
constexpr int kReadsAtOnce = 16;  // who writes without end must not keep us from looking at the clock

}  // namespace

Conversation::Conversation(ChildProcess& child, const CancelToken& token, const Expected& expected, Phase idle,
                           Handlers handlers)
    : child_(child), token_(token), idle_(idle), handlers_(std::move(handlers)), witness_(expected) {}

Conversation::End Conversation::Hold(const Frame& order) {
  unsent_ = EncodeFrame(order);
  Land(kWhole);
  for (;;) {
    pollfd events[3] = {{child_.socket(), static_cast<short>(unsent_.empty() ? POLLIN : POLLIN | POLLOUT), 0},
                        {stderr_open_ ? child_.stderr_pipe() : -1, POLLIN, 0},
                        {token_.fd(), POLLIN, 0}};
    const int ready = poll(events, 3, TimeoutMs());
    if (ready < 0 && errno != EINTR) return End::kDied;
    if (ready > 0) {
      if (events[2].revents) return End::kCancelled;
      if (events[1].revents) ReadStderr();
      if ((events[0].revents & POLLOUT) && !Send()) return End::kDied;
      if (events[0].revents & (POLLIN | POLLHUP | POLLERR)) {
        if (std::optional<End> end = Receive()) return *end;
      }
    }
    if (TakesTooMuch()) return End::kDied;
    culprit_ = LateFlight();
    if (culprit_ != kNobody) return End::kTimedOut;
  }
}

std::string Conversation::Complaint() {
  if (stderr_open_) ReadStderr();
  const absl::string_view text = absl::StripAsciiWhitespace(stderr_text_);
  return text.empty() ? "" : absl::StrCat(": ", text);
}

int Conversation::TimeoutMs() const {
  int64_t nearest = std::numeric_limits<int64_t>::max();
  if (const auto interval = child_.watch_interval_ms()) nearest = MonotonicNs() + *interval * kNsInMs;
  for (const auto& [index, flight] : flights_) nearest = std::min(nearest, flight.deadline_ns);
  return static_cast<int>(std::clamp<int64_t>((nearest - MonotonicNs()) / kNsInMs + 1, 0, 1'000'000));
}

bool Conversation::TakesTooMuch() {
  const auto interval_ms = child_.watch_interval_ms();
  const int64_t now = MonotonicNs();
  if (!interval_ms.has_value() || now - watched_ns_ < *interval_ms * kNsInMs) return false;
  watched_ns_ = now;
  if (!child_.TakesTooMuch()) return false;
  nonsense_ = absl::StrCat("wrote more than ", child_.limits().scratch_bytes >> 20, " MiB of temporary files");
  return true;
}

int Conversation::LateFlight() const {
  const int64_t now = MonotonicNs();
  for (const auto& [index, flight] : flights_) {
    if (now >= flight.deadline_ns) return index;
  }
  return kNobody;
}

bool Conversation::Send() {
  const ssize_t put = send(child_.socket(), unsent_.data(), unsent_.size(), MSG_NOSIGNAL);
  if (put > 0) unsent_.erase(0, static_cast<size_t>(put));
  return put > 0 || errno == EAGAIN || errno == EINTR;
}

void Conversation::ReadStderr() {
  char buffer[4096];
  for (int i = 0; i < kReadsAtOnce; ++i) {
    const ssize_t got = read(child_.stderr_pipe(), buffer, sizeof buffer);
    if (got == 0) stderr_open_ = false;
    if (got <= 0) return;
    // The first lines say most; the rest is read so that the child does not block on it.
    const size_t room = kMaxErrorBytes - std::min(kMaxErrorBytes, stderr_text_.size());
    stderr_text_.append(buffer, std::min(static_cast<size_t>(got), room));
  }
}

std::optional<Conversation::End> Conversation::Receive() {
  char buffer[16384];
  const ssize_t got = read(child_.socket(), buffer, sizeof buffer);
  if (got == 0) return End::kDied;
  if (got < 0) return errno == EAGAIN || errno == EINTR ? std::nullopt : std::optional(End::kDied);
  reader_.Feed({buffer, static_cast<size_t>(got)});
  for (;;) {
    auto frame = reader_.Next();
    if (!frame.ok()) return Nonsense(frame.status());
    if (!frame->has_value()) return std::nullopt;
    if ((*frame)->kind == static_cast<uint8_t>(MessageKind::kDone)) return End::kDone;
    if ((*frame)->kind == static_cast<uint8_t>(MessageKind::kLeaving)) return End::kLeft;
    if (absl::Status status = Take(**frame); !status.ok()) return Nonsense(status);
  }
}

Conversation::End Conversation::Nonsense(const absl::Status& status) {
  nonsense_ = std::string(status.message());
  return End::kDied;
}

void Conversation::Land(int index) {
  flights_.erase(index);
  if (flights_.empty()) flights_[kWhole] = {idle_, MonotonicNs() + handlers_.cap_ms(idle_) * kNsInMs};
}

absl::Status Conversation::Take(const Frame& frame) {
  const int64_t now = MonotonicNs();
  switch (static_cast<MessageKind>(frame.kind)) {
    case MessageKind::kBegin: {
      TEMPER_ASSIGN_OR_RETURN(const Begin begin, DecodeBegin(frame));
      TEMPER_RETURN_IF_ERROR(witness_.OnBegin(begin, now));
      // Builds go on beside each other; a run is alone, and ends what went before it.
      if (begin.phase == Phase::kBuild)
        flights_.erase(kWhole);
      else
        flights_.clear();
      flights_[begin.index] = {begin.phase, now + handlers_.cap_ms(begin.phase) * kNsInMs};
      return absl::OkStatus();
    }
    case MessageKind::kBuilt: {
      TEMPER_ASSIGN_OR_RETURN(const int index, DecodeBuilt(frame));
      TEMPER_RETURN_IF_ERROR(witness_.OnBuilt(index, now));
      Land(index);
      return absl::OkStatus();
    }
    case MessageKind::kTrial: {
      TEMPER_ASSIGN_OR_RETURN(Trial trial, DecodeTrial(frame));
      TEMPER_RETURN_IF_ERROR(witness_.OnTrial(trial, now));
      Land(trial.index);
      handlers_.on_trial(trial.index, std::move(trial.result));
      return absl::OkStatus();
    }
    case MessageKind::kModelResult: {
      TEMPER_ASSIGN_OR_RETURN(ModelResult result, DecodeModelResult(frame));
      TEMPER_RETURN_IF_ERROR(witness_.OnModel(result, now));
      handlers_.on_model(std::move(result));
      return absl::OkStatus();
    }
    case MessageKind::kBatch:
    case MessageKind::kModel:
    case MessageKind::kFinals:
    case MessageKind::kDone:
    case MessageKind::kLeaving:
      break;
  }
  return absl::InvalidArgumentError(absl::StrCat("a message of kind ", frame.kind, " that a child does not send"));
}

}  // namespace temper::worker
