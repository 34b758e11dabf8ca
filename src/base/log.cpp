#include "base/log.h"

#include <unistd.h>

#include <cstdio>
#include <mutex>
#include <set>

#include "base/clock.h"

namespace weir {

namespace {

/// Whether `message` is new. What is beyond the bound is said each time.
bool first_time(const std::string& message) {
  constexpr size_t most_kept = 256;
  static std::mutex mutex;
  static std::set<std::string> said;
  const std::lock_guard lock(mutex);
  return said.size() >= most_kept ? said.count(message) == 0 : said.insert(message).second;
}

}  // namespace

void log_line(const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); }

std::string printable(const std::string& text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f)
      out += fmt::format("\\x{:02x}", byte);
    else
      out += c;
  }
  return out;
}

void log_warning(const std::string& message) {
  if (first_time(message)) std::fprintf(stderr, "weir: warning: %s\n", printable(message).c_str());
}

Progress::Progress(std::string what, uint64_t total, std::string unit)
    : what_(std::move(what)),
      unit_(std::move(unit)),
      total_(total),
      begin_ns_(now_ns()),
      terminal_(isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() {
  if (drawn_) std::fprintf(stderr, "\r\033[K");
}

void Progress::update(uint64_t done) {
  if (!terminal_) return;
  const uint64_t now = now_ns();
  if (drawn_ && now - last_draw_ns_ < 100'000'000) return;
  last_draw_ns_ = now;
  drawn_ = true;
  const double percent = total_ ? 100.0 * static_cast<double>(done) / static_cast<double>(total_) : 100.0;
  std::string line = unit_ == "bytes"
                         ? fmt::format("{} {:.0f} % of {}", what_, percent, human_bytes(total_))
                         : fmt::format("{} {}/{} {} ({:.0f} %)", what_, done, total_, unit_, percent);
  const double elapsed = static_cast<double>(now - begin_ns_) * 1e-9;
  if (elapsed >= 2 && done > 0 && done < total_)
    line += fmt::format(", {} left", human_duration(elapsed * static_cast<double>(total_ - done) /
                                                    static_cast<double>(done)));
  std::fprintf(stderr, "\r\033[K%s", line.c_str());
  std::fflush(stderr);
}

std::string human_duration(double seconds) {
  const auto s = static_cast<uint64_t>(seconds + 0.5);
  if (s < 60) return fmt::format("{} s", s);
  if (s < 3600) return fmt::format("{} min {} s", s / 60, s % 60);
  return fmt::format("{} h {} min", s / 3600, s / 60 % 60);
}

std::string human_bytes(uint64_t bytes) {
  static constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  while (value >= 1024 && unit < 4) value /= 1024, ++unit;
  if (unit == 0) return fmt::format("{} B", bytes);
  return fmt::format("{:.{}f} {}", value, value >= 100 ? 0 : value >= 10 ? 1 : 2, units[unit]);
}

}  // namespace weir
