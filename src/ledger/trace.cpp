// docs/json.md describes the file. Written by hand rather than through the JSON library: every string is one
// of ours and needs no escape, and times keep their nanoseconds exactly. The three kinds of events are each
// in order of time and are merged on the way out, so that no event is held in memory.
#include "ledger/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "base/file.h"

namespace weir {
namespace {

// Track ids, which are also their order on the page.
constexpr int rounds_track = 0;
constexpr int first_lane_track = 1;   // + LaneKind
constexpr int first_read_track = 10;  // + how many reads were in flight
constexpr int lane_kinds = 3;

/// Events of one track must not overlap, so each read takes the first track that is free when it begins.
class ReadTracks {
 public:
  int take(const Span& read) {
    size_t track = 0;
    while (track < free_at_.size() && free_at_[track] > read.begin_ns) ++track;
    if (track == free_at_.size()) free_at_.push_back(0);
    free_at_[track] = read.end_ns;
    return static_cast<int>(track);
  }
  int count() const { return static_cast<int>(free_at_.size()); }

 private:
  std::vector<uint64_t> free_at_;
};

/// Which spans are shown: roles by the order they have in the ring, reads (which end in order) by their
/// begin.
struct Selection {
  std::vector<uint32_t> roles, reads;
  uint64_t origin_ns = 0;
  bool lanes[lane_kinds] = {};
  int read_tracks = 0;

  explicit Selection(const Ledger& ledger) {
    const uint64_t first = ledger.rounds_kept() > 0 ? ledger.kept_round(0).begin_ns : 0;
    uint32_t role_spans = 0, read_spans = 0;
    const auto each = [&](auto&& visit) {
      for (uint32_t i = 0; i < ledger.spans_kept(); ++i)
        if (ledger.kept_span(i).begin_ns >= first) visit(i, ledger.kept_span(i));
    };
    each([&](uint32_t, const Span& span) { ++(span.track == 1 ? read_spans : role_spans); });
    roles.reserve(role_spans), reads.reserve(read_spans);
    each([&](uint32_t i, const Span& span) { (span.track == 1 ? reads : roles).push_back(i); });
    const auto earlier = [&](uint32_t a, uint32_t b) {
      const uint64_t x = ledger.kept_span(a).begin_ns, y = ledger.kept_span(b).begin_ns;
      return x != y ? x < y : a < b;
    };
    std::sort(reads.begin(), reads.end(), earlier);
    std::sort(roles.begin(), roles.end(), earlier);
    for (const uint32_t i : roles)
      lanes[static_cast<int>(role_lane(static_cast<Role>(ledger.kept_span(i).name)))] = true;
    ReadTracks tracks;
    for (const uint32_t i : reads) tracks.take(ledger.kept_span(i));
    read_tracks = tracks.count();
    origin_ns = UINT64_MAX;
    if (ledger.rounds_kept() > 0) origin_ns = first;
    if (!roles.empty()) origin_ns = std::min(origin_ns, ledger.kept_span(roles.front()).begin_ns);
    if (!reads.empty()) origin_ns = std::min(origin_ns, ledger.kept_span(reads.front()).begin_ns);
  }
};

std::string lane_name(LaneKind lane, const std::string& gpu) {
  switch (lane) {
    case LaneKind::device:
      return gpu.empty() ? "engine thread (cpu): computing" : gpu + ": computing";
    case LaneKind::side:
      return gpu.empty() ? "engine thread (cpu): waiting for expert reads"
                         : "engine thread: waiting for reads and copies";
    case LaneKind::host:
      break;
  }
  return gpu.empty() ? "engine thread (cpu): scheduling, sampling, replying"
                     : "engine thread: scheduling, sampling, replying";
}

/// Microseconds with all three decimals.
std::string us(uint64_t ns) { return fmt::format("{}.{:03}", ns / 1000, ns % 1000); }

class Writer {
 public:
  Writer(const Ledger& ledger, const std::string& gpu, const std::function<void(std::string_view)>& sink)
      : ledger_(ledger), gpu_(gpu), sink_(sink), shown_(ledger) {
    text_.reserve(trace_write_bytes);
  }

  void write() {
    text_ = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n";
    put(R"({{"ph":"M","pid":1,"name":"process_name","args":{{"name":"weir"}}}})");
    if (ledger_.rounds_kept() > 0) track(rounds_track, "rounds");
    for (int lane = 0; lane < lane_kinds; ++lane)
      if (shown_.lanes[lane]) track(first_lane_track + lane, lane_name(static_cast<LaneKind>(lane), gpu_));
    for (int i = 0; i < shown_.read_tracks; ++i)
      track(first_read_track + i, fmt::format("expert reads, {}", i + 1));
    events();
    put("\n],\"otherData\":{{\"device\":\"{}\",\"rounds_dropped\":{},\"spans_dropped\":{}}}}}\n",
        gpu_.empty() ? "cpu" : gpu_, ledger_.rounds_dropped(), ledger_.spans_dropped());
    sink_(text_);
  }

 private:
  template <typename... Args>
  void put(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
    if (text_.size() < trace_write_bytes / 2) return;
    sink_(text_);
    text_.clear();
  }

  void track(int id, const std::string& name) {
    put(",\n"
        R"({{"ph":"M","pid":1,"tid":{},"name":"thread_name","args":{{"name":"{}"}}}})",
        id, name);
    put(",\n"
        R"({{"ph":"M","pid":1,"tid":{0},"name":"thread_sort_index","args":{{"sort_index":{0}}}}})",
        id);
  }

  void event(int id, uint64_t begin_ns, uint64_t end_ns, const std::string& name, const std::string& args) {
    put(",\n"
        R"({{"ph":"X","pid":1,"tid":{},"ts":{},"dur":{},"name":"{}","args":{{{}}}}})",
        id, us(begin_ns - shown_.origin_ns), us(end_ns - begin_ns), name, args);
  }

  void round_event(const RoundReport& r) {
    event(rounds_track, r.begin_ns, r.end_ns, phase_name(r.phase),
          fmt::format(R"("round":{},"rows":{},"lanes":{},"tokens":{},"hits":{},"misses":{},"injected":{})",
                      r.index, r.rows, r.lanes, r.tokens, r.experts.hits, r.experts.misses, r.injected));
  }

  void role_event(const Span& span) {
    const auto role = static_cast<Role>(span.name);
    event(first_lane_track + static_cast<int>(role_lane(role)), span.begin_ns, span.end_ns, role_name(role),
          "");
  }

  void read_event(const Span& span, int read_track) {
    event(first_read_track + read_track, span.begin_ns, span.end_ns,
          fmt::format("layer {} expert {}", span.name, span.expert),
          fmt::format(R"("layer":{},"expert":{},"bytes":{})", span.name, span.expert, span.value));
  }

  /// The earliest of the three heads, again and again; at one time the round comes first, then the role.
  void events() {
    size_t round = 0, role = 0, read = 0;
    ReadTracks tracks;
    for (;;) {
      const uint64_t at_round =
          round < ledger_.rounds_kept() ? ledger_.kept_round(round).begin_ns : UINT64_MAX;
      const uint64_t at_role =
          role < shown_.roles.size() ? ledger_.kept_span(shown_.roles[role]).begin_ns : UINT64_MAX;
      const uint64_t at_read =
          read < shown_.reads.size() ? ledger_.kept_span(shown_.reads[read]).begin_ns : UINT64_MAX;
      const uint64_t next = std::min({at_round, at_role, at_read});
      if (next == UINT64_MAX) return;
      if (next == at_round) {
        round_event(ledger_.kept_round(round++));
      } else if (next == at_role) {
        role_event(ledger_.kept_span(shown_.roles[role++]));
      } else {
        const Span& span = ledger_.kept_span(shown_.reads[read++]);
        read_event(span, tracks.take(span));
      }
    }
  }

  const Ledger& ledger_;
  const std::string& gpu_;
  const std::function<void(std::string_view)>& sink_;
  Selection shown_;
  std::string text_;
};

}  // namespace

void write_trace(const Ledger& ledger, const std::string& gpu,
                 const std::function<void(std::string_view)>& sink) {
  Writer(ledger, gpu, sink).write();
}

std::string trace_json(const Ledger& ledger, const std::string& gpu) {
  std::string text;
  write_trace(ledger, gpu, [&](std::string_view piece) { text += piece; });
  return text;
}

void write_trace(const Ledger& ledger, const std::string& gpu, const std::string& path) {
  AtomicFile file(path);
  write_trace(ledger, gpu, [&](std::string_view piece) { file.write(piece.data(), piece.size()); });
  file.commit();
}

}  // namespace weir
