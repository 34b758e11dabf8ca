// The nouns of an A/B experiment: what was planned, what each run gave, on which machine. Plain data, as it
// lies in the observations file; whatever a verdict needs is in here and nothing else is. Knows no engine and
// no clock.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lab/machine.h"

namespace weir::lab::ab {

enum class Side : uint8_t { a, b };
inline Side other(Side side) { return side == Side::a ? Side::b : Side::a; }
inline size_t index(Side side) { return static_cast<size_t>(side); }

enum class RunKind : uint8_t {
  pilot,      ///< warms up and tells the numbers that follow; dropped from the verdict
  pair,       ///< of two openings whose ratio is a difference of A and B
  null_pair,  ///< of two openings of one arm, under both labels: the ratio should be one
};

enum class CachePolicy : uint8_t {
  warm,  ///< slots emptied, the same prompt run once unmeasured, then measured
  cold,  ///< slots emptied and the model's page cache dropped, then measured
};

enum class Metric : uint8_t {
  decode,        ///< milliseconds of a generation's decode rounds
  prefill,       ///< milliseconds of its prefill rounds
  total,         ///< milliseconds of the whole generation
  figure,        ///< a number that a command printed
  command_wall,  ///< milliseconds a command took
};

const char* name(Side side);  ///< "A", "B"
const char* name(RunKind kind);
const char* name(CachePolicy policy);
const char* name(Metric metric);
/// Each throws Error (input) that names `where` and the choices.
Side parse_side(const std::string& text, const std::string& where);
RunKind parse_run_kind(const std::string& text, const std::string& where);
CachePolicy parse_cache_policy(const std::string& text, const std::string& where);
Metric parse_metric(const std::string& text, const std::string& where);

/// One run of the schedule. In a null pair the label says which half it plays; the arm is one for both.
struct PlannedRun {
  RunKind kind = RunKind::pilot;
  int block = -1;  ///< a pair of openings, counted over both kinds of pair; -1 for the pilot
  int pair = -1;   ///< counted apart for pairs and null pairs; -1 for the pilot
  Side label = Side::a, arm = Side::a;
  int prompt = 0;   ///< index into Design::prompts
  int opening = 0;  ///< which opening of an engine, or start of a command: neighbours that share it, share it
  bool operator==(const PlannedRun&) const = default;
};

struct PromptFacts {
  std::string name;
  uint64_t hash = 0;  ///< FNV-1a of its bytes
  int tokens = 0;     ///< 0 for commands
};

/// Everything that was decided before the first run that counts.
struct Design {
  std::string model;         ///< path; empty for commands
  uint64_t fingerprint = 0;  ///< of the model
  std::array<std::string, 2> arms;
  bool commands = false;  ///< arms are whole commands: no ledger
  Metric metric = Metric::decode;
  bool higher_is_better = false;
  std::string figure;  ///< the expression that finds it; empty where there is none
  CachePolicy cache = CachePolicy::warm;
  bool allow_different_tokens = false;
  std::string negative_control;  ///< a role that must not move; empty: none
  int pilot_openings = 2;        ///< even
  int pilot_runs = 1;            ///< of each of them
  int pairs = 12;                ///< of openings, even; 0 until the pilot has told it
  int runs = 1;                  ///< of each opening
  /// Each arm is opened once and stays open, and a pair is of two runs: a difference between openings is then
  /// not covered.
  bool open_once = false;
  std::string numbers;  ///< in words, where the numbers of openings and runs come from
  uint64_t seed = 1;
  int predict = 64;  ///< new tokens a generation; 0 for commands
  std::vector<PromptFacts> prompts;
};

/// What one arm came to on this machine.
struct ArmFacts {
  std::string description;  ///< device, threads, how experts are read
  int slots = 0;            ///< per layer
  uint64_t plan_bytes = 0;
  std::string arithmetic = "portable";
  int arithmetic_version = 0;  ///< 0: not known
};

struct Setting {
  Machine machine;
  uint64_t model_bytes = 0;
  // Whether the arms' options imply that a run of either starts from the same state.
  bool same_slots = false, same_pages = false;
  std::array<ArmFacts, 2> arms;
  std::vector<std::string> roles;  ///< columns of Observation::role_ns; "unattributed" is the last
};

/// What a run found, just before the measured generation began.
struct StartState {
  uint64_t slots = 0, filled = 0;  ///< over all layers
  uint64_t fingerprint = 0;        ///< of which expert lay where and what the policy remembered
  std::optional<uint64_t> page_cache_bytes;
};

struct Observation {
  PlannedRun run;
  double started_s = 0;  ///< since the experiment began
  double took_s = 0;     ///< with opening and preparing it
  /// Meanwhile, by the hypervisor, from all processors (lab/machine.h); nothing where it is not known.
  std::optional<uint64_t> stolen_ns;
  double value = 0;               ///< the metric; finite and above 0
  uint64_t metric_ns = 0;         ///< of the phases the metric covers
  uint64_t wall_ns = 0;           ///< of the whole generation, or of the command
  uint64_t unattributed_ns = 0;   ///< of wall_ns
  std::vector<uint64_t> role_ns;  ///< adds up to metric_ns; empty for commands
  int tokens = 0;
  uint64_t tokens_hash = 0;
  uint64_t hits = 0, misses = 0, bytes_read = 0;  ///< in the phases the metric covers
  StartState start;
  uint64_t peak_bytes = 0;  ///< of a process with this arm alone
};

struct Experiment {
  Design design;
  Setting setting;
  std::vector<Observation> observations;  ///< in the order they were made
};

}  // namespace weir::lab::ab
