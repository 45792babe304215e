#include "measure_worker/sandbox/conversation.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "compiler/runtime/timing.h"

namespace temper::worker {

Conversation::Conversation(ChildProcess& child, const CancelToken& token, int candidates, Phase idle, Handlers handlers)
    : child_(child), token_(token), candidates_(candidates), idle_(idle), handlers_(std::move(handlers)) {}

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
  for (const auto& [index, flight] : flights_) nearest = std::min(nearest, flight.deadline_ns);
  return static_cast<int>(std::clamp<int64_t>((nearest - MonotonicNs()) / 1'000'000 + 1, 0, 1'000'000));
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
  ssize_t got;
  while ((got = read(child_.stderr_pipe(), buffer, sizeof buffer)) > 0) {
    // The first lines say most; the rest is read so that the child does not block on it.
    const size_t room = kMaxErrorBytes - std::min(kMaxErrorBytes, stderr_text_.size());
    stderr_text_.append(buffer, std::min(static_cast<size_t>(got), room));
  }
  if (got == 0) stderr_open_ = false;
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
    if (absl::Status status = Take(**frame); !status.ok()) return Nonsense(status);
  }
}

Conversation::End Conversation::Nonsense(const absl::Status& status) {
  nonsense_ = std::string(status.message());
  return End::kDied;
}

absl::Status Conversation::CheckIndex(int index, int lowest) const {
  if (index >= lowest && index < candidates_) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("a message about candidate ", index, ", which there is not"));
}

void Conversation::Land(int index) {
  flights_.erase(index);
  if (flights_.empty()) flights_[kWhole] = {idle_, MonotonicNs() + handlers_.cap_ms(idle_) * 1'000'000};
}

absl::Status Conversation::Take(const Frame& frame) {
  switch (static_cast<MessageKind>(frame.kind)) {
    case MessageKind::kBegin: {
      TEMPER_ASSIGN_OR_RETURN(const Begin begin, DecodeBegin(frame));
      TEMPER_RETURN_IF_ERROR(CheckIndex(begin.index, kWhole));
      // Builds go on beside each other; a run is alone, and ends what went before it.
      if (begin.phase == Phase::kBuild)
        flights_.erase(kWhole);
      else
        flights_.clear();
      flights_[begin.index] = {begin.phase, MonotonicNs() + handlers_.cap_ms(begin.phase) * 1'000'000};
      return absl::OkStatus();
    }
    case MessageKind::kBuilt: {
      TEMPER_ASSIGN_OR_RETURN(const int index, DecodeBuilt(frame));
      TEMPER_RETURN_IF_ERROR(CheckIndex(index, 0));
      Land(index);
      return absl::OkStatus();
    }
    case MessageKind::kTrial: {
      TEMPER_ASSIGN_OR_RETURN(Trial trial, DecodeTrial(frame));
      TEMPER_RETURN_IF_ERROR(CheckIndex(trial.index, 0));
      Land(trial.index);
      handlers_.on_trial(trial.index, std::move(trial.result));
      return absl::OkStatus();
    }
    default: {
      TEMPER_ASSIGN_OR_RETURN(ModelResult result, DecodeModelResult(frame));
      handlers_.on_model(std::move(result));
      return absl::OkStatus();
    }
  }
}

}  // namespace temper::worker
