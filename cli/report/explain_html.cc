#include "cli/report/explain_html.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/report/plot.h"

namespace temper {
namespace {

constexpr char kStyle[] = R"css(
:root { color-scheme: light dark; --ink: #1d2229; --paper: #fff; --faint: #e3e6ea; --quiet: #68707a; --accent: #1769aa; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #dfe3e8; --paper: #15181c; --faint: #2c3138; --quiet: #939ba6; --accent: #69b1ef; }
}
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 76rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; margin: 0; }
h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
p { margin: .3rem 0; overflow-wrap: anywhere; }
.quiet, .nothing { color: var(--quiet); }
.headline { font-size: 1.2rem; margin: .8rem 0; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th { text-align: left; font-weight: 600; color: var(--quiet); border-bottom: 1px solid var(--ink); }
th, td { padding: .25rem .6rem; vertical-align: top; }
td { border-bottom: 1px solid var(--faint); overflow-wrap: anywhere; }
.n { text-align: right; white-space: nowrap; }
.bar { display: block; height: 3px; background: var(--accent); }
code { font-size: .9em; }
a { color: inherit; }
details { border-bottom: 1px solid var(--faint); padding: .5rem 0; }
summary { cursor: pointer; overflow-wrap: anywhere; }
details table { width: auto; margin: .5rem 0; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(19rem, 1fr)); gap: 1rem; }
svg { width: 100%; height: auto; font-size: 10px; fill: var(--quiet); }
svg .title { fill: var(--ink); font-size: 11px; font-weight: 600; }
svg path { fill: none; }
.grid { stroke: var(--faint); }
.diagonal { stroke: var(--quiet); stroke-dasharray: 4 4; }
.steps { stroke: var(--accent); stroke-width: 1.6; }
.dots { stroke: var(--accent); stroke-width: 3; stroke-linecap: round; stroke-opacity: .45; }
)css";

std::string Page(const std::string& title, const std::string& body) {
  return absl::StrCat("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>", EscapeHtml(title),
                      "</title><style>", kStyle, "</style></head><body>\n", body, "</body></html>\n");
}

std::string Element(const char* name, const std::string& text) {
  return absl::StrCat("<", name, ">", EscapeHtml(text), "</", name, ">");
}

std::string Cell(const std::string& text, bool number = false) {
  return absl::StrCat(number ? "<td class=\"n\">" : "<td>", EscapeHtml(text), "</td>");
}

std::string Head(std::initializer_list<const char*> columns) {
  std::string row = "<thead><tr>";
  for (const char* column : columns) row += Element("th", column);
  return row + "</tr></thead>";
}

// --- plots ---

PlotSeries Scatter(const std::vector<const OperatorReport*>& operators) {
  PlotSeries dots;
  for (const OperatorReport* op : operators) {
    for (const PlottedTrial& t : op->trials) dots.points.emplace_back(t.draft_s * 1e3, t.measured_s * 1e3);
  }
  return dots;
}

Plot ScatterPlot(const std::vector<const OperatorReport*>& operators) {
  Plot plot{"Predicted and measured", "draft, ms", "measured, ms"};
  plot.logarithmic = plot.diagonal = true;
  plot.series.push_back(Scatter(operators));
  return plot;
}

// The sum of the operators' best so far, in the order of their trials: over the number of trials, and over seconds.
// Before its first time an operator counts with that one; without any, with its default.
std::string BestPlots(const std::vector<const OperatorReport*>& operators, bool as_counted) {
  struct Step {
    const PlottedTrial* trial;
    size_t op;
  };
  std::vector<Step> steps;
  std::vector<double> best(operators.size(), 0);
  for (size_t i = 0; i < operators.size(); ++i) {
    for (const PlottedTrial& trial : operators[i]->trials) {
      steps.push_back({&trial, i});
      if (best[i] == 0 && trial.may_be_best) best[i] = trial.measured_s;
    }
    if (best[i] == 0) best[i] = operators[i]->untuned.seconds;
  }
  std::sort(steps.begin(), steps.end(), [](const Step& a, const Step& b) { return a.trial->id < b.trial->id; });
  const auto total_ms = [&] {
    double total = 0;
    for (size_t i = 0; i < operators.size(); ++i) total += (as_counted ? operators[i]->count : 1) * best[i];
    return total * 1e3;
  };
  PlotSeries by_trials{PlotSeries::Style::kSteps, {}}, by_seconds = by_trials;
  double clock_s = 0;
  for (size_t n = 0; n < steps.size(); ++n) {
    const auto& [trial, i] = steps[n];
    clock_s = std::max(clock_s, trial->at_s);
    const bool better = trial->may_be_best && trial->measured_s < best[i];
    if (better) best[i] = trial->measured_s;
    if (!better && n > 0 && n + 1 < steps.size()) continue;  // corners and ends are enough
    by_trials.points.emplace_back(static_cast<double>(n + 1), total_ms());
    by_seconds.points.emplace_back(clock_s, total_ms());
  }
  return absl::StrCat(Svg({"Best over trials", "trials", "ms", false, false, {by_trials}}),
                      Svg({"Best over time", "seconds of tuning the model", "ms", false, false, {by_seconds}}));
}

std::string Plots(const std::vector<const OperatorReport*>& operators, bool as_counted) {
  return absl::StrCat("<div class=\"plots\">", BestPlots(operators, as_counted), Svg(ScatterPlot(operators)),
                      "</div>\n");
}

// --- tables ---

std::string OperatorTable(const Explanation& e) {
  std::string html = "<table>" + Head({"#", "operator", "times", "share", "default ms", "best ms", "gain", "predicted",
                                       "trials", "record"});
  html += "<tbody>\n";
  for (const OperatorReport& op : e.operators) {
    absl::StrAppend(&html, "<tr>", Cell(absl::StrCat(op.number), true), "<td><a href=\"#op", op.number, "\">",
                    EscapeHtml(op.what), "</a></td>", Cell(absl::StrCat(op.count), true));
    absl::StrAppendFormat(&html, "<td class=\"n\">%.1f %%<span class=\"bar\" style=\"width:%.1f%%\"></span></td>",
                          100 * op.share, 100 * op.share / std::max(e.operators.front().share, 1e-12));
    absl::StrAppend(&html, Cell(Milliseconds(op.untuned), true), Cell(Milliseconds(op.tuned), true),
                    Cell(GainText(op), true), Cell(absl::StrFormat("%.2fx", op.predicted_gain()), true),
                    Cell(absl::StrCat(op.trials.size()), true), Cell(RecordText(op)), "</tr>\n");
  }
  return html + "</tbody></table>\n";
}

std::string DifferenceTable(const std::vector<Difference>& differences, const char* what) {
  if (differences.empty()) return "";
  std::string html = "<table>" + Head({what, "default", "best"}) + "<tbody>";
  for (const Difference& d : differences)
    absl::StrAppend(&html, "<tr>", Cell(d.what), Cell(d.before), Cell(d.after), "</tr>");
  return html + "</tbody></table>\n";
}

std::string OperatorDetails(const OperatorReport& op, const std::string& command) {
  std::string html = absl::StrCat("<details id=\"op", op.number, "\">");
  html +=
      Element("summary", absl::StrFormat("#%d  %s  (%.1f %%, %s)", op.number, op.what, 100 * op.share, GainText(op)));
  if (!op.nodes.empty()) html += Element("p", absl::StrCat("nodes: ", NodesText(op)));
  absl::StrAppend(&html, "<p class=\"quiet\"><code>", EscapeHtml(op.workload), "</code></p>");
  html += Element("p", absl::StrCat("default: ", ConfigText(op.untuned), ", ", Milliseconds(op.untuned), " ms"));
  html +=
      Element("p", absl::StrCat("best: ", ConfigText(op.tuned), ", ", Milliseconds(op.tuned), " ms, ", RecordText(op)));
  if (op.gap.has_value()) html += Element("p", GapText(*op.gap));
  if (op.nearest.has_value()) {
    html += Element("p", NearestText(*op.nearest));
    absl::StrAppend(&html, "<p>to tune it: <code>", EscapeHtml(command), "</code></p>");
  }
  html += DifferenceTable(op.knobs, "knob");
  html += DifferenceTable(op.effects, "what it did");
  if (!op.trials.empty()) html += Plots({&op}, false);
  return html + "</details>\n";
}

std::string FailureTable(const FailureGroups& failures) {
  std::string html =
      Element("p", absl::StrFormat("%d of %d attempts failed.", failures.failures(), failures.attempts()));
  if (failures.failures() == 0) return html;
  html += "<table>" + Head({"class", "cause", "times", "templates", "workloads", "example"}) + "<tbody>\n";
  for (const FailureGroup& group : failures.Largest()) {
    absl::StrAppend(&html, "<tr>", Cell(std::string(Text(group.outcome))), Cell(group.cause),
                    Cell(absl::StrCat(group.count), true),
                    Cell(absl::StrJoin(group.templates, ", ", absl::PairFormatter(" "))),
                    Cell(absl::StrCat(group.workloads.size()), true),
                    Cell(absl::StrCat("record ", group.example.id, ": ", group.example.template_name, " ",
                                      group.example.config, " of ", group.example.workload)),
                    "</tr>\n");
  }
  return html + "</tbody></table>\n";
}

}  // namespace

std::string ExplanationPage(const Explanation& e, const std::string& command) {
  std::string html = Element("h1", e.model);
  absl::StrAppend(&html, "<p class=\"quiet\">", EscapeHtml(Text(e.target)),
                  e.device.empty() ? "" : EscapeHtml(absl::StrCat(" on ", e.device)), "</p>\n");
  absl::StrAppend(&html, "<p class=\"headline\">", EscapeHtml(Headline(e)), "</p>\n");
  if (!e.hint.empty()) html += Element("p", e.hint);
  if (e.operators.empty()) return Page(e.model, html + Element("p", "The model has no operator to tune."));
  std::vector<const OperatorReport*> all;
  for (const OperatorReport& op : e.operators) all.push_back(&op);
  html += Plots(all, true);
  html += Element("h2", "Operators") + OperatorTable(e);
  html += Element("p", "~ was never measured: the draft's word, on the scale of the nearest that was.");
  html += Element("h2", "What tuning changed");
  for (const OperatorReport& op : e.operators) html += OperatorDetails(op, command);
  html += Element("h2", "Failures") + FailureTable(e.failures);
  return Page(e.model, html);
}

std::string FailuresPage(const FailureGroups& failures) {
  return Page("Failures", Element("h1", "Failures") + FailureTable(failures));
}

}  // namespace temper
