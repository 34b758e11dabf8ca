// See trace.h. Written by hand rather than through the JSON library: every string is one of ours and needs no
// escape, and times keep their nanoseconds exactly.
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

struct Event {
  uint64_t begin_ns, end_ns;
  int track;
  std::string name, args;  ///< args: the inside of a JSON object
};

Event role_event(const Span& span) {
  const auto role = static_cast<Role>(span.name);
  return {span.begin_ns, span.end_ns, first_lane_track + static_cast<int>(role_lane(role)), role_name(role),
          ""};
}

Event round_event(const RoundReport& round) {
  return {round.begin_ns, round.end_ns, rounds_track, phase_name(round.phase),
          fmt::format(R"("round":{},"rows":{},"lanes":{},"tokens":{},"hits":{},"misses":{},"injected":{})",
                      round.index, round.rows, round.lanes, round.tokens, round.experts.hits,
                      round.experts.misses, round.injected)};
}

/// Events of one track must not overlap, so each read takes the first track that is free when it begins.
void append_reads(std::vector<Event>& events, std::vector<Span> reads) {
  std::stable_sort(reads.begin(), reads.end(),
                   [](const Span& a, const Span& b) { return a.begin_ns < b.begin_ns; });
  std::vector<uint64_t> free_at;
  for (const Span& read : reads) {
    size_t track = 0;
    while (track < free_at.size() && free_at[track] > read.begin_ns) ++track;
    if (track == free_at.size()) free_at.push_back(0);
    free_at[track] = read.end_ns;
    events.push_back({read.begin_ns, read.end_ns, first_read_track + static_cast<int>(track),
                      fmt::format("layer {}", read.name), fmt::format(R"("bytes":{})", read.value)});
  }
}

std::vector<Event> collect(const Ledger& ledger) {
  const std::vector<RoundReport> rounds = ledger.ring();
  const uint64_t first = rounds.empty() ? 0 : rounds.front().begin_ns;
  std::vector<Event> events;
  std::vector<Span> reads;
  for (const RoundReport& round : rounds) events.push_back(round_event(round));
  for (const Span& span : ledger.spans()) {
    if (span.begin_ns < first) continue;
    if (span.track == 1)
      reads.push_back(span);
    else
      events.push_back(role_event(span));
  }
  append_reads(events, std::move(reads));
  std::stable_sort(events.begin(), events.end(),
                   [](const Event& a, const Event& b) { return a.begin_ns < b.begin_ns; });
  return events;
}

std::string track_name(int track) {
  if (track == rounds_track) return "rounds";
  if (track >= first_read_track) return fmt::format("expert read {}", track - first_read_track);
  switch (static_cast<LaneKind>(track - first_lane_track)) {
    case LaneKind::device:
      return "device lane";
    case LaneKind::side:
      return "waiting for a side lane";
    case LaneKind::host:
      break;
  }
  return "host";
}

/// Microseconds with all three decimals.
std::string us(uint64_t ns) { return fmt::format("{}.{:03}", ns / 1000, ns % 1000); }

}  // namespace

std::string trace_json(const Ledger& ledger) {
  const std::vector<Event> events = collect(ledger);
  std::vector<int> tracks;
  for (const Event& event : events) tracks.push_back(event.track);
  std::sort(tracks.begin(), tracks.end());
  tracks.erase(std::unique(tracks.begin(), tracks.end()), tracks.end());

  std::string text = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n";
  auto out = std::back_inserter(text);
  fmt::format_to(out, R"({{"ph":"M","pid":1,"name":"process_name","args":{{"name":"weir"}}}})");
  for (const int track : tracks) {
    fmt::format_to(out,
                   ",\n"
                   R"({{"ph":"M","pid":1,"tid":{},"name":"thread_name","args":{{"name":"{}"}}}})",
                   track, track_name(track));
    fmt::format_to(out,
                   ",\n"
                   R"({{"ph":"M","pid":1,"tid":{0},"name":"thread_sort_index","args":{{"sort_index":{0}}}}})",
                   track);
  }
  const uint64_t origin = events.empty() ? 0 : events.front().begin_ns;
  for (const Event& event : events)
    fmt::format_to(out,
                   ",\n"
                   R"({{"ph":"X","pid":1,"tid":{},"ts":{},"dur":{},"name":"{}","args":{{{}}}}})",
                   event.track, us(event.begin_ns - origin), us(event.end_ns - event.begin_ns), event.name,
                   event.args);
  fmt::format_to(out, "\n],\"otherData\":{{\"rounds_dropped\":{},\"spans_dropped\":{}}}}}\n",
                 ledger.rounds_dropped(), ledger.spans_dropped());
  return text;
}

void write_trace(const Ledger& ledger, const std::string& path) {
  write_file_atomically(path, trace_json(ledger));
}

}  // namespace weir
