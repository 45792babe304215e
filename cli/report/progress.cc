#include "cli/report/progress.h"

#include <sys/ioctl.h>

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "base/utf8.h"
#include "cli/report/short_names.h"
#include "cli/report/words.h"

namespace temper {
namespace {

constexpr absl::Duration kLineInterval = absl::Seconds(10);
constexpr size_t kMostRows = 24;
constexpr size_t kLinesBesideRows = 4;  // headline, how many more, status, and where the cursor ends up
constexpr int kColumnsBesideName = 67, kShortestName = 12, kLongestName = 60;
constexpr unsigned short kUsualRows = 25, kUsualColumns = 80;
constexpr int kBarCells = 12;

std::string Bar(double share) {
  int full = std::clamp(static_cast<int>(share * kBarCells + 0.5), 0, kBarCells);
  std::string bar;
  for (int i = 0; i < kBarCells; ++i) bar += i < full ? "█" : "░";
  return bar;
}

std::string Failures(const google::protobuf::Map<std::string, int32_t>& failures) {
  std::map<std::string, int> sorted(failures.begin(), failures.end());
  std::string text;
  for (const auto& [name, count] : sorted) absl::StrAppend(&text, text.empty() ? "" : " ", name, ":", count);
  return text;
}

// Of the model's time. Of alternatives, what they would replace counts.
double TaskSeconds(const v1::TaskProgress& t) {
  return t.alternative() ? 0 : t.weight() * (t.best_s() > 0 ? t.best_s() : t.default_s());
}

// `name` may hold characters of several bytes.
std::string Padded(const std::string& name, size_t columns) {
  std::string padded = Cut(name, columns);
  const auto width = static_cast<size_t>(
      std::ranges::count_if(padded, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
  return padded.append(columns - width, ' ');
}

// By task, each so many columns wide.
std::map<int, std::string> NamesOf(const WatchedJob& view, size_t columns) {
  std::vector<std::string> workloads;
  for (const auto& [id, task] : view.tasks) workloads.push_back(task.workload());
  const std::vector<std::string> drawn = ShortNames(workloads, columns);
  std::map<int, std::string> names;
  for (const auto& [id, task] : view.tasks) names[id] = Padded(drawn[names.size()], columns);
  return names;
}

std::string RowText(const v1::TaskProgress& t, const std::string& name, double total_s) {
  const double best = t.best_s() > 0 ? t.best_s() : t.default_s();
  const double share = total_s > 0 ? TaskSeconds(t) / total_s : 0;
  std::string text = absl::StrFormat("%s %s %5.1f%% %6d", name, Bar(share), share * 100, t.trials());
  // A dash is not measured yet.
  if (best > 0) {
    absl::StrAppendFormat(&text, " %9.1f %9.3f", t.flops() / best / 1e9, best * 1e3);
  } else {
    absl::StrAppendFormat(&text, " %9s %9s", "-", "-");
  }
  if (t.default_s() > 0 && t.best_s() > 0) {
    absl::StrAppendFormat(&text, " %7.2fx", t.default_s() / t.best_s());
  } else {
    absl::StrAppendFormat(&text, " %8s", "-");
  }
  return absl::StrCat(text, "  ", Failures(t.failures()), t.done() ? " " : "", t.why_done());
}

// What more there is to come, as far as it is known.
std::string Outlook(const v1::JobEvent& event, double kernels_s) {
  std::string text;
  if (event.expected_gain_s() > 0 && kernels_s > 0) {
    absl::StrAppendFormat(&text, ", ~%.3g ms (%.2g %%) more expected", event.expected_gain_s() * 1e3,
                          100 * event.expected_gain_s() / kernels_s);
  }
  if (event.eta_s() > 0) absl::StrAppendFormat(&text, ", %.0f s left", event.eta_s());
  return text;
}

// How much of the search is done, from 0 to 1: of the trials, or of the time.
double Done(const v1::JobEvent& event) {
  if (event.trials_limit() > 0) return static_cast<double>(event.trials()) / event.trials_limit();
  const double all_s = event.elapsed_s() + event.eta_s();
  return event.eta_s() > 0 && all_s > 0 ? event.elapsed_s() / all_s : 1;
}

// What the tasks come to. Of alternatives, what they would replace counts.
struct Sums {
  double known_s = 0;                // of all whose time is known, by the best of it
  double best_s = 0, untuned_s = 0;  // of those whose default was measured, so that one can be compared with the other
  int measured = 0, tasks = 0;       // how many those are, and how many there are
  int64_t failed = 0;
};
Sums SumUp(const WatchedJob& view) {
  Sums sums;
  for (const auto& [id, task] : view.tasks) {
    sums.known_s += TaskSeconds(task);
    if (task.alternative()) continue;
    ++sums.tasks;
    if (task.default_s() <= 0 || task.best_s() <= 0) continue;
    ++sums.measured;
    sums.best_s += task.weight() * task.best_s();
    sums.untuned_s += task.weight() * task.default_s();
  }
  for (const auto& [name, count] : view.outcomes) sums.failed += name == "ok" || name == "raced_out" ? 0 : count;
  return sums;
}

// ", kernels 1.200 ms (untuned 2.400 ms)", which are of the same tasks.
std::string Compared(const Sums& sums) {
  if (sums.measured == 0) return "";
  return absl::StrCat(", kernels ", TimeText(sums.best_s * 1e3), " (untuned ", TimeText(sums.untuned_s * 1e3),
                      sums.measured < sums.tasks
                          ? absl::StrCat("; of ", sums.measured, " of ", sums.tasks, " tasks, the rest is not measured")
                          : "",
                      ")");
}

}  // namespace

nlohmann::ordered_json EventJson(const WatchedJob& view, int64_t job) {
  const v1::JobEvent& event = view.latest;
  const Sums sums = SumUp(view);
  nlohmann::ordered_json warnings = nlohmann::ordered_json::array();
  for (const std::string& warning : event.warnings()) warnings.push_back(warning);
  return {{"job", job},
          {"state", event.state()},
          {"elapsed_s", event.elapsed_s()},
          {"eta_s", event.eta_s()},
          {"done", std::clamp(Done(event), 0.0, 1.0)},
          {"trials", event.trials()},
          {"failed", sums.failed},
          {"kernels_ms", sums.best_s * 1e3},
          {"untuned_ms", sums.untuned_s * 1e3},
          {"measured", sums.measured},
          {"tasks", sums.tasks},
          {"expected_gain_ms", event.expected_gain_s() * 1e3},
          {"warnings", warnings}};
}

void WatchedJob::Apply(const v1::JobEvent& event) {
  latest = event;
  for (const v1::TaskProgress& task : event.tasks()) tasks[task.task()] = task;
  outcomes.clear();
  outcomes["ok"] = event.trials();
  for (const auto& [id, task] : tasks) {
    for (const auto& [name, count] : task.failures()) outcomes[name] += count;
  }
}

void Progress::Show(const WatchedJob& view, bool final) {
  if (terminal_) {
    Table(view);
    return;
  }
  const absl::Time now = absl::Now();
  if (!final && now - last_line_ < kLineInterval) return;
  if (view.latest.cursor() == last_cursor_ || !Line(view)) return;
  last_line_ = now;
  last_cursor_ = view.latest.cursor();
}

bool Progress::Line(const WatchedJob& view) {
  const std::string& state = view.latest.state();
  if (state == "waiting_for_device" && !own_worker_) {
    absl::FPrintF(out_, "[%5.1f s] waiting for a worker that serves device key '%s'\n", view.latest.elapsed_s(),
                  Escaped(view.latest.device_key()));
    std::fflush(out_);
    return true;
  }
  if (view.latest.trials() == 0 && state != "done") return false;
  const Sums sums = SumUp(view);
  absl::FPrintF(out_, "[%5.1f s] %s: %d trials, %d failed%s%s", view.latest.elapsed_s(), state, view.latest.trials(),
                sums.failed, Compared(sums), Outlook(view.latest, sums.known_s));
  for (const std::string& warning : view.latest.warnings()) absl::FPrintF(out_, " (%s)", Escaped(warning));
  absl::FPrintF(out_, "\n");
  std::fflush(out_);
  return true;
}

void Progress::Table(const WatchedJob& view) {
  std::vector<const v1::TaskProgress*> rows;
  for (const auto& [id, task] : view.tasks) rows.push_back(&task);
  const double total = SumUp(view).known_s;
  std::sort(rows.begin(), rows.end(), [](auto* a, auto* b) { return TaskSeconds(*a) > TaskSeconds(*b); });
  // Rows that wrap, or scroll out of sight, could not be drawn over.
  winsize size{};
  if (ioctl(fileno(out_), TIOCGWINSZ, &size) != 0 || size.ws_col == 0) size = {kUsualRows, kUsualColumns, 0, 0};
  const size_t most_rows =
      std::clamp<size_t>(size.ws_row, kLinesBesideRows + 1, kMostRows + kLinesBesideRows) - kLinesBesideRows;
  std::string text;
  if (drawn_lines_ > 0) absl::StrAppendFormat(&text, "\x1b[%dA", drawn_lines_);
  int lines = 0;
  auto line = [&](const std::string& s) {
    absl::StrAppend(&text, "\x1b[2K", Cut(s, size.ws_col), "\n");
    ++lines;
  };
  const int name_columns = std::clamp(size.ws_col - kColumnsBesideName, kShortestName, kLongestName);
  const std::map<int, std::string> names = NamesOf(view, static_cast<size_t>(name_columns));
  line(absl::StrFormat("%-*s %-19s %6s %9s %9s %8s  %s", name_columns, "task", "share of time", "trials", "GFLOP/s",
                       "best ms", "speedup", "failures"));
  for (size_t i = 0; i < rows.size() && i < most_rows; ++i) line(RowText(*rows[i], names.at(rows[i]->task()), total));
  if (rows.size() > most_rows) line(absl::StrFormat("... and %d more", rows.size() - most_rows));
  line(absl::StrFormat("%s %s  %d trials in %.1f s, kernels %s%s", view.latest.state(), Bar(Done(view.latest)),
                       view.latest.trials(), view.latest.elapsed_s(), TimeText(total * 1e3),
                       Outlook(view.latest, total)));
  drawn_lines_ = lines;
  std::fputs(text.c_str(), out_);
  std::fflush(out_);
}

}  // namespace temper
