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

/// The text of -p or -f (exactly one, not empty, valid UTF-8); throws Error (input).
std::string prompt_text(const std::optional<std::string>& prompt, const std::string& file);
std::string read_text_file(const std::string& path);

/// Opens, prints the plan and warnings to stderr, loads.
/// A route trace that the user asked for is refused (input) where the model has no routed experts.
enum class Trace { asked_for, own };
std::unique_ptr<Engine> open_engine(const EngineOptions& options, Trace trace = Trace::asked_for);

}  // namespace weir::cli
