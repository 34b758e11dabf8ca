// weir ab: compares two arms and says B is faster, B is slower, no difference resolved, or why it refuses to
// say. Reads the command line and the prompts; the experiment itself is lab/ab's.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/result_json.h"
#include "lab/ab/command_arms.h"
#include "lab/ab/engine_arms.h"
#include "lab/ab/observations.h"
#include "lab/ab/report.h"
#include "lab/ab/schedule.h"
#include "lab/ab/self_test.h"
#include "lab/ab/words.h"
#include "lab/machine.h"
#include "lab/prompts.h"

namespace weir::cli {

namespace {

namespace fs = std::filesystem;
using lab::ab::Side;

struct Flags {
  EngineFlags engine;
  std::optional<std::string> a, b, a_command, b_command;
  std::optional<std::string> figure, better, cache, metric, from;
  std::string prompts, negative_control, out;
  std::optional<int> pairs, runs;
  std::optional<uint64_t> seed;
  int predict = 64, minutes = 60;
  bool allow_different_tokens = false, json = false, self_test = false, open_once = false, verbose = false;
};

/// Those of arms of options that somebody could mean; refuse_besides() has the rest.
void refuse_engine_options(const Flags& f) {
  if (f.a || f.b)
    throw input_error(
        "an arm is either options (--a, --b) or a command (--a-command, --b-command), and "
        "both arms are of one kind");
  if (f.metric) throw input_error("--metric is for arms of options: a command has a --figure, or its time");
  if (!f.negative_control.empty() || f.allow_different_tokens || f.cache)
    throw input_error(
        "--negative-control, --allow-different-tokens and --cache need the ledger, which commands do "
        "not have");
  if (!f.engine.model.empty() || !f.engine.positional_model.empty())
    throw input_error("a model was given, but the arms are commands: name it in them");
}

bool parse(Flags& f, const Arguments& arguments) {
  CommandLine line(
      "ab",
      "Compares two arms by pairs of openings in a random order, a third of them null pairs of one arm. Exit "
      "code 0: B faster, 10: B slower, 11: no difference resolved, 12: refused.");
  line.example("-m model.gguf --memory 3GiB --a \"\" --b \"--expert-policy lru\"");
  line.example("-m model.gguf --a \"--expert-slots 16\" --b \"--expert-slots 32\" --minutes 10");
  f.engine.add(line, EngineFlags::With::engine);
  line.option("--a", &f.a,
              "options of arm A, added to those outside, e.g. \"--expert-slots 16\"; NAME=value sets "
              "the environment");
  line.option("--b", &f.b, "options of arm B");
  line.option("--a-command", &f.a_command,
              "arm A as a whole command, run by /bin/sh; {prompt} is the prompt's file");
  line.option("--b-command", &f.b_command, "arm B as a whole command");
  line.option("--figure", &f.figure,
              "expression that finds a command's figure in its output: the last match, its "
              "first group; without it, the command's time is compared");
  line.option("--better", &f.better, "which figure is better: higher or lower (default higher)");
  line.option("--prompts", &f.prompts,
              "file with a prompt, or folder whose *.txt files are prompts, instead of the frozen prompts");
  line.option("--pairs", &f.pairs, 1, lab::ab::most_pairs,
              "pairs of openings, even, at least 6; default: what a pilot finds to be enough");
  line.option("--runs", &f.runs, 1, lab::ab::most_runs,
              "runs of each opening; default: what a pilot finds to be worth their time");
  line.option("--minutes", &f.minutes, 1, 1 << 20,
              "how long the experiment may take, as far as the numbers are left to the pilot (default 60)");
  line.flag("--open-once", &f.open_once,
            "open each arm once and pair their runs: the verdict does not cover what differs from opening to "
            "opening");
  line.option("--seed", &f.seed, "seed of the order and of the sampling (default 1)");
  line.option("-n,--predict", &f.predict, 1, 1 << 30, "new tokens a run");
  line.option("--cache", &f.cache,
              "state before each run: warm (the same prompt was just run) or cold (slots "
              "and page cache emptied); default warm");
  line.option("--metric", &f.metric, "what is compared: decode, prefill or total time (default decode)");
  line.option("--negative-control", &f.negative_control, "a role of the ledger that must not move");
  line.flag("--allow-different-tokens", &f.allow_different_tokens, "compare arms that do different work");
  line.group(Group::output);
  line.flag("--json", &f.json, "one line of JSON on stdout instead of the report");
  line.flag("--verbose", &f.verbose, "report the order and every run, too");
  line.option("--out", &f.out, "file for the raw observations (default weir-ab-DATE-TIME.json)");
  line.group(Group::first);
  line.option("--from", &f.from, "judge the observations in this file again; runs nothing");
  line.flag("--self-test", &f.self_test, "show by simulation how often the judge errs; runs nothing");
  if (!line.parse(arguments)) return false;
  if (f.self_test) line.refuse_besides("--self-test", {"--pairs", "--seed", "--json"});
  if (f.from) line.refuse_besides("--from", {"--pairs", "--json", "--verbose"});
  if (f.self_test || f.from || !(f.a_command || f.b_command)) return true;
  refuse_engine_options(f);
  line.refuse_besides("--a-command", {"--b-command", "--figure", "--better", "--prompts", "--pairs", "--seed",
                                      "--minutes", "--json", "--verbose", "--out"});
  return true;
}

// --- what was asked for

/// The files of --prompts, for commands.
std::vector<std::string> prompt_paths(const std::string& where) {
  std::error_code error;
  if (!fs::is_directory(where, error)) return {where};
  std::vector<std::string> paths;
  for (const auto& entry : fs::directory_iterator(where, error))
    if (entry.path().extension() == ".txt") paths.push_back(entry.path().string());
  if (paths.empty()) throw input_error("{}: no *.txt files in this folder: expected prompts", where);
  std::sort(paths.begin(), paths.end());
  return paths;
}

/// The texts of --prompts, for engines: the frozen ones where it was not given, standard input for "-".
std::vector<lab::Prompt> engine_prompts(const std::string& where) {
  if (where.empty()) return lab::frozen_prompts();
  if (where == "-") return {{"-", file_text(where, text_limit()), false}};
  return lab::read_prompts(where);
}

lab::ab::Asked checked_numbers(const Flags& f) {
  if (f.pairs && *f.pairs < lab::ab::fewest_pairs)
    throw input_error("--pairs {}: expected at least {}: under that the sign-flip test cannot reach 5 %",
                      *f.pairs, lab::ab::fewest_pairs);
  if (f.pairs && *f.pairs % 2 != 0)
    throw input_error("--pairs {}: expected an even number: half of the pairs begin with A", *f.pairs);
  if (f.open_once && f.runs)
    throw input_error(
        "--runs and --open-once were given: engines that stay open are paired run by run, so give --pairs");
  return {f.pairs, f.runs, f.open_once, 60.0 * f.minutes};
}

std::string default_out() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  char text[64];
  std::strftime(text, sizeof text, "weir-ab-%Y%m%d-%H%M%S.json", &local);
  return text;
}

/// Observations are never replaced: an experiment that was looked at is not made again under the same name.
std::string checked_out(const Flags& f) {
  const std::string out = f.out.empty() ? default_out() : f.out;
  std::error_code error;
  if (fs::exists(out, error))
    throw input_error(
        "{}: exists already: observations are not replaced; give another --out, or judge them again "
        "with --from",
        out);
  const fs::path folder = fs::path(out).parent_path();
  if (!folder.empty() && !fs::is_directory(folder, error))
    throw input_error("--out {}: {} is no folder: expected one that exists", out, folder.string());
  return out;
}

void warn_of_unused(size_t prompts, int pairs) {
  if (prompts > static_cast<size_t>(pairs))
    warn("{} prompts, but {} pairs use only as many, one each: the rest are not used", prompts, pairs);
}

lab::ab::Design design_of(const Flags& f) {
  lab::ab::Design d;
  d.seed = f.seed.value_or(1);
  d.cache = lab::ab::parse_cache_policy(f.cache.value_or("warm"), "--cache");
  d.allow_different_tokens = f.allow_different_tokens;
  d.negative_control = f.negative_control;
  return d;
}

void check_control(const std::string& role) {
  std::string names;
  for (int r = 0; r < role_count; ++r) {
    const std::string known = role_name(static_cast<Role>(r));
    if (role == known) return;
    names += (r == 0 ? "" : ", ") + known;
  }
  throw input_error("--negative-control {}: expected a role of the ledger: {}", quote(role), names);
}

/// The arm's words over the options that both arms share.
lab::ab::EngineArm engine_arm(const Flags& f, const std::string& text) {
  const auto words = lab::ab::parse_arm(text);
  EngineFlags flags = f.engine;
  CommandLine line("run", "");
  flags.add(line, EngineFlags::With::engine_and_ledger);
  for (const auto& word : words.options)
    if (word == "--help" || word == "-h") throw input_error("{}: expected options of weir run", quote(word));
  line.parse(words.options);
  if (flags.ledger || !flags.ledger_json.empty() || !flags.trace.empty() || !flags.route_trace.empty())
    throw input_error(
        "the ledger is on in both arms and read here: --ledger, --ledger-json, --trace and "
        "--route-trace belong to weir run");
  const ScopedEnvironment environment(words.environment);
  return {flags.options(), words.environment};
}

lab::ab::EngineArm named_engine_arm(const Flags& f, Side side, const std::string& text) {
  try {
    return engine_arm(f, text);
  } catch (const Error& e) {
    throw input_error("arm {}: {}", lab::ab::name(side), e.what());
  }
}

// --- the experiment

int answer(const Flags& f, const lab::ab::Experiment& experiment, std::optional<int> requested_pairs) {
  const auto verdict = lab::ab::judge(experiment, requested_pairs);
  if (f.json)
    print_json(lab::ab::report_json(experiment, verdict));
  else
    fmt::print("{}",
               lab::ab::report_text(experiment, verdict,
                                    f.verbose ? lab::ab::Detail::observations : lab::ab::Detail::summary));
  std::fflush(stdout);
  return lab::ab::exit_code(verdict.outcome);
}

std::string what_is_left(const lab::ab::Experiment& experiment, const std::string& out) {
  if (!experiment.observations.empty()) return "observations so far: " + out;
  return "no observations yet: none are kept";
}

/// What the pilot led to.
std::string numbers_line(const lab::ab::Design& d, const lab::ab::Numbers& n) {
  const int nulls = lab::ab::null_pairs(n.pairs);
  std::string text =
      fmt::format("{} pairs of {} and {} null pairs", n.pairs, n.open_once ? "runs" : "openings", nulls);
  if (!n.open_once && !d.commands)
    text += fmt::format(", {} {} in an opening", n.runs, n.runs == 1 ? "run" : "runs");
  return text + fmt::format("; about {}", human_duration(n.expected_s));
}

int carry_out(const Flags& f, lab::ab::Experiment& experiment, lab::ab::Runner& runner,
              const std::string& out) {
  bool complete = false;
  // Without a run nothing was looked at, so the same --out may be used again: the file goes, however it ends.
  Temporary unused(out);
  try {
    std::unique_ptr<Progress> bar;
    lab::ab::ConductOptions options{out, checked_numbers(f)};
    options.on_progress = [&](const char* stage, size_t done, size_t total) {
      if (!experiment.observations.empty()) unused.release();
      if (!bar) bar = std::make_unique<Progress>(stage, total, "runs");
      bar->update(done);
    };
    options.on_numbers = [&](const lab::ab::Numbers& n) {
      bar.reset();
      log_line(numbers_line(experiment.design, n));
      warn_of_unused(experiment.design.prompts.size(), n.pairs);
    };
    complete = lab::ab::conduct(experiment, runner, options);
  } catch (const Error&) {
    if (!experiment.observations.empty()) unused.release();
    log_line(what_is_left(experiment, out));
    throw;
  }
  if (!experiment.observations.empty()) unused.release();
  if (!complete) {
    log_line(fmt::format("interrupted after {} runs: no verdict; {}", experiment.observations.size(),
                         what_is_left(experiment, out)));
    return interrupted_exit_code;
  }
  log_line(fmt::format("observations: {}", out));
  return answer(f, experiment, {});
}

int compare_engines(const Flags& f) {
  if (!f.a || !f.b)
    throw input_error("two arms are needed: give both --a and --b (\"\" is an arm without options)");
  if (f.figure || f.better) throw input_error("--figure and --better are for --a-command and --b-command");
  checked_numbers(f);  // before anything is opened
  lab::ab::Experiment experiment;
  lab::ab::Design& design = experiment.design;
  design = design_of(f);
  design.arms = {*f.a, *f.b};
  const std::string metric = f.metric.value_or("decode");
  if (metric != "decode" && metric != "prefill" && metric != "total")
    throw input_error("--metric {}: expected decode, prefill or total", quote(metric));
  design.metric = lab::ab::parse_metric(metric, "--metric");
  design.predict = f.predict;
  if (design.metric == lab::ab::Metric::decode && design.predict < 2)
    throw input_error(
        "-n 1: expected at least 2: the first token comes from the prefill, so none is decoded");
  if (!design.negative_control.empty()) check_control(design.negative_control);
  std::array<lab::ab::EngineArm, 2> arms{named_engine_arm(f, Side::a, *f.a),
                                         named_engine_arm(f, Side::b, *f.b)};
  const auto prompts = engine_prompts(f.prompts);
  const std::string out = checked_out(f);
  const uint64_t room = choose_budget({}, read_memory_limits()).bytes;
  lab::ab::EngineArms runner(std::move(arms), prompts, design, room, &interrupted());
  if (f.open_once && !runner.can_stay_open())
    throw input_error(
        "--open-once: both arms together do not fit what the machine leaves: expected them opened "
        "by turns, without this option");
  for (const auto& p : runner.prompts())
    if (p.cut())
      warn("{} has {} tokens: cut to the first {}, as -n is {} and the context no larger", p.name,
           p.text_tokens, p.tokens.size(), design.predict);
  catch_interrupts();
  experiment.setting = runner.setting();
  for (const Side side : {Side::a, Side::b}) {
    const auto& facts = experiment.setting.arms[lab::ab::index(side)];
    log_line(fmt::format("arm {}: {} slots a layer, {} planned; {}", lab::ab::name(side), facts.slots,
                         human_bytes(facts.plan_bytes), facts.description));
  }
  return carry_out(f, experiment, runner, out);
}

int compare_commands(const Flags& f) {
  if (!f.a_command || !f.b_command)
    throw input_error("two arms are needed: give both --a-command and --b-command");
  const std::string better = f.better.value_or("higher");
  if (better != "higher" && better != "lower")
    throw input_error("--better {}: expected higher or lower", quote(better));
  checked_numbers(f);  // before anything runs
  if (f.figure) lab::ab::check_figure(*f.figure);
  if (f.better && !f.figure) throw input_error("--better needs a --figure: of times, the shorter is better");
  lab::ab::Experiment experiment;
  lab::ab::Design& design = experiment.design;
  design = design_of(f);
  design.arms = {*f.a_command, *f.b_command};
  design.commands = true;
  design.metric = f.figure ? lab::ab::Metric::figure : lab::ab::Metric::command_wall;
  design.figure = f.figure.value_or("");
  design.higher_is_better = f.figure && better == "higher";
  design.predict = 0;
  lab::ab::CommandArmsOptions options{design.arms, design.figure, {}, &interrupted()};
  if (!f.prompts.empty()) {
    options.prompts = prompt_paths(f.prompts);
    for (const auto& path : options.prompts) {
      const std::string text = file_text(path, text_limit());
      design.prompts.push_back({path, Hash64().add(text.data(), text.size()).value(), 0});
    }
  } else {
    for (const auto& command : design.arms)
      if (command.find("{prompt}") != std::string::npos)
        throw input_error("{} names {{prompt}}: give a file or a folder with --prompts", quote(command));
    options.prompts = {""};
    design.prompts = {{"none", 0, 0}};
  }
  experiment.setting.machine = lab::this_machine();
  const std::string out = checked_out(f);
  catch_interrupts();
  lab::ab::CommandArms runner(std::move(options));
  return carry_out(f, experiment, runner, out);
}

int run_self_test(const Flags& f) {
  lab::ab::SelfTestOptions options;
  options.seed = f.seed.value_or(1);
  options.pairs = checked_numbers(f).pairs.value_or(options.pairs);
  lab::ab::SelfTest result;
  {
    std::unique_ptr<Progress> bar;
    options.on_progress = [&](int done, int total) {
      if (!bar) bar = std::make_unique<Progress>("simulating", static_cast<uint64_t>(total), "rows");
      bar->update(static_cast<uint64_t>(done));
    };
    result = lab::ab::self_test(options);
  }
  if (f.json)
    print_json(lab::ab::self_test_json(result));
  else
    fmt::print("{}", lab::ab::self_test_text(result));
  return result.failures.empty() ? 0 : 1;
}

}  // namespace

int ab(const Arguments& arguments) {
  Flags f;
  if (!parse(f, arguments)) return 0;
  if (f.self_test) return run_self_test(f);
  if (f.from) return answer(f, lab::ab::read_observations(*f.from), f.pairs);
  if (f.a_command || f.b_command) return compare_commands(f);
  return compare_engines(f);
}

}  // namespace weir::cli
