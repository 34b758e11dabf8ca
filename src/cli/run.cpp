// weir run: generates from a prompt; text streams to stdout, everything else to stderr.
#include <fmt/core.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/quantity.h"
#include "cli/commands.h"
#include "cli/logits_file.h"
#include "cli/options.h"
#include "cli/outputs.h"
#include "cli/result_json.h"
#include "ledger/report.h"

namespace weir::cli {

namespace {

struct Flags {
  EngineFlags engine;
  SamplerFlags sampler;
  std::optional<std::string> prompt;
  std::string file, logits;
  int n = -1;
  bool ignore_eos = false, json = false, hash_logits = false;
};

/// False where help was printed.
bool parse(Flags& f, const Arguments& arguments) {
  CommandLine line("run", "Generates text from a prompt. Text goes to stdout, everything else to stderr.");
  line.example("-m model.gguf -p \"The river\" -n 64");
  line.example("-m model.gguf -f prompt.txt --memory 3GiB -c 4096");
  line.example("-m model.gguf -p \"The river\" -n 64 --device cuda:0 --vram 24GiB");
  line.example("-m model.gguf -p \"The river\" -n 64 --memory 3GiB --ledger 32");
  f.engine.add(line, EngineFlags::With::engine_and_ledger);
  line.option("-p,--prompt", &f.prompt, "prompt: raw text; special tokens are parsed, no escapes");
  line.option("-f,--file", &f.file, "file with the prompt; -, or neither this nor -p: standard input");
  line.option("-n,--predict,--n-predict", &f.n, -1, 1 << 30,
              "tokens to generate; -1: until the end of text or the context is full");
  line.flag("--ignore-eos", &f.ignore_eos, "go on after the end-of-text token");
  f.sampler.add(line);
  line.group(Group::output);
  line.option("--logits", &f.logits, "write float32 logits of every evaluated position to this file");
  line.flag("--json", &f.json, "one line of JSON on stdout instead of text");
  line.flag("--hash-logits", &f.hash_logits,
            "with --json: also a hash of the logits (on a GPU they then come to the host, which takes time)");
  if (!line.parse(arguments)) return false;
  line.refuse_with("--greedy", {"--temp", "--top-k", "--top-p", "--min-p"});
  if (f.hash_logits && !f.json)
    throw input_error("--hash-logits: the hash is part of the JSON: expected --json too");
  return true;
}

void write_out(const std::string& text) {
  if (text.empty()) return;
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
    throw failure("stdout: writing failed");
}

std::string count(int n, const char* one) { return quantity(static_cast<uint64_t>(n), one); }

void print_summary(const Engine& engine, const Result& r) {
  const Timings& t = r.timings;
  const ExpertCounters c = engine.expert_counters();
  const MemoryUse use = engine.memory_use();
  log_line(fmt::format("prompt: {} in {:.1f} ms ({:.1f} tok/s)", count(t.prompt_n, "token"), t.prompt_ms,
                       t.prompt_ms > 0 ? 1e3 * t.prompt_n / t.prompt_ms : 0.0));
  log_line(fmt::format("decode: {}, {} in {:.1f} ms ({:.1f} tok/s), {}", count(t.predicted_n, "token"),
                       count(t.steps, "step"), t.predicted_ms,
                       t.predicted_ms > 0 ? 1e3 * t.steps / t.predicted_ms : 0.0, finish_name(r.finish)));
  if (c.hits + c.misses > 0)
    log_line(fmt::format("experts: {}, {} ({:.1f} % hits), {} read", quantity(c.hits, "hit"),
                         quantity(c.misses, "miss", "misses"),
                         100.0 * static_cast<double>(c.hits) / static_cast<double>(c.hits + c.misses),
                         human_bytes(c.bytes_read)));
  log_line(fmt::format("memory: peak {} resident + {} page cache of the model, budget {}",
                       human_bytes(use.peak_rss),
                       use.peak_page_cache ? human_bytes(*use.peak_page_cache) : "unknown",
                       human_bytes(engine.plan().request.budget_bytes)));
}

nlohmann::ordered_json to_json(Engine& engine, const Result& r, const Flags& f, uint64_t seed) {
  std::string text;
  Detokenizer detokenizer(engine.tokenizer());
  for (const Token token : r.tokens) text += detokenizer.push(token);
  text += detokenizer.finish();
  nlohmann::ordered_json json = {{"model", engine.model().path()},
                                 {"text", text},
                                 {"tokens", r.tokens},
                                 {"tokens_hash", hex(r.tokens_hash)},
                                 {"logits_hash", f.hash_logits ? nlohmann::ordered_json(hex(r.logits_hash))
                                                               : nlohmann::ordered_json(nullptr)},
                                 {"finish", finish_name(r.finish)},
                                 {"seed", seed},
                                 {"device", engine.description()},
                                 {"timings", timings_json(r.timings)},
                                 {"experts", experts_json(engine.expert_counters())},
                                 {"memory", memory_json(engine)}};
  add_arithmetic(json, engine);
  add_plan(json, engine);
  if (r.finish == Finish::failed) json["error"] = r.error;
  if (engine.ledger()) json["ledger"] = ledger_json(*engine.ledger());
  return json;
}

}  // namespace

int run(const Arguments& arguments) {
  Flags f;
  if (!parse(f, arguments)) return 0;
  EngineOptions options = f.engine.options();
  const std::string prompt = prompt_text(f.prompt, f.file, text_limit(options.memory));
  options.text = prompt;
  options.new_tokens = std::max(f.n, 0);
  check_output_paths(options.model, {f.logits, f.engine.ledger_json, f.engine.trace, f.engine.route_trace});
  LedgerOutputs outputs(f.engine);
  const auto engine = open_engine(options);

  Request request;
  request.sampler = f.sampler.options();
  if (!request.sampler.greedy && !f.sampler.seed) log_line(fmt::format("seed: {}", request.sampler.seed));
  engine->start_clock();
  request.prompt = engine->tokenizer().encode(prompt, {});
  catch_interrupts();
  request.max_tokens = f.n;
  request.ignore_eos = f.ignore_eos;
  request.hash_logits = f.hash_logits;
  request.cancel = &interrupted();
  std::optional<LogitsFile> logits;
  if (!f.logits.empty()) {
    logits.emplace(f.logits, engine->config().vocab);
    request.on_logits = [&](int, std::span<const float> row) { logits->add(row); };
  }
  auto progress = std::make_unique<Progress>("prefilling", request.prompt.size(), "tokens");
  request.on_prefill = [&](int done, int total) {
    if (done < total)
      progress->update(static_cast<uint64_t>(done));
    else
      progress.reset();
  };
  Detokenizer detokenizer(engine->tokenizer());
  if (!f.json)
    request.on_token = [&](Token token) {
      progress.reset();
      write_out(detokenizer.push(token));
    };

  const uint64_t seed = request.sampler.seed;
  const Result result = engine->run(std::move(request));
  progress.reset();
  if (!f.json && (result.finish != Finish::failed || !result.tokens.empty()))
    write_out(detokenizer.finish() + "\n");
  print_summary(*engine, result);
  if (f.json) print_json(to_json(*engine, result, f, seed));
  throw_if_failed(result);  // ahead of every file: none is left that looks whole
  if (logits) logits->commit();
  outputs.write(*engine);
  say_written("the logits", f.logits);
  outputs.say();
  return result.finish == Finish::cancelled ? interrupted_exit_code : 0;
}

}  // namespace weir::cli
