#include "lab/verify.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "base/error.h"

namespace weir::lab {

namespace {

std::string first_difference(const std::vector<Token>& a, const std::vector<Token>& b) {
  const size_t n = std::min(a.size(), b.size());
  for (size_t i = 0; i < n; ++i)
    if (a[i] != b[i]) return fmt::format("new token {}: {} instead of {}", i, b[i], a[i]);
  if (a.size() != b.size()) return fmt::format("{} new tokens instead of {}", b.size(), a.size());
  return "the same tokens from different logits";
}

Request make_request(const VerifyPrompt& prompt, int n) {
  Request r;
  r.prompt = prompt.tokens;
  r.max_tokens = n;
  r.ignore_eos = true;
  r.sampler.greedy = true;
  r.hash_logits = true;
  return r;
}

void store(VerifyOutcome& outcome, size_t index, Result result) {
  if (result.finish == Finish::failed) throw failure("{}: {}", outcome.cell, result.error);
  outcome.tokens_hash[index] = result.tokens_hash;
  outcome.logits_hash[index] = result.logits_hash;
  outcome.tokens[index] = std::move(result.tokens);
}

}  // namespace

std::vector<std::string> differences(const VerifyOutcome& base, const VerifyOutcome& outcome) {
  std::vector<std::string> lines;
  for (size_t i = 0; i < base.prompts.size(); ++i) {
    if (base.tokens_hash[i] == outcome.tokens_hash[i] && base.logits_hash[i] == outcome.logits_hash[i])
      continue;
    lines.push_back(fmt::format("{}, prompt {}: {}", outcome.cell, base.prompts[i],
                                first_difference(base.tokens[i], outcome.tokens[i])));
  }
  return lines;
}

std::vector<VerifyCell> verify_matrix(const EngineOptions& base, const Engine& probe) {
  std::vector<VerifyCell> cells;
  const auto add = [&](std::string name, auto&& change, bool together = false) {
    VerifyCell cell{std::move(name), base, together};
    change(cell.options);
    cells.push_back(std::move(cell));
  };
  add("base", [](EngineOptions&) {});
  add("threads 1", [](EngineOptions& o) { o.threads = 1; });
  add("threads 2", [](EngineOptions& o) { o.threads = 2; });
  for (const int chunk : {1, 7, 64})
    add(fmt::format("prefill chunk {}", chunk), [=](EngineOptions& o) { o.prefill_chunk = chunk; });
  add("prefill in one chunk", [&](EngineOptions& o) { o.prefill_chunk = probe.context(); });
  const int k = probe.config().top_k, experts = probe.config().experts;
  if (k > 0) {
    for (const int slots : {k, k + 1, 2 * k, experts})
      if (slots <= experts)
        add(fmt::format("expert slots {}", slots), [=](EngineOptions& o) { o.expert_slots = slots; });
    add("policy lfu",
        [=](EngineOptions& o) { o.policy = ExpertPolicy::lfu, o.expert_slots = std::min(experts, 2 * k); });
    add("policy lru",
        [=](EngineOptions& o) { o.policy = ExpertPolicy::lru, o.expert_slots = std::min(experts, 2 * k); });
    add("io direct", [](EngineOptions& o) { o.reader.mode = IoMode::direct; });
    add("io buffered", [](EngineOptions& o) { o.reader.mode = IoMode::buffered; });
    add("io thread pool", [](EngineOptions& o) { o.reader.io_uring = false; });
    for (const uint64_t seed : {1, 2, 3})
      add(fmt::format("landing order {}", seed),
          [=](EngineOptions& o) { o.landing_order_seed = seed, o.expert_slots = std::min(experts, 2 * k); });
  }
  add(
      "lanes 4", [](EngineOptions& o) { o.lanes = 4; }, true);
  add("ledger 1", [](EngineOptions& o) { o.ledger.enabled = true; });
  add("ledger 16", [](EngineOptions& o) { o.ledger.enabled = true, o.ledger.ring_rounds = 16; });
  add("isa scalar", [](EngineOptions& o) { o.isa = Isa::scalar; });
  return cells;
}

VerifyOutcome run_cell(const VerifyCell& cell, const std::vector<VerifyPrompt>& prompts, int n) {
  Engine engine(cell.options);
  engine.load();
  VerifyOutcome outcome;
  outcome.cell = cell.name;
  for (const auto& p : prompts) outcome.prompts.push_back(p.name);
  outcome.tokens_hash.resize(prompts.size());
  outcome.logits_hash.resize(prompts.size());
  outcome.tokens.resize(prompts.size());
  if (cell.together) {
    std::map<int, size_t> index_of;
    for (size_t i = 0; i < prompts.size(); ++i) index_of[engine.submit(make_request(prompts[i], n))] = i;
    while (engine.step()) {
    }
    for (auto& result : engine.take_finished()) {
      const size_t index = index_of.at(result.id);
      store(outcome, index, std::move(result));
    }
  } else {
    for (size_t i = 0; i < prompts.size(); ++i) store(outcome, i, engine.run(make_request(prompts[i], n)));
  }
  outcome.experts = engine.expert_counters();
  return outcome;
}

}  // namespace weir::lab
