// A small table that prints as aligned text or as Markdown.
#pragma once

#include <string>
#include <vector>

namespace weir::lab {

enum class Layout { text, markdown };

/// The first column is left-aligned, the others right-aligned. Rows may be shorter than the header.
struct Table {
  std::vector<std::string> header;
  std::vector<std::vector<std::string>> rows;
};

/// Several lines, each ended.
std::string print_table(const Table& table, Layout layout);

/// `text` broken at spaces so that no line is longer than `width`, every line after the first indented.
std::string wrap(const std::string& text, size_t width, const std::string& indent);

}  // namespace weir::lab
