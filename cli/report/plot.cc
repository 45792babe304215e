#include "cli/report/plot.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace temper {
namespace {

constexpr double kWidth = 380, kHeight = 240, kLeft = 58, kRight = 14, kTop = 26, kBottom = 40;
constexpr int kTicks = 5;

// Values along one side of the plot, as positions on it.
class Axis {
 public:
  Axis(double low, double high, bool logarithmic, double from, double to)
      : logarithmic_(logarithmic), from_(from), to_(to) {
    if (logarithmic_) {
      low_ = std::log10(low) - 0.05;
      high_ = std::log10(high) + 0.05;
    } else {
      low_ = low;
      high_ = high > low ? high : low + 1;
    }
  }
  double operator()(double value) const {
    const double v = logarithmic_ ? std::log10(value) : value;
    return from_ + (v - low_) / (high_ - low_) * (to_ - from_);
  }
  // Round values, about kTicks of them.
  std::vector<double> Ticks() const {
    std::vector<double> ticks;
    if (logarithmic_) {
      const bool many = high_ - low_ > 2;
      for (double decade = std::floor(low_); decade <= high_; ++decade) {
        for (const double digit : {1.0, 2.0, 5.0}) {
          const double at = decade + std::log10(digit);
          if ((digit == 1 || !many) && at >= low_ && at <= high_) ticks.push_back(std::pow(10, at));
        }
      }
      return ticks;
    }
    const double rough = (high_ - low_) / kTicks, power = std::pow(10, std::floor(std::log10(rough)));
    const double step = power * (rough / power > 5 ? 10 : rough / power > 2 ? 5 : rough / power > 1 ? 2 : 1);
    for (int64_t i = std::llround(std::ceil(low_ / step - 1e-9)); static_cast<double>(i) * step <= high_ + 1e-9 * step;
         ++i) {
      ticks.push_back(static_cast<double>(i) * step);
    }
    return ticks;
  }

 private:
  bool logarithmic_;
  double low_, high_, from_, to_;
};

std::string TickText(double value) { return absl::StrFormat("%.4g", value); }

std::string Ticks(const Axis& x, const Axis& y) {
  std::string svg;
  for (const double value : x.Ticks()) {
    absl::StrAppendFormat(&svg, "<path class=\"grid\" d=\"M%.1f %gV%g\"/>", x(value), kTop, kHeight - kBottom);
    absl::StrAppendFormat(&svg, "<text x=\"%.1f\" y=\"%g\" text-anchor=\"middle\">%s</text>", x(value),
                          kHeight - kBottom + 14, TickText(value));
  }
  for (const double value : y.Ticks()) {
    absl::StrAppendFormat(&svg, "<path class=\"grid\" d=\"M%g %.1fH%g\"/>", kLeft, y(value), kWidth - kRight);
    absl::StrAppendFormat(&svg, "<text x=\"%g\" y=\"%.1f\" text-anchor=\"end\">%s</text>", kLeft - 6, y(value) + 4,
                          TickText(value));
  }
  return svg;
}

// All points are one path: a page of thousands stays small.
std::string Path(const PlotSeries& series, const Axis& x, const Axis& y) {
  std::string d;
  const bool steps = series.style == PlotSeries::Style::kSteps;
  for (const auto& [px, py] : series.points) {
    if (!steps) {
      absl::StrAppendFormat(&d, "M%.1f %.1fh0", x(px), y(py));
    } else if (d.empty()) {
      absl::StrAppendFormat(&d, "M%.1f %.1f", x(px), y(py));
    } else {
      absl::StrAppendFormat(&d, "H%.1fV%.1f", x(px), y(py));
    }
  }
  return absl::StrCat("<path class=\"", steps ? "steps" : "dots", "\" d=\"", d, "\"/>");
}

}  // namespace

std::string EscapeHtml(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      case '\'':
        escaped += "&#39;";
        break;
      default:
        escaped += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? ' ' : c;
    }
  }
  return escaped;
}

std::string Svg(const Plot& plot) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  double x_low = kInfinite, x_high = -kInfinite, y_low = kInfinite, y_high = -kInfinite;
  std::vector<PlotSeries> shown = plot.series;
  for (PlotSeries& series : shown) {
    std::erase_if(series.points, [&](const auto& p) {
      return !std::isfinite(p.first) || !std::isfinite(p.second) ||
             (plot.logarithmic && (p.first <= 0 || p.second <= 0));
    });
    for (const auto& [x, y] : series.points) {
      x_low = std::min(x_low, x);
      x_high = std::max(x_high, x);
      y_low = std::min(y_low, y);
      y_high = std::max(y_high, y);
    }
  }
  if (x_low > x_high) return absl::StrCat("<p class=\"nothing\">", EscapeHtml(plot.title), ": nothing measured</p>");
  if (!plot.logarithmic) x_low = y_low = 0;  // times and counts: the eye compares lengths
  if (plot.diagonal) {
    x_low = y_low = std::min(x_low, y_low);
    x_high = y_high = std::max(x_high, y_high);
  }
  const Axis x(x_low, x_high, plot.logarithmic, kLeft, kWidth - kRight);
  const Axis y(y_low, y_high * (plot.logarithmic ? 1 : 1.05), plot.logarithmic, kHeight - kBottom, kTop);
  std::string svg = absl::StrFormat("<svg viewBox=\"0 0 %g %g\" role=\"img\"><title>%s</title>", kWidth, kHeight,
                                    EscapeHtml(plot.title));
  absl::StrAppendFormat(&svg, "<text class=\"title\" x=\"%g\" y=\"16\">%s</text>", kLeft, EscapeHtml(plot.title));
  svg += Ticks(x, y);
  if (plot.diagonal) {
    absl::StrAppendFormat(&svg, "<path class=\"diagonal\" d=\"M%.1f %.1fL%.1f %.1f\"/>", x(x_low), y(x_low), x(x_high),
                          y(x_high));
  }
  for (const PlotSeries& series : shown) svg += Path(series, x, y);
  absl::StrAppendFormat(&svg, "<text x=\"%g\" y=\"%g\" text-anchor=\"end\">%s</text>", kWidth - kRight, kHeight - 8,
                        EscapeHtml(plot.x_label));
  absl::StrAppendFormat(&svg, "<text x=\"%g\" y=\"16\" text-anchor=\"end\">%s</text></svg>", kWidth - kRight,
                        EscapeHtml(plot.y_label));
  return svg;
}

}  // namespace temper
