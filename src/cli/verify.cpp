// weir verify: proves on the user's machine that settings do not change tokens or logits.
#include <fmt/core.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/quantity.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/result_json.h"
#include "lab/verify.h"

namespace weir::cli {

namespace {

// Four prompts of different length and kind, so that lanes differ; the quick run takes the first two.
constexpr const char* default_prompts[] = {
    "The command line tool reads a file and",
    "NAME\n    weir - a gate that holds a river to a fixed level\n\nSYNOPSIS\n    weir [OPTION]... "
    "FILE\n\nDESCRIPTION\n    ",
    "In the beginning",
    "A definition of the word \"measure\", with an example sentence, two synonyms and the plural form; then "
    "the same for "
    "\"river\", \"gate\" and \"level\", each on a line of its own, and at the end a list of all of them in "
    "order:",
};

constexpr int quick_prompts = 2, full_tokens = 24, quick_tokens = 8;

std::vector<lab::VerifyPrompt> prompts_for(const Engine& probe, const std::string& file,
                                           const std::string& file_text, int n, bool quick) {
  std::vector<lab::VerifyPrompt> prompts;
  const auto add = [&](const std::string& name, const std::string& text, bool own = false) {
    auto tokens = probe.tokenizer().encode(text, {});
    const int room = probe.context() - n - 1;
    if (room < 1)
      throw input_error("-n {} leaves no room for a prompt in a context of {}", n, probe.context());
    if (own && static_cast<int>(tokens.size()) > room)
      throw input_error(
          "{}: {} tokens and {} new ones do not fit the context of {}: expected a shorter prompt or a larger "
          "-c",
          name, tokens.size(), n, probe.context());
    if (static_cast<int>(tokens.size()) > room) tokens.resize(static_cast<size_t>(room));
    prompts.push_back({name, std::move(tokens)});
  };
  if (!file.empty()) add(file, file_text, true);
  int number = 0;
  for (const char* text : default_prompts)
    if (!quick || number < quick_prompts) add(fmt::format("{}", ++number), text);
  return prompts;
}

nlohmann::ordered_json to_json(const lab::VerifyOutcome& o, const std::vector<std::string>& different) {
  nlohmann::ordered_json tokens = nlohmann::ordered_json::array(), logits = nlohmann::ordered_json::array();
  for (const uint64_t h : o.tokens_hash) tokens.push_back(hex(h));
  for (const uint64_t h : o.logits_hash) logits.push_back(hex(h));
  if (o.tokens_only) logits = nullptr;
  return {{"cell", o.cell},          {"tokens_hash", tokens},      {"logits_hash", logits},
          {"hits", o.experts.hits},  {"misses", o.experts.misses}, {"equal", different.empty()},
          {"differences", different}};
}

nlohmann::ordered_json to_json(const lab::Parting& p) {
  if (p.first.operation.empty()) return nullptr;
  return {{"prompt", p.prompt},
          {"position", p.first.position},
          {"layer", p.first.layer},
          {"operation", p.first.operation}};
}

/// At the last token of the first prompt, so that the first new token's logits feel it in any layer.
lab::PlantedFault plan_fault(const Engine& probe, const std::vector<lab::VerifyPrompt>& prompts) {
  return {static_cast<int>(prompts.front().tokens.size()) - 1, probe.config().layers / 2,
          Operation::attention};
}

lab::VerifyCell& cell_named(std::vector<lab::VerifyCell>& cells, const std::string& name) {
  std::string names;
  for (size_t i = 1; i < cells.size(); ++i) {
    if (cells[i].name == name) return cells[i];
    names += (names.empty() ? "" : ", ") + cells[i].name;
  }
  throw input_error("--plant-fault {}: expected a cell besides the first: {}", name, names);
}

/// One hash for all prompts, for the table.
uint64_t combined(const std::vector<uint64_t>& hashes) {
  Hash64 hash;
  for (const uint64_t h : hashes) hash.add_value(h);
  return hash.value();
}

struct VerifyFlags {
  std::string file, fault;
  std::optional<int> predict;
  bool json = false, quick = false;

  void add(CommandLine& line) {
    line.option("-f,--file", &file, "a prompt of your own, besides the built-in ones");
    line.option("-n,--predict", &predict, 1, 100'000, "new tokens a prompt; default 24, with --quick 8");
    line.flag("--quick", &quick, "one cell of each kind, two prompts, fewer tokens");
    line.group(Group::tests);
    line.option("--plant-fault", &fault, "flip one bit in this cell, which verify must then report");
    line.group(Group::output);
    line.flag("--json", &json, "one line of JSON on stdout");
  }
};

void print_cell(const lab::VerifyOutcome& o, const std::vector<std::string>& different,
                const std::optional<lab::Parting>& parting) {
  const std::string tokens = hex(combined(o.tokens_hash));
  const std::string logits = o.tokens_only ? "not compared" : hex(combined(o.logits_hash));
  fmt::print("{:<26} tokens {}  logits {:<{}}  {:>6} hits {:>6} misses  {}\n", o.cell, tokens, logits,
             tokens.size(), o.experts.hits, o.experts.misses, different.empty() ? "equal" : "DIFFERENT");
  for (const auto& d : different) fmt::print("  {}\n", d);
  if (parting) fmt::print("  {}\n", parting->describe());
  std::fflush(stdout);
}

}  // namespace

int verify(const Arguments& arguments) {
  EngineFlags flags;
  VerifyFlags own;
  CommandLine line("verify",
                   "Runs prompts through threads, chunks, slots, policies, I/O, lanes, ledger and "
                   "instruction sets, on a GPU "
                   "through recordings, its own choice of tokens and against the CPU; any difference in "
                   "tokens or logits fails.");
  line.example("-m model.gguf --quick");
  flags.add(line, EngineFlags::With::engine);
  own.add(line);
  if (!line.parse(arguments)) return 0;
  EngineOptions options = flags.options();
  const std::string text = own.file.empty() ? "" : file_text(own.file, text_limit(options.memory));
  options.text = text;
  const Engine probe(options);
  for (const auto& warning : probe.plan().warnings) log_warning(warning);
  options.text = {};
  options.context = probe.context();  // in every cell the same
  const int n = own.predict.value_or(own.quick ? quick_tokens : full_tokens);
  const auto prompts = prompts_for(probe, own.file, text, n, own.quick);
  auto cells = lab::verify_matrix(options, probe);
  if (own.quick) std::erase_if(cells, [](const lab::VerifyCell& cell) { return !cell.quick; });
  lab::PlantedFault planted = plan_fault(probe, prompts);
  if (!own.fault.empty()) cell_named(cells, own.fault).options.probe = &planted;
  Progress progress("verifying", cells.size(), "cells");
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  std::map<size_t, lab::VerifyOutcome> outcomes;  // by cell
  int failed = 0, skipped = 0;
  for (size_t i = 0; i < cells.size(); ++i) {
    const lab::VerifyCell& cell = cells[i];
    const size_t reference = lab::reference_of(cells, i);
    std::vector<std::string> different;
    std::optional<lab::Parting> parting;
    try {
      if (i != reference && outcomes.count(reference) == 0)
        throw input_error("the cell {} that it must equal was skipped", cells[reference].name);
      const auto& outcome = outcomes[i] = lab::run_cell(cell, prompts, n);
      different = lab::differences(outcomes[reference], outcome);
      if (!different.empty()) parting = lab::locate_difference(cells[reference], cell, prompts, n);
    } catch (const lab::CellFailure&) {
      throw;
    } catch (const Error& e) {
      outcomes.erase(i);
      if (i == 0 || e.kind() == Error::Kind::failure) throw;
      ++skipped;  // this setting does not fit here (no AVX2, no unbuffered reads, the budget)
      if (!own.json) fmt::print("{:<26} skipped: {}\n", cell.name, e.what());
      rows.push_back({{"cell", cell.name}, {"skipped", e.what()}});
      continue;
    }
    const auto& o = outcomes[i];
    failed += different.empty() ? 0 : 1;
    if (!own.json) print_cell(o, different, parting);
    rows.push_back(to_json(o, different));
    if (!cell.reference.empty()) rows.back()["reference"] = cell.reference;
    if (parting) rows.back()["first_difference"] = to_json(*parting);
    progress.update(outcomes.size());
  }
  if (own.json) {
    nlohmann::ordered_json object = {
        {"model", options.model}, {"cells", rows}, {"different", failed}, {"skipped", skipped}};
    add_arithmetic(object, probe);
    print_json(object);
    return failed > 0 ? 1 : 0;
  }
  fmt::print("{}, {} different, {} skipped\n", quantity(cells.size(), "cell"), failed, skipped);
  return failed > 0 ? 1 : 0;
}

}  // namespace weir::cli
