// Options that several subcommands share, and what they turn into.
#pragma once

#include <optional>
#include <string>

#include "cli/command_line.h"
#include "engine/engine.h"

namespace weir::cli {

/// The options of an engine, as typed.
struct EngineFlags {
  std::string model, positional_model;
  int threads = 0, context = 0, prefill_chunk = 0;
  std::optional<int> expert_slots;
  std::optional<std::string> memory, vram, arithmetic, policy;
  std::string device = "cpu";
  bool no_graphs = false;  // hidden test option
  std::string io = "auto", read_advice = "off", isa = "auto";
  std::optional<std::string> ledger;
  std::string ledger_json, trace, route_trace;
  std::string inject_role;  // hidden test options: delay injection
  int inject_us = 0;

  /// Adds -m -c -t --memory --expert-slots ... ; `with` adds --ledger alone, or all of the instrument and
  /// --route-trace.
  enum class With { engine, engine_and_ledger_flag, engine_and_ledger };
  void add(CommandLine& line, With with);
  /// Checks and converts. Throws Error (input).
  EngineOptions options() const;
};

/// The options of a sampler, as typed.
struct SamplerFlags {
  SamplerOptions values;
  std::optional<uint64_t> seed;
  void add(CommandLine& line);
  /// Draws a seed where none was given.
  SamplerOptions options() const;
};

/// Bytes of text that are read at most, so that reading stays in the budget: half of --memory, or of the
/// default.
uint64_t text_limit(const std::optional<uint64_t>& memory = {});
/// The text of a prompt: -p, or the file of -f, or (with neither) what standard input holds where it is no
/// terminal. Throws Error (input) where both were given or there is none, and as file_text() does.
std::string prompt_text(const std::optional<std::string>& prompt, const std::string& file, uint64_t limit);
/// The text of a file, or of standard input by the name "-": not empty, valid UTF-8, at most `limit` bytes;
/// else throws Error (input).
std::string file_text(const std::string& path, uint64_t limit);

/// Opens, prints the plan and warnings to stderr, loads.
/// A route trace that the user asked for is refused (input) where the model has no routed experts.
enum class Trace { asked_for, own };
std::unique_ptr<Engine> open_engine(const EngineOptions& options, Trace trace = Trace::asked_for);

}  // namespace weir::cli
