// weir replay: what a recorded routing would cost with other slots, policies and budgets, without the model.
#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/outputs.h"
#include "cli/result_json.h"
#include "experts/plan.h"
#include "lab/read_cost.h"
#include "lab/replay_report.h"
#include "text/tokenizer.h"

namespace weir::cli {

namespace {

struct ReplayFlags {
  std::string trace, model, slots, memory, policies = "lfu,lru", phase, measure, io = "auto", ledger_json,
                                           svg;
  float read_rate = 0;
  bool json = false;
};

bool parse(ReplayFlags& f, const Arguments& arguments) {
  CommandLine line(
      "replay",
      "Replays a routing that --route-trace recorded: hit rates, bytes and predicted waits for any "
      "slots and policy, the Belady bound, reuse distances and skew.");
  line.example("run.routes   # recorded by weir run --route-trace run.routes");
  line.example("run.routes --slots 8,16,32 --measure model.gguf");
  line.positional("TRACE", &f.trace, "file of --route-trace");
  line.option("-m,--model", &f.model, "the trace's model, to be named in the report and the drawing");
  line.option("--slots", &f.slots, "expert slots in each layer, e.g. 4,8,16; default: a sweep");
  line.option("--expert-memory", &f.memory, "the same as memory of the experts alone, e.g. 64MiB,1GiB");
  line.hint(
      "--memory",
      "replay --memory: --memory is a whole process's budget, which weir plan -m MODEL --route-trace TRACE "
      "finds; memory of the experts alone is --expert-memory");
  line.option("--policy", &f.policies, "lfu, lru or both");
  line.option("--phase", &f.phase,
              "which rounds to count: prefill, decode, verify or all; default: decode where there is any");
  line.option("--read-rate", &f.read_rate, 0.0f, 10'000.0f, "predict waits at this rate, GB/s");
  line.option("--measure", &f.measure, "predict waits from reads of this model's experts, measured now");
  line.option("--io", &f.io, "reads of --measure: auto, direct (unbuffered) or buffered");
  line.option("--ledger-json", &f.ledger_json, "predict waits with what this run's ledger hid and read");
  line.option("--svg", &f.svg, "draw hit rate against memory into this file");
  line.group(Group::output);
  line.flag("--json", &f.json, "one line of JSON on stdout instead of the tables");
  if (!line.parse(arguments)) return false;
  if (f.trace.empty()) throw input_error("no trace: give a file that --route-trace recorded");
  check_output_paths(f.trace, {f.svg});
  if (f.read_rate > 0 && !f.measure.empty())
    throw input_error("both --read-rate and --measure were given: expected one of them");
  return true;
}

/// The items of a list with commas, none empty.
std::vector<std::string> items(const std::string& option, const std::string& text) {
  std::vector<std::string> out;
  std::istringstream in(text + ",");
  for (std::string item; std::getline(in, item, ',');) {
    if (item.empty()) throw input_error("{} '{}': expected a list like 4,8,16", option, text);
    out.push_back(item);
  }
  return out;
}

int slot_count(const std::string& text, const RouteTraceHeader& header) {
  const bool digits = std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
  const int slots = digits && text.size() <= 7 ? std::stoi(text) : 0;
  if (slots < 1) throw input_error("--slots '{}': expected a number from {} up", text, header.top_k);
  if (slots < header.top_k)
    throw input_error("--slots {}: a token uses {} experts of a layer at once; use at least {}", slots,
                      header.top_k, header.top_k);
  const int most = lab::most_experts(header);
  if (slots > most)
    log_warning(fmt::format("--slots {}: the model has {} experts a layer: {} slots, all resident", slots,
                            most, most));
  return std::min(slots, most);
}

int slots_of_memory(const std::string& text, const RouteTraceHeader& header) {
  const int slots = lab::slots_in_memory(header, parse_bytes("--expert-memory", text));
  if (slots < header.top_k)
    throw input_error(
        "--expert-memory {}: holds {} experts a layer, a token uses {} at once; use at least {} bytes", text,
        slots, header.top_k, lab::slots_memory(header, header.top_k));
  return slots;
}

std::vector<int> chosen_slots(const ReplayFlags& f, const RouteTraceHeader& header) {
  if (f.slots.empty() && f.memory.empty()) return lab::default_slots(header);
  std::vector<int> slots;
  if (!f.slots.empty())
    for (const auto& item : items("--slots", f.slots)) slots.push_back(slot_count(item, header));
  if (!f.memory.empty())
    for (const auto& item : items("--expert-memory", f.memory))
      slots.push_back(slots_of_memory(item, header));
  return slots;
}

std::vector<ExpertPolicy> chosen_policies(const std::string& text) {
  std::vector<ExpertPolicy> policies;
  for (const auto& item : items("--policy", text)) {
    if (item != "lfu" && item != "lru")
      throw input_error("--policy '{}': the policies are lfu and lru", item);
    const ExpertPolicy policy = parse_expert_policy(item);
    if (std::find(policies.begin(), policies.end(), policy) == policies.end()) policies.push_back(policy);
  }
  return policies;
}

void name_model(const std::string& path, lab::ReplayReport& report) {
  const auto model = gguf::Model::open(path);
  lab::require_same_model(report.header, report.trace, model);
  report.model = path;
  const auto name = model.metadata().find("general.name");
  const auto* text = name == model.metadata().end() ? nullptr : std::get_if<std::string>(&name->second.data);
  if (text) report.model_name = printable(replace_invalid_utf8(*text));
  if (report.model_name.empty()) report.model_name = std::filesystem::path(path).stem().string();
}

/// Where the rate and what reads hide behind come from; the options outrank the ledger's own rate.
void choose_wait(const ReplayFlags& f, lab::ReplayReport& report) {
  if (!f.ledger_json.empty()) {
    const auto figures = lab::read_ledger_figures(f.ledger_json, report.phase);
    report.wait.hidden_ns_per_hit = figures.hidden_ns_per_hit;
    report.wait.bytes_per_second = figures.bytes_per_second;
    report.rate_source = fmt::format("from {}", f.ledger_json);
    report.hidden_source = fmt::format("their computing time is from {}", f.ledger_json);
  }
  if (f.read_rate > 0) {
    report.wait.bytes_per_second = static_cast<double>(f.read_rate) * 1e9;
    report.rate_source = "as given";
  }
  if (!f.measure.empty()) {
    ReaderOptions reader;
    reader.mode = parse_io_mode(f.io);
    const auto cost = lab::measure_read_cost(f.measure, report.header, f.trace, reader);
    report.wait.bytes_per_second = cost.bytes_per_second;
    report.wait.latency_ns = cost.latency_ns;
    report.rate_source = cost.how;
  }
  if (!f.ledger_json.empty() && !report.has_rate())
    throw input_error("{}: nothing was read in that run; give --read-rate or --measure too", f.ledger_json);
}

}  // namespace

int replay(const Arguments& arguments) {
  ReplayFlags f;
  if (!parse(f, arguments)) return 0;
  const RouteTrace trace = RouteTrace::read(f.trace);
  lab::require_calls(trace, f.trace);
  const lab::Demand demand = lab::make_demand(trace);
  lab::ReplayReport report;
  report.trace = f.trace;
  report.header = trace.header;
  if (!f.model.empty()) name_model(f.model, report);
  report.phase = lab::choose_phase(demand, f.trace, f.phase);
  report.tokens = demand.tokens;
  report.rounds = demand.rounds;
  lab::ReplayOptions options;
  options.slots = chosen_slots(f, trace.header);
  options.policies = chosen_policies(f.policies);
  options.phase = report.phase;
  choose_wait(f, report);
  options.wait = report.wait;
  report.rows = lab::replay(demand, options);
  report.routing = lab::routing_profile(trace, report.phase);
  if (!f.svg.empty()) write_file_atomically(f.svg, lab::replay_svg(report));
  if (f.json)
    print_json(lab::replay_json(report));
  else
    fmt::print("{}", lab::replay_text(report));
  say_written("the curve", f.svg);
  return 0;
}

}  // namespace weir::cli
