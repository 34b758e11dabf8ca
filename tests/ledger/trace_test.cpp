// The Chrome trace: valid JSON, ordered and disjoint events on named tracks, the last rounds only, written
// whole.
#include "ledger/trace.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "base/error.h"
#include "ledger/fake_clock.h"

namespace weir {
namespace {

using Json = nlohmann::json;

LedgerOptions traced() {
  LedgerOptions options = on_fake_clock();
  options.trace = true;
  return options;
}

void generate(Ledger& ledger, int rounds) {
  ledger.begin_generation(Role::tokenize);
  FakeClock::now += 1'234;
  for (int i = 0; i < rounds; ++i) {
    ledger.begin_round(i == 0 ? Phase::prefill : Phase::decode);
    for (int layer = 0; layer < 2; ++layer) {
      spend(ledger, Role::attention, 5'001);
      // Three reads, two of them at a time, filed in order of completion.
      const uint64_t t = FakeClock::now;
      ledger.read_span(t + 200, t + 300, layer, 7, 4096);
      ledger.read_span(t + 300, t + 900, layer, 8, 4096);
      ledger.read_span(t + 100, t + 1'000, layer, 31, 8192);
      spend(ledger, Role::expert_wait, 2'000);
      spend(ledger, Role::experts_miss, 3'000);
    }
    spend(ledger, Role::sample, 500);
    ledger.end_round(1, 1);
  }
  spend(ledger, Role::reply, 777);
  ledger.end_generation();
}

int64_t to_ns(const Json& us) { return std::llround(us.get<double>() * 1000); }

TEST(LedgerTrace, EventsAreOrderedAndDisjointOnEachTrack) {
  Ledger ledger(traced());
  generate(ledger, 5);
  const Json trace = Json::parse(trace_json(ledger));
  std::map<int, int64_t> track_end;
  int64_t last = 0;
  int events = 0;
  for (const Json& event : trace["traceEvents"]) {
    if (event["ph"] != "X") continue;
    ++events;
    const int64_t ts = to_ns(event["ts"]);
    EXPECT_GE(ts, last) << "sorted by time";
    last = ts;
    EXPECT_GE(ts, track_end[event["tid"]]) << event << " overlaps the one before on its track";
    track_end[event["tid"]] = ts + to_ns(event["dur"]);
  }
  EXPECT_EQ(events, 1 + 5 + 5 * 7 + 5 * 6 + 1);
}

TEST(LedgerTrace, RoleEventsAddUpToWall) {
  Ledger ledger(traced());
  generate(ledger, 5);
  int64_t roles = 0;
  const Json trace = Json::parse(trace_json(ledger));
  for (const Json& event : trace["traceEvents"])
    if (event["ph"] == "X" && event["tid"] >= 1 && event["tid"] < 10) roles += to_ns(event["dur"]);
  EXPECT_EQ(static_cast<uint64_t>(roles), ledger.generation_wall_ns());
}

TEST(LedgerTrace, ReadsCarryTheirExpert) {
  Ledger ledger(traced());
  generate(ledger, 1);
  const Json trace = Json::parse(trace_json(ledger));
  std::map<std::string, Json> reads;
  for (const Json& event : trace["traceEvents"])
    if (event["ph"] == "X" && event["tid"] >= 10) reads[event["name"]] = event["args"];
  EXPECT_EQ(reads, (std::map<std::string, Json>{
                       {"layer 0 expert 7", {{"layer", 0}, {"expert", 7}, {"bytes", 4096}}},
                       {"layer 0 expert 8", {{"layer", 0}, {"expert", 8}, {"bytes", 4096}}},
                       {"layer 0 expert 31", {{"layer", 0}, {"expert", 31}, {"bytes", 8192}}},
                       {"layer 1 expert 7", {{"layer", 1}, {"expert", 7}, {"bytes", 4096}}},
                       {"layer 1 expert 8", {{"layer", 1}, {"expert", 8}, {"bytes", 4096}}},
                       {"layer 1 expert 31", {{"layer", 1}, {"expert", 31}, {"bytes", 8192}}}}));
}

std::map<int, std::string> track_names(const Json& trace) {
  std::map<int, std::string> names;
  for (const Json& event : trace["traceEvents"])
    if (event["ph"] == "M" && event["name"] == "thread_name") names[event["tid"]] = event["args"]["name"];
  return names;
}

TEST(LedgerTrace, AGpusTracksBearItsName) {
  Ledger ledger(traced());
  generate(ledger, 1);
  const Json trace = Json::parse(trace_json(ledger, "cuda:0: NVIDIA H200"));
  const auto names = track_names(trace);
  EXPECT_EQ(names.at(1), "cuda:0: NVIDIA H200: computing");
  EXPECT_EQ(names.at(2), "engine thread: waiting for reads and copies");
  EXPECT_EQ(names.at(3), "engine thread: scheduling, sampling, replying");
  EXPECT_EQ(trace["otherData"]["device"], "cuda:0: NVIDIA H200");
}

TEST(LedgerTrace, ALongTraceIsHandedOutInPieces) {
  Ledger ledger(traced());
  generate(ledger, 200);
  std::string text;
  size_t longest = 0;
  write_trace(ledger, "",
              [&](std::string_view piece) { text += piece, longest = std::max(longest, piece.size()); });
  EXPECT_EQ(text, trace_json(ledger));
  EXPECT_GT(text.size(), 10 * trace_write_bytes);
  EXPECT_LE(longest, trace_write_bytes) << "what the plan counts";
}

TEST(LedgerTrace, TracksAreNamedByWhatRunsThere) {
  Ledger ledger(traced());
  generate(ledger, 2);
  std::map<std::string, int> track_of;
  const Json trace = Json::parse(trace_json(ledger));
  for (const Json& event : trace["traceEvents"]) {
    if (event["ph"] == "X") track_of[event["name"]] = event["tid"];
  }
  EXPECT_EQ(track_names(trace),
            (std::map<int, std::string>{{0, "rounds"},
                                        {1, "engine thread (cpu): computing"},
                                        {2, "engine thread (cpu): waiting for expert reads"},
                                        {3, "engine thread (cpu): scheduling, sampling, replying"},
                                        {10, "expert reads, 1"},
                                        {11, "expert reads, 2"}}));
  EXPECT_EQ(track_of["decode"], 0);
  EXPECT_EQ(track_of["attention"], 1);
  EXPECT_EQ(track_of["expert_wait"], 2);
  EXPECT_EQ(track_of["reply"], 3);
}

TEST(LedgerTrace, OnlyTheLastRoundsAreKeptAndDropsAreSaid) {
  LedgerOptions options = traced();
  options.ring_rounds = 3;
  Ledger ledger(options);
  generate(ledger, 10);
  const Json trace = Json::parse(trace_json(ledger));
  int rounds = 0, samples = 0;
  for (const Json& event : trace["traceEvents"]) {
    rounds += event["ph"] == "X" && event["tid"] == 0;
    samples += event["name"] == "sample";
  }
  EXPECT_EQ(rounds, 3);
  EXPECT_EQ(samples, 3);
  EXPECT_EQ(trace["otherData"]["rounds_dropped"], 7);
}

TEST(LedgerTrace, AnEmptyTraceIsValidToo) {
  const Ledger ledger(traced());
  EXPECT_EQ(Json::parse(trace_json(ledger))["traceEvents"].size(), 1u);
}

TEST(LedgerTrace, TheFileIsWrittenWholeAndReplaced) {
  Ledger ledger(traced());
  generate(ledger, 2);
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("weir-trace-" + std::to_string(getpid()));
  std::filesystem::create_directory(folder);
  const std::string path = folder / "trace.json";
  std::ofstream(path) << "old";
  write_trace(ledger, "", path);
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  EXPECT_EQ(text.str(), trace_json(ledger));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1) << "no temporary is left";
  std::filesystem::remove_all(folder);
}

TEST(LedgerTrace, AFileThatCannotBeWrittenIsNamed) {
  const Ledger ledger(traced());
  try {
    write_trace(ledger, "", "/nonexistent/trace.json");
    ADD_FAILURE() << "written";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("/nonexistent/trace.json"), std::string::npos) << error.what();
    EXPECT_EQ(error.exit_code(), 2);
  }
}

}  // namespace
}  // namespace weir
