// The curve of hit rate against memory, drawn as SVG text: no drawing library, no fonts of its own.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/log.h"
#include "base/quantity.h"
#include "lab/replay_report.h"

namespace weir::lab {

namespace {

constexpr double width = 760, height = 470;
constexpr double left = 68, right = 24, top = 92, bottom = 58;
constexpr double plot_width = width - left - right, plot_height = height - top - bottom;

struct Style {
  const char* name;   ///< of the contender
  const char* label;  ///< in the legend
  const char* colour;
  const char* dash;
};
// Colours that stay apart for colour-blind readers (Okabe and Ito 2008).
constexpr Style styles[] = {{"lfu", "LFU with ageing", "#0072b2", ""},
                            {"lru", "LRU", "#d55e00", ""},
                            {"belady", "Belady bound", "#555555", "6 4"}};

const Style& style_of(const ReplayRow& row) {
  const std::string_view name = row.contender.name();
  return *std::find_if(std::begin(styles), std::end(styles), [&](const Style& s) { return name == s.name; });
}

struct Unit {
  const char* name;
  double bytes;
};

Unit unit_for(double most) {
  constexpr Unit units[] = {{"GiB", 1ull << 30}, {"MiB", 1ull << 20}, {"KiB", 1ull << 10}};
  for (const Unit& unit : units)
    if (most >= 2 * unit.bytes) return unit;
  return {"bytes", 1};
}

/// 1, 2, 4 or 5 times a power of ten, such that about six steps reach `most`.
double nice_step(double most) {
  const double rough = most / 6, power = std::pow(10.0, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 4.0, 5.0})
    if (factor * power >= rough) return factor * power;
  return 10 * power;
}

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '&') {
      out += "&amp;";
    } else if (static_cast<unsigned char>(c) >= 0x20) {
      out += c;
    }
  }
  return out;
}

std::string text_at(double x, double y, const char* anchor, const std::string& text,
                    const std::string& more = "") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\"{}>{}</text>\n", x, y, anchor, more,
                     escaped(text));
}

std::string line(double x1, double y1, double x2, double y2, const std::string& stroke) {
  return fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\"/>\n", x1,
                     y1, x2, y2, stroke);
}

/// Data to pixels.
struct Scale {
  Unit unit;
  double most;  ///< right end, in units
  double x(double bytes) const { return left + plot_width * bytes / unit.bytes / most; }
  static double y(double rate) { return top + plot_height * (1 - rate); }
};

Scale scale_for(const std::vector<ReplayRow>& rows) {
  double most = 1;
  for (const ReplayRow& row : rows) most = std::max(most, static_cast<double>(row.memory_bytes));
  const Unit unit = unit_for(most);
  return {unit, most / unit.bytes * 1.03};
}

std::string titles(const ReplayReport& r) {
  const size_t slash = r.trace.find_last_of('/');
  const std::string file = slash == std::string::npos ? r.trace : r.trace.substr(slash + 1);
  return text_at(left, 26, "start", "Expert hit rate against memory",
                 " font-size=\"17\" font-weight=\"600\"") +
         text_at(left, 46, "start",
                 fmt::format("{}{}: {}{}", r.model_name.empty() ? "" : r.model_name + ", ", file,
                             quantity(r.reported_tokens(), "token"),
                             r.phase ? fmt::format(" of {}", phase_name(*r.phase)) : ""),
                 " fill=\"#555\"");
}

std::string axes(const Scale& scale) {
  std::string out;
  for (int percent = 0; percent <= 100; percent += 20) {
    const double y = Scale::y(percent / 100.0);
    out += line(left, y, width - right, y, percent == 0 ? "#333" : "#e3e3e3");
    out += text_at(left - 9, y + 4, "end", fmt::format("{} %", percent));
  }
  const double step = nice_step(scale.most);
  for (double v = 0; v <= scale.most; v += step) {
    const double x = scale.x(v * scale.unit.bytes), base = top + plot_height;
    out += line(x, base, x, base + 5, "#333");
    out += text_at(x, base + 20, "middle", fmt::format("{:g}", v));
  }
  out += line(left, top, left, top + plot_height, "#333");
  out += text_at(left + plot_width / 2, height - 12, "middle",
                 fmt::format("memory of the experts' slots, {}", scale.unit.name));
  const double middle = top + plot_height / 2;
  return out + text_at(18, middle, "middle", "hit rate",
                       fmt::format(" transform=\"rotate(-90 18 {:.1f})\"", middle));
}

/// Slots a layer, above the plot, where there is room for the number.
std::string slot_axis(const ReplayReport& r, const Scale& scale) {
  constexpr double closest = 26;
  std::string out = text_at(width - right, top - 28, "end", "slots a layer", " fill=\"#555\"");
  double last = -closest;
  for (const ReplayRow& row : r.rows) {
    const double x = scale.x(static_cast<double>(row.memory_bytes));
    if (x - last < closest) continue;
    last = x;
    out += line(x, top - 5, x, top, "#999");
    out += text_at(x, top - 10, "middle", std::to_string(row.slots), " fill=\"#555\"");
  }
  return out;
}

std::string curve(const ReplayReport& r, const Style& style, const Scale& scale) {
  std::string points, marks;
  for (const ReplayRow& row : r.rows) {
    if (&style_of(row) != &style) continue;
    const double x = scale.x(static_cast<double>(row.memory_bytes)), y = Scale::y(row.total.hit_rate());
    points += fmt::format("{}{:.1f},{:.1f}", points.empty() ? "" : " ", x, y);
    marks += fmt::format(
        "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.5\" fill=\"{}\"><title>{}, {} slots: {:.2f} %"
        "</title></circle>\n",
        x, y, style.colour, style.label, row.slots, 100 * row.total.hit_rate());
  }
  if (points.empty()) return "";
  const std::string dash = *style.dash ? fmt::format(" stroke-dasharray=\"{}\"", style.dash) : "";
  return fmt::format("<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"{}/>\n", points,
                     style.colour, dash) +
         marks;
}

/// Where the first policy first reaches 80 and 90 %, among the counts that were replayed: a line down to the
/// memory it takes, and both in words.
std::string crossings(const ReplayReport& r, const Scale& scale) {
  if (r.rows.empty()) return "";
  const Style& style = style_of(r.rows.front());
  std::string out;
  for (const int percent : {80, 90}) {
    const auto row = std::find_if(r.rows.begin(), r.rows.end(), [&](const ReplayRow& it) {
      return &style_of(it) == &style && it.total.hit_rate() >= percent / 100.0;
    });
    if (row == r.rows.end()) continue;
    const double x = scale.x(static_cast<double>(row->memory_bytes)), base = top + plot_height;
    const double y = Scale::y(row->total.hit_rate());
    out += fmt::format(
        "<line x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{0:.1f}\" y2=\"{2:.1f}\" stroke=\"{3}\" "
        "stroke-dasharray=\"2 3\"/>\n<circle cx=\"{0:.1f}\" cy=\"{1:.1f}\" r=\"7\" fill=\"none\" "
        "stroke=\"{3}\" stroke-width=\"2\"/>\n",
        x, y, base, style.colour);
    // Upright, left of its line: two crossings can be close.
    out += text_at(0, 0, "start",
                   fmt::format("{} %: {} slots, {}", percent, row->slots, human_bytes(row->memory_bytes)),
                   fmt::format(" fill=\"{}\" transform=\"translate({:.1f} {:.1f}) rotate(-90)\"",
                               style.colour, x - 5, base - 6));
  }
  return out;
}

/// Bottom right: curves that rise leave that corner free.
std::string legend(const ReplayReport& r) {
  constexpr double row_height = 21, box_width = 168;
  std::vector<const Style*> shown;
  for (const Style& style : styles)
    if (std::any_of(r.rows.begin(), r.rows.end(), [&](const auto& row) { return &style_of(row) == &style; }))
      shown.push_back(&style);
  const double x = width - right - box_width - 12;
  double y = top + plot_height - 16 - row_height * static_cast<double>(shown.size());
  std::string out = fmt::format(
      "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{}\" height=\"{:.1f}\" fill=\"#fff\" stroke=\"#ccc\"/>\n", x,
      y, box_width, row_height * static_cast<double>(shown.size()) + 6);
  for (const Style* style : shown) {
    y += row_height;
    const std::string dash = *style->dash ? fmt::format(" stroke-dasharray=\"{}\"", style->dash) : "";
    out += fmt::format(
        "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\" "
        "stroke-width=\"2\"{}/>\n",
        x + 10, y - 6, x + 42, y - 6, style->colour, dash);
    out += text_at(x + 52, y - 2, "start", style->label);
  }
  return out;
}

}  // namespace

std::string replay_svg(const ReplayReport& report) {
  const Scale scale = scale_for(report.rows);
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
      "font-family=\"system-ui, sans-serif\" font-size=\"13\" fill=\"#222\">\n"
      "<rect width=\"{0}\" height=\"{1}\" fill=\"#fff\"/>\n",
      width, height);
  out += titles(report) + axes(scale) + slot_axis(report, scale);
  for (auto style = std::rbegin(styles); style != std::rend(styles); ++style)
    out += curve(report, *style, scale);  // the first policy on top
  return out + crossings(report, scale) + legend(report) + "</svg>\n";
}

}  // namespace weir::lab
