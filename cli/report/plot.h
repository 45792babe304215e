// Plots as inline SVG, styled by classes that the page defines: no scripts, nothing fetched.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace temper {

// Text for an element or a quoted attribute. Control characters become spaces.
std::string EscapeHtml(std::string_view text);

struct PlotSeries {
  enum class Style { kSteps, kDots };
  Style style = Style::kDots;
  std::vector<std::pair<double, double>> points;  // steps: x ascending
};

struct Plot {
  std::string title, x_label, y_label;
  bool logarithmic = false;  // both axes; points that are not positive are left out
  bool diagonal = false;     // a line where x = y
  std::vector<PlotSeries> series;
};
// An <svg> element; without a point to show, a <p> that says so.
std::string Svg(const Plot& plot);

}  // namespace temper
