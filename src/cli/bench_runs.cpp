#include "cli/bench_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/clock.h"
#include "base/interrupt.h"
#include "base/random.h"
#include "cli/options.h"

namespace weir::cli {

namespace {

std::vector<Token> varied_tokens(int n, int vocab, uint64_t seed) {
  std::vector<Token> tokens;
  tokens.reserve(static_cast<size_t>(n));
  for (int i = 0; i < n; ++i)
    tokens.push_back(
        static_cast<Token>(random_u64(seed, static_cast<uint64_t>(i)) % static_cast<uint64_t>(vocab)));
  return tokens;
}

/// Throws unless the request ran to its end.
void check_complete(const Result& r) {
  throw_if_failed(r);
  if (r.finish == Finish::cancelled) throw failure("interrupted before the runs were complete");
}

double run_prompt(Engine& engine, const BenchTest& test, uint64_t seed, BenchRun run) {
  Request request;
  request.prompt = varied_tokens(test.tokens, engine.config().vocab, seed);
  request.max_tokens = 0;
  request.cancel = &interrupted();
  if (run == BenchRun::warm_up) {
    request.logits_from = test.tokens - 1;
    request.on_logits = [](int, std::span<const float>) {};  // the engine looks at what it shows
  }
  const Result r = engine.run(std::move(request));
  check_complete(r);
  return 1e3 * test.tokens / r.timings.prompt_ms;
}

/// Every lane's tokens from the moment that the last lane has its first: until then prompts are evaluated.
double run_decode(Engine& engine, const BenchTest& test, uint64_t seed) {
  std::vector<std::vector<uint64_t>> times(static_cast<size_t>(test.lanes));
  const int vocab = engine.config().vocab;
  for (int lane = 0; lane < test.lanes; ++lane) {
    auto& own = times[static_cast<size_t>(lane)];
    own.reserve(static_cast<size_t>(test.tokens) + 1);
    const uint64_t lane_seed = seed + 31 * static_cast<uint64_t>(lane);
    Request request;
    request.prompt = varied_tokens(std::max(1, test.depth), vocab, lane_seed);
    request.forced = varied_tokens(test.tokens + 1, vocab, lane_seed + 1);
    request.max_tokens = test.tokens + 1;  // the first comes from the prompt's round
    request.cancel = &interrupted();
    request.on_token = [&own](Token) { own.push_back(now_ns()); };
    engine.submit(std::move(request));
  }
  while (engine.step()) {
  }
  for (const Result& r : engine.take_finished()) check_complete(r);
  uint64_t begin = 0, end = 0, tokens = 0;
  for (const auto& own : times) begin = std::max(begin, own.front()), end = std::max(end, own.back());
  for (const auto& own : times)
    tokens +=
        static_cast<uint64_t>(std::count_if(own.begin(), own.end(), [=](uint64_t t) { return t > begin; }));
  return 1e9 * static_cast<double>(tokens) / static_cast<double>(end - begin);
}

}  // namespace

std::string BenchTest::name() const {
  if (kind == Kind::prompt) return fmt::format("prompt {}", tokens);
  std::string text = fmt::format("decode {}", tokens);
  if (lanes > 1) text += fmt::format(" x {}", lanes);
  if (depth > 0) text += fmt::format(" at {}", depth);
  return text;
}

BenchSample run_bench_test(Engine& engine, const BenchTest& test, uint64_t seed, BenchRun run) {
  const ExpertCounters before = engine.expert_counters();
  const double speed = test.kind == BenchTest::Kind::prompt ? run_prompt(engine, test, seed, run)
                                                            : run_decode(engine, test, seed);
  const ExpertCounters after = engine.expert_counters();
  return {speed, after.hits - before.hits, after.misses - before.misses,
          after.bytes_read - before.bytes_read};
}

std::vector<double> LedgerCost::ratios() const {
  std::vector<double> r;
  for (size_t i = 0; i < on.size(); ++i) r.push_back(2 * on[i] / (off[i] + off_again[i]));
  return r;
}

std::vector<double> LedgerCost::null_ratios() const {
  std::vector<double> r;
  for (size_t i = 0; i < off.size(); ++i) r.push_back(off_again[i] / off[i]);
  return r;
}

LedgerCost measure_ledger_cost(Engine& engine, const BenchTest& test, int rounds, uint64_t seed) {
  LedgerCost cost;
  struct Series {
    bool on;
    std::vector<double>* speeds;
  };
  std::array<Series, 3> order = {Series{true, &cost.on}, {false, &cost.off}, {false, &cost.off_again}};
  uint64_t draws = 0;
  for (int i = 0; i < rounds; ++i) {
    for (size_t n = order.size(); n > 1; --n) std::swap(order[n - 1], order[random_u64(seed, draws++) % n]);
    const uint64_t run_seed = seed + 7919 * static_cast<uint64_t>(i + 1);  // all of a round decode the same
    for (const Series& series : order) {
      engine.pause_ledger(!series.on);
      engine.forget_recordings();
      run_bench_test(engine, test, run_seed);  // records
      series.speeds->push_back(run_bench_test(engine, test, run_seed).tokens_per_second);
    }
  }
  engine.pause_ledger(false);
  return cost;
}

}  // namespace weir::cli
