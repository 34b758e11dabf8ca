// weir bench: prompt and decode speed on seeded, varied tokens (a greedy loop would fake cache hits). Prompt
// and decode are measured apart, as llama-bench does: P tokens evaluated from nothing, and N tokens decoded
// after one.
#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/random.h"
#include "base/stats.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/outputs.h"
#include "cli/result_json.h"

namespace weir::cli {

namespace {

struct Sample {
  double tokens_per_second = 0;
  uint64_t hits = 0, misses = 0, bytes_read = 0;
};

struct Series {
  std::string name;
  int tokens = 0;
  std::vector<Sample> samples;

  double median_speed() const {
    std::vector<double> speeds;
    for (const auto& s : samples) speeds.push_back(s.tokens_per_second);
    return median(speeds);
  }
  Sample total() const {
    Sample sum;
    for (const auto& s : samples) sum.hits += s.hits, sum.misses += s.misses, sum.bytes_read += s.bytes_read;
    return sum;
  }
};

std::vector<Token> varied_tokens(int n, int vocab, uint64_t seed) {
  std::vector<Token> tokens;
  for (int i = 0; i < n; ++i)
    tokens.push_back(
        static_cast<Token>(random_u64(seed, static_cast<uint64_t>(i)) % static_cast<uint64_t>(vocab)));
  return tokens;
}

Sample measure(Engine& engine, const Request& request, int tokens, bool decode) {
  const ExpertCounters before = engine.expert_counters();
  const Result r = engine.run(request);
  if (r.finish == Finish::failed) throw Error(r.error_kind, r.error);
  if (r.finish == Finish::cancelled) throw failure("interrupted before the runs were complete");
  const ExpertCounters after = engine.expert_counters();
  const double ms = decode ? r.timings.predicted_ms : r.timings.prompt_ms;
  return {1e3 * tokens / ms, after.hits - before.hits, after.misses - before.misses,
          after.bytes_read - before.bytes_read};
}

Sample measure_prompt(Engine& engine, int n, uint64_t seed) {
  Request request;
  request.prompt = varied_tokens(n, engine.config().vocab, seed);
  request.max_tokens = 0;
  request.cancel = &interrupted();
  return measure(engine, request, n, false);
}

Sample measure_decode(Engine& engine, int n, uint64_t seed) {
  Request request;
  request.prompt = varied_tokens(1, engine.config().vocab, seed);
  request.forced = varied_tokens(n + 1, engine.config().vocab, seed + 1);
  request.cancel = &interrupted();
  request.max_tokens = n + 1;  // the first comes from the prompt's round
  return measure(engine, request, n, true);
}

void print_text(const Engine& engine, const std::vector<Series>& all) {
  fmt::print("{:<12} {:>6} {:>12} {:>12} {:>12} {:>9} {:>14}\n", "test", "runs", "median tok/s", "min", "max",
             "hits", "read a token");
  for (const auto& s : all) {
    double low = 1e300, high = 0;
    for (const auto& sample : s.samples)
      low = std::min(low, sample.tokens_per_second), high = std::max(high, sample.tokens_per_second);
    const Sample t = s.total();
    const uint64_t uses = t.hits + t.misses, tokens = static_cast<uint64_t>(s.tokens) * s.samples.size();
    fmt::print("{:<12} {:>6} {:>12.2f} {:>12.2f} {:>12.2f} {:>8.1f}% {:>14}\n", s.name, s.samples.size(),
               s.median_speed(), low, high,
               uses > 0 ? 100.0 * static_cast<double>(t.hits) / static_cast<double>(uses) : 0.0,
               human_bytes(tokens > 0 ? t.bytes_read / tokens : 0));
  }
  const MemoryUse use = engine.memory_use();
  fmt::print("peak memory {} of {}\n", human_bytes(use.peak_rss + use.page_cache.value_or(0)),
             human_bytes(engine.plan().request.budget_bytes));
}

nlohmann::ordered_json to_json(const Engine& engine, const std::vector<Series>& all) {
  nlohmann::ordered_json tests = nlohmann::ordered_json::array();
  for (const auto& s : all) {
    nlohmann::ordered_json speeds = nlohmann::ordered_json::array();
    for (const auto& sample : s.samples) speeds.push_back(sample.tokens_per_second);
    const Sample t = s.total();
    tests.push_back({{"test", s.name},
                     {"tokens", s.tokens},
                     {"tokens_per_second", s.median_speed()},
                     {"samples", speeds},
                     {"hits", t.hits},
                     {"misses", t.misses},
                     {"bytes_read", t.bytes_read}});
  }
  return {{"model", engine.model().path()},
          {"device", engine.description()},
          {"slots", engine.plan().slots},
          {"tests", tests},
          {"memory", memory_json(engine)}};
}

}  // namespace

int bench(const Arguments& arguments) {
  EngineFlags flags;
  int prompt = 128, decode = 32, repeats = 5;
  std::optional<uint64_t> seed;
  bool json = false;
  CommandLine line("bench",
                   "Measures prompt and decode speed on seeded, varied tokens, after one warm-up of each.");
  flags.add(line, EngineFlags::With::engine_and_ledger);
  line.option("-p,--n-prompt", &prompt, 0, 1 << 24, "tokens of the prompt test; 0: none");
  line.option("-n,--n-gen", &decode, 0, 1 << 24, "tokens of the decode test; 0: none");
  line.option("-r,--repetitions", &repeats, 1, 10'000, "counted runs of each test");
  line.option("--seed", &seed, "seed of the tokens (default 1)");
  line.flag("--json", &json, "one line of JSON on stdout");
  if (!line.parse(arguments)) return 0;
  if (prompt == 0 && decode == 0)
    throw input_error("-p 0 and -n 0 leave nothing to measure: expected one of them above 0");
  EngineOptions options = flags.options();
  if (options.context == 0) options.context = std::max({prompt + 1, decode + 2, 64});
  check_output_paths(options.model, {flags.ledger_json, flags.trace, flags.route_trace});
  LedgerOutputs outputs(flags);
  catch_interrupts();
  const auto engine = open_engine(options);
  const uint64_t base = seed.value_or(1) * 1'000'003;
  std::vector<Series> all;
  if (prompt > 0) all.push_back({fmt::format("prompt {}", prompt), prompt, {}});
  if (decode > 0) all.push_back({fmt::format("decode {}", decode), decode, {}});
  Progress progress("measuring", static_cast<uint64_t>(repeats + 1) * all.size(), "runs");
  uint64_t done = 0;
  for (int i = 0; i <= repeats; ++i) {
    for (auto& series : all) {
      const uint64_t run_seed = base + 7919 * static_cast<uint64_t>(i);
      const bool is_prompt = prompt > 0 && &series == all.data();
      const Sample sample =
          is_prompt ? measure_prompt(*engine, prompt, run_seed) : measure_decode(*engine, decode, run_seed);
      if (i > 0) series.samples.push_back(sample);
      progress.update(++done);
    }
  }
  outputs.write(engine->ledger());
  engine->close_trace();
  if (json)
    print_json(to_json(*engine, all));
  else
    print_text(*engine, all);
  return 0;
}

}  // namespace weir::cli
