// Observing must not change the run: with and without instruments the plan comes to the same, or one line
// says what they cost and names a budget that keeps it, by which it is kept.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <regex>
#include <string>

#include "engine/engine.h"
#include "support/paths.h"
#include "support/temp_dir.h"

namespace weir {
namespace {

constexpr uint64_t mib = uint64_t{1} << 20;

enum class Instrument { ledger, trace, routes, all };

EngineOptions plain(uint64_t memory, int context = 256) {
  EngineOptions o;
  o.model = testing::pocket_model();
  o.threads = 2;
  o.context = context;
  o.memory = memory;
  o.text = "hello";
  o.new_tokens = 96;
  return o;
}

EngineOptions observed(EngineOptions o, Instrument instrument) {
  if (instrument != Instrument::routes) o.ledger.enabled = o.ledger.fit = true;
  if (instrument == Instrument::trace || instrument == Instrument::all) o.ledger.trace = true;
  if (instrument == Instrument::routes || instrument == Instrument::all) o.route_trace = "unwritten.routes";
  return o;
}

struct Setting {
  int slots, context, chunk;
  bool as_good_as(const Setting& o) const {
    return slots >= o.slots && context >= o.context && chunk >= o.chunk;
  }
};

Setting setting_of(const Engine& engine) {
  return {engine.plan().slots, engine.context(), engine.options().prefill_chunk};
}

/// The line on what instruments cost; nothing where there is none.
std::optional<std::string> cost_line(const Engine& engine) {
  for (const auto& warning : engine.plan().warnings)
    if (warning.find(" the place of ") != std::string::npos) return warning;
  return std::nullopt;
}

/// The value of --memory in it.
uint64_t named_budget(const std::string& line) {
  std::smatch found;
  if (!std::regex_search(line, found, std::regex("--memory (\\S+) keeps"))) return 0;
  return parse_bytes("--memory", found[1]);
}

/// Whether the line was there.
bool check(EngineOptions o, Instrument instrument) {
  const Setting without = setting_of(Engine(o));
  const EngineOptions with_instrument = observed(o, instrument);
  const Engine with(with_instrument);
  EXPECT_GT(with.plan().request.instrument_bytes, 0u);
  const auto line = cost_line(with);
  EXPECT_EQ(line.has_value(), !setting_of(with).as_good_as(without)) << line.value_or("no line");
  if (!line) return false;
  EngineOptions larger = with_instrument;
  larger.memory = named_budget(*line);
  EXPECT_GT(*larger.memory, *o.memory) << *line;
  EXPECT_LE(*larger.memory, *o.memory + mib) << *line;
  if (*larger.memory > 0) {
    EXPECT_TRUE(setting_of(Engine(larger)).as_good_as(without)) << *line;
  }
  return true;
}

TEST(Instruments, TheyCostNothingOrTheLineSaysWhatAndTheNamedBudgetKeepsIt) {
  int lines = 0, runs = 0;
  for (const auto instrument : {Instrument::ledger, Instrument::trace, Instrument::routes, Instrument::all})
    for (uint64_t memory = 18 * mib; memory < 34 * mib; memory += 613'000) {
      SCOPED_TRACE(::testing::Message() << memory << " bytes, instrument " << static_cast<int>(instrument));
      ++runs;
      lines += check(plain(memory), instrument);
    }
  EXPECT_GT(lines, 0) << "no budget was tight";
  EXPECT_LT(lines, runs / 4) << "instruments cost slots too often";
}

TEST(Instruments, AContextThatShrinksIsAmongWhatTheyCost) {
  int lines = 0;
  for (const auto instrument : {Instrument::ledger, Instrument::all})
    for (uint64_t memory = 18 * mib; memory < 22 * mib; memory += 413'000) {
      SCOPED_TRACE(::testing::Message() << memory << " bytes, instrument " << static_cast<int>(instrument));
      lines += check(plain(memory, 0), instrument);
    }
  EXPECT_GT(lines, 0);
}

TEST(Instruments, In20MiBThePocketModelKeepsItsSlots) {
  const int slots = Engine(plain(20 * mib)).plan().slots;
  EXPECT_EQ(Engine(observed(plain(20 * mib), Instrument::ledger)).plan().slots, slots);
  EXPECT_EQ(Engine(observed(plain(20 * mib), Instrument::trace)).plan().slots, slots);
}

TEST(Instruments, RingsAreNoLongerThanTheRun) {
  EngineOptions o = observed(plain(64 * mib), Instrument::trace);
  o.new_tokens = 10;
  const Engine engine(o);
  EXPECT_LE(engine.options().ledger.ring_rounds, 13);
  EXPECT_GE(engine.options().ledger.ring_rounds, 11);
  EXPECT_LT(engine.options().ledger.ring_spans, 8000);
  o.ledger.fit = false;
  EXPECT_EQ(Engine(o).options().ledger.ring_rounds, LedgerOptions{}.ring_rounds);
}

TEST(Instruments, TheRingsHoldTheWholeRunWhereThereIsRoom) {
  const test::TempDir dir;
  EngineOptions o = observed(plain(64 * mib), Instrument::trace);
  o.expert_slots = 6;
  Engine engine(o);
  engine.load();
  Request request;
  request.prompt = {100, 200, 300, 400, 500};
  request.max_tokens = o.new_tokens;
  request.sampler.greedy = request.ignore_eos = true;
  engine.run(std::move(request));
  EXPECT_EQ(engine.ledger()->rounds_dropped(), 0u);
  EXPECT_EQ(engine.ledger()->spans_dropped(), 0u);
}

TEST(Instruments, ARefusalNamesWhatTheyTake) {
  EngineOptions o = plain(64 * mib);
  o.memory = Engine(o).plan().minimum_budget;
  const Engine fits(o);
  try {
    const Engine engine(observed(o, Instrument::all));
    ADD_FAILURE() << "accepted";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), ::testing::HasSubstr("; the instruments (ledger of the last"));
  }
}

}  // namespace
}  // namespace weir
