#include "lab/profile/table.h"

#include <fmt/format.h>

#include <algorithm>

namespace weir::lab {

namespace {

std::string markdown_row(const std::vector<std::string>& cells, size_t columns) {
  std::string line = "|";
  for (size_t c = 0; c < columns; ++c) line += fmt::format(" {} |", c < cells.size() ? cells[c] : "");
  return line + "\n";
}

std::string text_row(const std::vector<std::string>& cells, const std::vector<size_t>& widths) {
  std::string line;
  for (size_t c = 0; c < cells.size(); ++c)
    line +=
        c == 0 ? fmt::format("  {:<{}}", cells[c], widths[c]) : fmt::format("  {:>{}}", cells[c], widths[c]);
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

}  // namespace

std::string print_table(const Table& table, Layout layout) {
  const size_t columns = table.header.size();
  std::string out;
  if (layout == Layout::markdown) {
    out = markdown_row(table.header, columns) + "|---|";
    for (size_t c = 1; c < columns; ++c) out += "---:|";
    out += "\n";
    for (const auto& row : table.rows) out += markdown_row(row, columns);
    return out;
  }
  std::vector<size_t> widths(columns, 0);
  const auto widen = [&](const std::vector<std::string>& cells) {
    for (size_t c = 0; c < cells.size() && c < columns; ++c) widths[c] = std::max(widths[c], cells[c].size());
  };
  widen(table.header);
  for (const auto& row : table.rows) widen(row);
  out = text_row(table.header, widths);
  for (const auto& row : table.rows) out += text_row(row, widths);
  return out;
}

std::string wrap(const std::string& text, size_t width, const std::string& indent) {
  std::string out, line;
  size_t at = 0;
  while (at < text.size()) {
    size_t end = text.find(' ', at);
    if (end == std::string::npos) end = text.size();
    const std::string word = text.substr(at, end - at);
    at = end + 1;
    if (!line.empty() && line.size() + 1 + word.size() > width) {
      out += line + "\n";
      line = indent + word;
    } else {
      line += line.empty() || line == indent ? word : " " + word;
    }
  }
  return out + line + "\n";
}

}  // namespace weir::lab
