// weir bench: the tests that the options ask for, run in turns after a warm-up of each, and their table.
#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/interrupt.h"
#include "base/log.h"
#include "base/quantity.h"
#include "base/stats.h"
#include "cli/bench_runs.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/outputs.h"
#include "cli/result_json.h"

namespace weir::cli {

namespace {

struct Series {
  BenchTest test;
  std::vector<BenchSample> samples;

  std::vector<double> speeds() const {
    std::vector<double> speeds;
    for (const auto& s : samples) speeds.push_back(s.tokens_per_second);
    return speeds;
  }
  BenchSample total() const {
    BenchSample sum;
    for (const auto& s : samples) sum.hits += s.hits, sum.misses += s.misses, sum.bytes_read += s.bytes_read;
    return sum;
  }
};

/// "512,4096": numbers in [low, high], at least one.
std::vector<int> parse_list(const char* option, const std::string& text, int low, int high) {
  std::vector<int> list;
  const char* at = text.data();
  const char* end = at + text.size();
  for (;;) {
    int value = 0;
    const auto [next, error] = std::from_chars(at, end, value);
    const bool last = next == end;
    if (error != std::errc() || value < low || value > high || (!last && *next != ','))
      throw input_error("{} '{}': expected numbers from {} to {}, separated by commas", option, text, low,
                        high);
    list.push_back(value);
    if (last) return list;
    at = next + 1;
  }
}

struct BenchFlags {
  std::string prompts = "128", lanes = "1", depths = "0";
  int decode = 32, repeats = 5, ledger_pairs = 0;
  std::optional<uint64_t> seed;
  bool json = false;

  void add(CommandLine& line) {
    line.option("-p,--n-prompt", &prompts, "tokens of the prompt tests, e.g. 512,4096; 0: none");
    line.option("-n,--n-gen", &decode, 0, 1 << 24, "tokens of the decode tests, in each lane; 0: none");
    line.option("--lanes", &lanes, "lanes of the decode tests, e.g. 1,4,16; each at the first depth");
    line.option("--depth", &depths,
                "context before the decoded tokens, e.g. 0,4096; each in the first --lanes");
    line.option("-r,--repetitions", &repeats, 1, 10'000, "counted runs of each test");
    line.option("--ledger-cost", &ledger_pairs, 0, 10'000,
                "also this many rounds of the first decode test with the ledger on, off and off again, each "
                "recorded anew; 0: none");
    line.option("--seed", &seed, "seed of the tokens (default 1)");
    line.group(Group::output);
    line.flag("--json", &json, "one line of JSON on stdout");
  }
  std::vector<BenchTest> tests() const {
    std::vector<BenchTest> all;
    for (const int n : parse_list("-p", prompts, 0, 1 << 24))
      if (n > 0) all.push_back({BenchTest::Kind::prompt, n, 0, 1});
    const auto lane_list = parse_list("--lanes", lanes, 1, 1024);
    const auto depth_list = parse_list("--depth", depths, 0, 1 << 24);
    if (decode > 0) {
      for (const int n : lane_list) all.push_back({BenchTest::Kind::decode, decode, depth_list[0], n});
      for (size_t i = 1; i < depth_list.size(); ++i)
        all.push_back({BenchTest::Kind::decode, decode, depth_list[i], lane_list[0]});
    }
    if (all.empty())
      throw input_error("-p 0 and -n 0 leave nothing to measure: expected one of them above 0");
    if (ledger_pairs > 0 && decode == 0)
      throw input_error("--ledger-cost compares decode runs: expected -n above 0");
    return all;
  }
};

const BenchTest& first_decode(const std::vector<BenchTest>& tests) {
  return *std::find_if(tests.begin(), tests.end(),
                       [](const BenchTest& t) { return t.kind == BenchTest::Kind::decode; });
}

/// What the largest test needs.
void fit_options(EngineOptions& options, const std::vector<BenchTest>& tests) {
  int context = 64;
  for (const auto& t : tests) {
    const bool prompt = t.kind == BenchTest::Kind::prompt;
    context = std::max(context, prompt ? t.tokens + 1 : std::max(1, t.depth) + t.tokens + 1);
    options.lanes = std::max(options.lanes, t.lanes);
  }
  if (options.context == 0) options.context = context;
}

void print_ratios(const char* what, const std::vector<double>& ratios) {
  if (ratios.empty()) return;
  fmt::print("{}: {:.5f}", what, median(ratios));
  if (const auto interval = median_interval(ratios))
    fmt::print(" [{:.5f}, {:.5f}] ({:.1f} %)", interval->low, interval->high, 100 * interval->coverage);
  fmt::print(", {}\n", quantity(ratios.size(), "round"));
}

void print_text(const Engine& engine, const std::vector<Series>& all, const LedgerCost& cost) {
  fmt::print("{:<20} {:>6} {:>12} {:>12} {:>12} {:>9} {:>14}\n", "test", "runs", "median tok/s", "min", "max",
             "hits", "read a token");
  for (const auto& s : all) {
    const auto speeds = s.speeds();
    const BenchSample t = s.total();
    const uint64_t uses = t.hits + t.misses, tokens = static_cast<uint64_t>(s.test.tokens) *
                                                      static_cast<uint64_t>(s.test.lanes) * s.samples.size();
    fmt::print("{:<20} {:>6} {:>12.2f} {:>12.2f} {:>12.2f} {:>8.1f}% {:>14}\n", s.test.name(),
               s.samples.size(), median(speeds), *std::min_element(speeds.begin(), speeds.end()),
               *std::max_element(speeds.begin(), speeds.end()), 100.0 * ratio(t.hits, uses),
               human_bytes(tokens > 0 ? t.bytes_read / tokens : 0));
  }
  print_ratios("ledger on over off", cost.ratios());
  print_ratios("off again over off", cost.null_ratios());
  const MemoryUse use = engine.memory_use();
  fmt::print("peak memory {} of {}\n", human_bytes(use.peak()),
             human_bytes(engine.plan().request.budget_bytes));
}

nlohmann::ordered_json to_json(const Engine& engine, const std::vector<Series>& all, const LedgerCost& cost) {
  nlohmann::ordered_json tests = nlohmann::ordered_json::array();
  for (const auto& s : all) {
    const BenchSample t = s.total();
    tests.push_back({{"test", s.test.name()},
                     {"tokens", s.test.tokens},
                     {"lanes", s.test.lanes},
                     {"depth", s.test.depth},
                     {"tokens_per_second", median(s.speeds())},
                     {"samples", s.speeds()},
                     {"hits", t.hits},
                     {"misses", t.misses},
                     {"hit_rate", ratio(t.hits, t.hits + t.misses)},
                     {"bytes_read", t.bytes_read}});
  }
  nlohmann::ordered_json json = {{"model", engine.model().path()}, {"device", engine.description()}};
  add_arithmetic(json, engine);
  add_plan(json, engine);
  json["tests"] = tests;
  if (!cost.on.empty())
    json["ledger_cost"] = {{"on", cost.on}, {"off", cost.off}, {"off_again", cost.off_again}};
  json["memory"] = memory_json(engine);
  return json;
}

}  // namespace

int bench(const Arguments& arguments) {
  EngineFlags flags;
  BenchFlags own;
  CommandLine line("bench",
                   "Measures prompt and decode speed on seeded, varied tokens, after one warm-up of each.");
  line.example("-m model.gguf -p 512 -n 64 --memory 3GiB");
  line.example("-m model.gguf -p 0 -n 64 --lanes 1,4 --depth 0,4096");
  flags.add(line, EngineFlags::With::engine_and_ledger);
  own.add(line);
  if (!line.parse(arguments)) return 0;
  const std::vector<BenchTest> tests = own.tests();
  EngineOptions options = flags.options();
  fit_options(options, tests);
  if (own.ledger_pairs > 0) options.ledger.enabled = true;
  check_output_paths(options.model, {flags.ledger_json, flags.trace, flags.route_trace});
  LedgerOutputs outputs(flags);
  const auto engine = open_engine(options);
  catch_interrupts();
  const uint64_t base = own.seed.value_or(1) * 1'000'003;
  std::vector<Series> all;
  for (const auto& test : tests) all.push_back({test, {}});
  Progress progress("measuring", static_cast<uint64_t>(own.repeats + 1) * all.size(), "runs");
  uint64_t done = 0;
  for (int i = 0; i <= own.repeats; ++i) {
    for (auto& series : all) {
      const BenchSample sample = run_bench_test(*engine, series.test, base + 7919 * static_cast<uint64_t>(i),
                                                i == 0 ? BenchRun::warm_up : BenchRun::counted);
      if (i > 0) series.samples.push_back(sample);
      progress.update(++done);
    }
  }
  LedgerCost cost;
  if (own.ledger_pairs > 0) cost = measure_ledger_cost(*engine, first_decode(tests), own.ledger_pairs, base);
  outputs.write(*engine);
  if (own.json)
    print_json(to_json(*engine, all, cost));
  else
    print_text(*engine, all, cost);
  outputs.say();
  return 0;
}

}  // namespace weir::cli
