// Everything a person reads besides the requested output goes to stderr through here.
#pragma once

#include <fmt/core.h>

#include <string>
#include <utility>

namespace weir {

/// `text` with control characters as \xNN, so that what a file or an argument holds cannot break a line or a
/// terminal.
std::string printable(const std::string& text);
/// One line on stderr.
void log_line(const std::string& line);
/// "weir: warning: ..." on stderr, unless this process has said the same before: an engine may be opened many
/// times.
void log_warning(const std::string& message);

template <typename... Args>
void warn(fmt::format_string<Args...> format, Args&&... args) {
  log_warning(fmt::format(format, std::forward<Args>(args)...));
}

/// A progress line that overwrites itself on a terminal and prints nothing elsewhere. Once it has run for two
/// seconds it says how long the rest will take at the same pace. update() is cheap to call often: it draws at
/// most ten times a second.
class Progress {
 public:
  Progress(std::string what, uint64_t total, std::string unit);
  ~Progress();  ///< clears the line
  void update(uint64_t done);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

 private:
  std::string what_, unit_;
  uint64_t total_;
  uint64_t begin_ns_, last_draw_ns_ = 0;
  bool terminal_;
  bool drawn_ = false;
};

/// "45 s", "3 min 20 s", "2 h 5 min".
std::string human_duration(double seconds);

/// "3.00 GiB", "17.2 MiB", "912 B": binary units, three significant digits.
std::string human_bytes(uint64_t bytes);

}  // namespace weir
