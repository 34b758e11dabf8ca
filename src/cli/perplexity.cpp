// weir perplexity: of a text file, by llama.cpp's method, so that the numbers compare: windows of c tokens
// without overlap, each evaluated alone, the second half scored.
#include <fmt/core.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/quantity.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/outputs.h"
#include "cli/result_json.h"

namespace weir::cli {

namespace {

/// -log softmax(logits)[target], in double.
double negative_log_likelihood(std::span<const float> logits, Token target) {
  float largest = logits[0];
  for (const float x : logits) largest = std::max(largest, x);
  double sum = 0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x) - static_cast<double>(largest));
  return std::log(sum) -
         (static_cast<double>(logits[static_cast<size_t>(target)]) - static_cast<double>(largest));
}

struct Score {
  double sum = 0, squares = 0;
  int64_t count = 0;
  void add(double nll) { sum += nll, squares += nll * nll, ++count; }
  double perplexity() const { return std::exp(sum / static_cast<double>(count)); }
  /// One standard error, propagated to the perplexity.
  double error() const {
    const double n = static_cast<double>(count), mean = sum / n;
    return n > 1 ? perplexity() * std::sqrt(std::max(0.0, squares / n - mean * mean) / (n - 1)) : 0.0;
  }
};

void score_window(Engine& engine, std::vector<Token> window, Score& score) {
  const int n = static_cast<int>(window.size()), first = n / 2;
  if (engine.tokenizer().adds_bos()) window[0] = engine.tokenizer().bos();
  Request request;
  request.prompt = window;
  request.max_tokens = 0;
  request.cancel = &interrupted();
  request.logits_from = first;
  request.on_logits = [&](int position, std::span<const float> logits) {
    if (position + 1 < n)
      score.add(negative_log_likelihood(logits, window[static_cast<size_t>(position) + 1]));
  };
  const Result r = engine.run(std::move(request));
  throw_if_failed(r);
}

}  // namespace

int perplexity(const Arguments& arguments) {
  EngineFlags flags;
  std::string file;
  int chunks = -1;
  bool json = false;
  CommandLine line(
      "perplexity",
      "Perplexity of a text file: windows of -c tokens (default 512), the second half of each scored.");
  line.example("-m model.gguf -f text.txt -c 512 --memory 3GiB");
  flags.add(line, EngineFlags::With::engine_and_ledger);
  line.option("-f,--file", &file, "text file; -: standard input");
  line.option("--chunks", &chunks, -1, 1 << 30, "windows to evaluate; -1: all");
  line.group(Group::output);
  line.flag("--json", &json, "one line of JSON on stdout");
  if (!line.parse(arguments)) return 0;
  if (file.empty()) throw input_error("no text: give a file with -f");
  if (chunks == 0) throw input_error("--chunks 0: expected a number of windows, or -1 for all");
  EngineOptions options = flags.options();
  const std::string text = file_text(file, text_limit(options.memory));
  if (options.context == 0) options.context = 512;
  if (options.context < 4) throw input_error("-c {}: a window needs at least 4 tokens", options.context);
  options.text = text;
  check_output_paths(options.model, {flags.ledger_json, flags.trace, flags.route_trace});
  LedgerOutputs outputs(flags);
  const auto engine = open_engine(options);
  const auto tokens = engine->tokenizer().encode(text, {.add_end = true});
  catch_interrupts();
  const auto c = static_cast<size_t>(options.context);
  size_t windows = tokens.size() / c;
  if (tokens.size() < 2 * c)
    throw input_error("{}: {} tokens: expected at least two windows of {} (use a smaller -c)", file,
                      tokens.size(), c);
  if (chunks >= 0) windows = std::min(windows, static_cast<size_t>(chunks));
  Score score;
  std::vector<double> running;
  Progress progress("perplexity", windows, "windows");
  for (size_t i = 0; i < windows && !interrupted(); ++i) {
    const auto begin = tokens.begin() + static_cast<std::ptrdiff_t>(i * c);
    score_window(*engine, {begin, begin + static_cast<std::ptrdiff_t>(c)}, score);
    if (interrupted()) break;
    running.push_back(score.perplexity());
    progress.update(i + 1);
  }
  outputs.write(*engine);
  if (running.empty()) throw failure("interrupted before the first window was complete");
  if (json) {
    nlohmann::ordered_json object = {{"model", options.model},
                                     {"perplexity", score.perplexity()},
                                     {"standard_error", score.error()},
                                     {"windows", running.size()},
                                     {"window", c},
                                     {"scored", score.count},
                                     {"running", running}};
    add_arithmetic(object, *engine);
    add_plan(object, *engine);
    object["experts"] = experts_json(engine->expert_counters());
    object["memory"] = memory_json(*engine);
    print_json(object);
  } else {
    fmt::print("perplexity {:.4f} +/- {:.4f} ({} of {}, {} scored)\n", score.perplexity(), score.error(),
               quantity(running.size(), "window"), c, quantity(static_cast<uint64_t>(score.count), "token"));
  }
  outputs.say();
  return interrupted() ? interrupted_exit_code : 0;
}

}  // namespace weir::cli
