#include "lab/ab/observations.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "lab/ab/schedule.h"

namespace weir::lab::ab {

namespace {

using Json = nlohmann::ordered_json;

constexpr const char* schema = "weir-ab-2";
constexpr const char* schema_before_openings = "weir-ab-1";

std::string hex(uint64_t value) { return fmt::format("{:016x}", value); }

/// An object of the file, by the path to it: every getter says where it looked.
class Object {
 public:
  Object(const Json& json, std::string where) : json_(json), where_(std::move(where)) {
    if (!json_.is_object()) throw input_error("{}: expected an object", where_);
  }
  Object object(const char* key) const { return {field(key), path(key)}; }
  std::string text(const char* key) const {
    const Json& f = field(key);
    if (!f.is_string()) throw input_error("{}: expected a string", path(key));
    return f.get<std::string>();
  }
  bool flag(const char* key) const {
    const Json& f = field(key);
    if (!f.is_boolean()) throw input_error("{}: expected true or false", path(key));
    return f.get<bool>();
  }
  double number(const char* key) const {
    const Json& f = field(key);
    if (!f.is_number()) throw input_error("{}: expected a number", path(key));
    return f.get<double>();
  }
  uint64_t u64(const char* key) const {
    const Json& f = field(key);
    if (!f.is_number_unsigned()) throw input_error("{}: expected a whole number, 0 or above", path(key));
    return f.get<uint64_t>();
  }
  /// Of bytes, reads or slots: more than any machine makes are a damaged file's.
  uint64_t count(const char* key) const {
    constexpr uint64_t most = uint64_t{1} << 56;
    const uint64_t value = u64(key);
    if (value > most) throw input_error("{}: {}: expected 0 to 2^56", path(key), value);
    return value;
  }
  double seconds(const char* key) const {
    const double value = number(key);
    if (!(value >= 0) || value > 1e9)
      throw input_error("{}: {}: expected 0 to 1e9 seconds", path(key), value);
    return value;
  }
  int integer(const char* key, int low, int high) const {
    const Json& f = field(key);
    if (!f.is_number_integer()) throw input_error("{}: expected a whole number", path(key));
    const auto value = f.get<int64_t>();
    if (value < low || value > high)
      throw input_error("{}: {}: expected {} to {}", path(key), value, low, high);
    return static_cast<int>(value);
  }
  uint64_t hash(const char* key) const {
    const std::string digits = text(key);
    if (digits.size() != 16 || digits.find_first_not_of("0123456789abcdef") != std::string::npos)
      throw input_error("{}: {}: expected 16 hexadecimal digits", path(key), quote(digits));
    return std::stoull(digits, nullptr, 16);
  }
  const Json& array(const char* key) const {
    const Json& f = field(key);
    if (!f.is_array()) throw input_error("{}: expected an array", path(key));
    return f;
  }
  bool has(const char* key) const { return json_.contains(key) && !json_[key].is_null(); }
  std::string path(const char* key) const { return fmt::format("{}: {}", where_, key); }

 private:
  const Json& field(const char* key) const {
    const auto found = json_.find(key);
    if (found == json_.end()) throw input_error("{} is missing", path(key));
    return *found;
  }
  const Json& json_;
  std::string where_;
};

// --- the design

Json prompts_json(const std::vector<PromptFacts>& prompts) {
  Json list = Json::array();
  for (const auto& p : prompts)
    list.push_back({{"name", p.name}, {"hash", hex(p.hash)}, {"tokens", p.tokens}});
  return list;
}

Json design_json(const Design& d) {
  return {{"model", d.model},
          {"fingerprint", hex(d.fingerprint)},
          {"a", d.arms[0]},
          {"b", d.arms[1]},
          {"commands", d.commands},
          {"metric", name(d.metric)},
          {"higher_is_better", d.higher_is_better},
          {"figure", d.figure},
          {"cache", name(d.cache)},
          {"allow_different_tokens", d.allow_different_tokens},
          {"negative_control", d.negative_control},
          {"pilot_openings", d.pilot_openings},
          {"pilot_runs", d.pilot_runs},
          {"pairs", d.pairs},
          {"runs", d.runs},
          {"open_once", d.open_once},
          {"numbers", d.numbers},
          {"seed", d.seed},
          {"predict", d.predict},
          {"prompts", prompts_json(d.prompts)}};
}

Design read_design(const Object& o) {
  Design d;
  d.model = o.text("model");
  d.fingerprint = o.hash("fingerprint");
  d.arms = {o.text("a"), o.text("b")};
  d.commands = o.flag("commands");
  d.metric = parse_metric(o.text("metric"), o.path("metric"));
  if (d.commands != (d.metric == Metric::figure || d.metric == Metric::command_wall))
    throw input_error("{}: {}: expected {}", o.path("metric"), name(d.metric),
                      d.commands ? "figure or command, as the arms are commands"
                                 : "decode, prefill or total, as the arms are options");
  d.higher_is_better = o.flag("higher_is_better");
  if (d.higher_is_better && d.metric != Metric::figure)
    throw input_error("{}: true: expected false, as the metric is a time", o.path("higher_is_better"));
  d.figure = o.text("figure");
  d.cache = parse_cache_policy(o.text("cache"), o.path("cache"));
  d.allow_different_tokens = o.flag("allow_different_tokens");
  d.negative_control = o.text("negative_control");
  d.pilot_openings = o.integer("pilot_openings", 2, most_pairs);
  d.pilot_runs = o.integer("pilot_runs", 1, most_runs);
  d.pairs = o.integer("pairs", 0, most_pairs);
  for (const auto& [key, count] : {std::pair("pairs", d.pairs), {"pilot_openings", d.pilot_openings}})
    if (count % 2 != 0) throw input_error("{}: {}: expected an even number", o.path(key), count);
  d.runs = o.integer("runs", 1, most_runs);
  d.open_once = o.flag("open_once");
  if (d.open_once && d.runs != 1)
    throw input_error("{}: {}: expected 1, as each arm was opened once", o.path("runs"), d.runs);
  d.numbers = o.text("numbers");
  d.seed = o.u64("seed");
  d.predict = o.integer("predict", 0, std::numeric_limits<int>::max());
  const std::string where = o.path("prompts");
  for (const auto& entry : o.array("prompts")) {
    const Object p(entry, where);
    d.prompts.push_back(
        {p.text("name"), p.hash("hash"), p.integer("tokens", 0, std::numeric_limits<int>::max())});
  }
  if (d.prompts.empty()) throw input_error("{}: expected at least one", where);
  return d;
}

// --- the setting

Json arm_json(const ArmFacts& arm) {
  return {{"description", arm.description},
          {"expert_slots", arm.slots},
          {"plan_bytes", arm.plan_bytes},
          {"arithmetic", arm.arithmetic},
          {"arithmetic_version", arm.arithmetic_version}};
}

Json setting_json(const Setting& s) {
  return {{"processor", s.machine.processor},
          {"processors", s.machine.processors},
          {"memory_bytes", s.machine.memory_bytes},
          {"system", s.machine.system},
          {"build", s.machine.build},
          {"model_bytes", s.model_bytes},
          {"same_slots", s.same_slots},
          {"same_pages", s.same_pages},
          {"a", arm_json(s.arms[0])},
          {"b", arm_json(s.arms[1])},
          {"roles", s.roles}};
}

ArmFacts read_arm(const Object& o) {
  ArmFacts arm{o.text("description"), o.integer("expert_slots", 0, std::numeric_limits<int>::max()),
               o.u64("plan_bytes")};
  // Files from before there was a choice have neither.
  if (o.has("arithmetic")) arm.arithmetic = o.text("arithmetic");
  if (o.has("arithmetic_version"))
    arm.arithmetic_version = o.integer("arithmetic_version", 0, std::numeric_limits<int>::max());
  return arm;
}

Setting read_setting(const Object& o) {
  Setting s;
  s.machine.processor = o.text("processor");
  s.machine.processors = o.integer("processors", 0, 1 << 20);
  s.machine.memory_bytes = o.u64("memory_bytes");
  s.machine.system = o.text("system");
  s.machine.build = o.text("build");
  s.model_bytes = o.u64("model_bytes");
  s.same_slots = o.flag("same_slots");
  s.same_pages = o.flag("same_pages");
  s.arms = {read_arm(o.object("a")), read_arm(o.object("b"))};
  for (const auto& role : o.array("roles")) {
    if (!role.is_string()) throw input_error("{}: expected strings", o.path("roles"));
    s.roles.push_back(role.get<std::string>());
  }
  return s;
}

// --- the runs

Json run_json(const Observation& o) {
  Json json = {{"kind", name(o.run.kind)},
               {"block", o.run.block},
               {"pair", o.run.pair},
               {"label", name(o.run.label)},
               {"arm", name(o.run.arm)},
               {"prompt", o.run.prompt},
               {"opening", o.run.opening},
               {"started_s", o.started_s},
               {"took_s", o.took_s},
               {"stolen_ns", o.stolen_ns ? Json(*o.stolen_ns) : Json(nullptr)},
               {"value", o.value},
               {"metric_ns", o.metric_ns},
               {"wall_ns", o.wall_ns},
               {"unattributed_ns", o.unattributed_ns},
               {"role_ns", o.role_ns},
               {"tokens", o.tokens},
               {"tokens_hash", hex(o.tokens_hash)},
               {"hits", o.hits},
               {"misses", o.misses},
               {"bytes_read", o.bytes_read},
               {"start_slots", o.start.slots},
               {"start_filled", o.start.filled},
               {"start_fingerprint", hex(o.start.fingerprint)}};
  json["start_page_cache_bytes"] = o.start.page_cache_bytes ? Json(*o.start.page_cache_bytes) : Json(nullptr);
  json["peak_bytes"] = o.peak_bytes;
  return json;
}

PlannedRun read_planned(const Object& o, const Design& design) {
  PlannedRun run;
  run.kind = parse_run_kind(o.text("kind"), o.path("kind"));
  run.block = o.integer("block", -1, 1'000'000);
  run.pair = o.integer("pair", -1, most_pairs - 1);
  run.label = parse_side(o.text("label"), o.path("label"));
  run.arm = parse_side(o.text("arm"), o.path("arm"));
  run.prompt = o.integer("prompt", 0, static_cast<int>(design.prompts.size()) - 1);
  run.opening = o.integer("opening", 0, 1'000'000);
  return run;
}

std::vector<uint64_t> read_roles(const Object& o, const Experiment& e, uint64_t metric_ns) {
  std::vector<uint64_t> values;
  uint64_t sum = 0;
  for (const auto& ns : o.array("role_ns")) {
    if (!ns.is_number_unsigned()) throw input_error("{}: expected whole numbers", o.path("role_ns"));
    values.push_back(ns.get<uint64_t>());
    sum += values.back();
  }
  if (values.size() != e.setting.roles.size())
    throw input_error("{}: {} values: expected one for each of {} roles", o.path("role_ns"), values.size(),
                      e.setting.roles.size());
  if (!values.empty() && sum != metric_ns)
    throw input_error("{}: they add up to {}: expected metric_ns, {}", o.path("role_ns"), sum, metric_ns);
  return values;
}

/// The verdict rests on `value` and the table of roles on `metric_ns`: where they differ, the report would
/// contradict itself. A figure is the command's own and has no such twin.
void check_value(const Object& o, const Observation& r, Metric metric) {
  if (!std::isfinite(r.value) || r.value <= 0)
    throw input_error("{}: {}: expected above 0", o.path("value"), r.value);
  if (metric == Metric::figure) return;
  const double measured = static_cast<double>(r.metric_ns) * 1e-6;
  // The last digits are left to whatever else wrote the file.
  if (std::abs(r.value - measured) > 1e-9 * measured)
    throw input_error("{}: {}: expected metric_ns in milliseconds, {}", o.path("value"), r.value, measured);
}

/// Figures of one run that could not all be true. `begun_s`: when the run before it was started.
void check_account(const Object& o, const Observation& r, const Design& design, double begun_s) {
  if (!std::isfinite(r.started_s) || r.started_s < begun_s)
    throw input_error("{}: {}: expected no less than the run before it, {}", o.path("started_s"), r.started_s,
                      begun_s);
  if (r.metric_ns > r.wall_ns)
    throw input_error("{}: {}: expected at most wall_ns, {}", o.path("metric_ns"), r.metric_ns, r.wall_ns);
  if (r.unattributed_ns > r.wall_ns)
    throw input_error("{}: {}: expected at most wall_ns, {}", o.path("unattributed_ns"), r.unattributed_ns,
                      r.wall_ns);
  if (r.tokens > design.predict)
    throw input_error("{}: {}: expected at most the design's predict, {}", o.path("tokens"), r.tokens,
                      design.predict);
  if (r.start.filled > r.start.slots)
    throw input_error("{}: {}: expected at most start_slots, {}", o.path("start_filled"), r.start.filled,
                      r.start.slots);
  const bool whole = design.metric == Metric::command_wall || design.metric == Metric::figure;
  if (whole && r.metric_ns != r.wall_ns)
    throw input_error("{}: {}: expected wall_ns, {}, as the arms are commands", o.path("metric_ns"),
                      r.metric_ns, r.wall_ns);
}

Observation read_run(const Object& o, const Experiment& e) {
  Observation r;
  r.run = read_planned(o, e.design);
  r.started_s = o.number("started_s");
  r.took_s = o.seconds("took_s");
  if (o.has("stolen_ns")) r.stolen_ns = o.u64("stolen_ns");
  r.value = o.number("value");
  r.metric_ns = o.u64("metric_ns");
  r.wall_ns = o.u64("wall_ns");
  check_value(o, r, e.design.metric);
  r.unattributed_ns = o.u64("unattributed_ns");
  r.role_ns = read_roles(o, e, r.metric_ns);
  r.tokens = o.integer("tokens", 0, std::numeric_limits<int>::max());
  r.tokens_hash = o.hash("tokens_hash");
  r.hits = o.count("hits"), r.misses = o.count("misses"), r.bytes_read = o.count("bytes_read");
  r.start.slots = o.count("start_slots"), r.start.filled = o.count("start_filled");
  r.start.fingerprint = o.hash("start_fingerprint");
  if (o.has("start_page_cache_bytes")) r.start.page_cache_bytes = o.count("start_page_cache_bytes");
  r.peak_bytes = o.count("peak_bytes");
  check_account(o, r, e.design, e.observations.empty() ? 0 : e.observations.back().started_s);
  return r;
}

}  // namespace

Json to_json(const Experiment& e) {
  Json runs = Json::array();
  for (const auto& o : e.observations) runs.push_back(run_json(o));
  return {{"schema", schema},
          {"design", design_json(e.design)},
          {"setting", setting_json(e.setting)},
          {"observations", std::move(runs)}};
}

Experiment from_json(const Json& json, const std::string& source) {
  const Object top(json, source);
  const auto found = top.text("schema");
  if (found == schema_before_openings)
    throw input_error(
        "{}: schema {}: each arm was opened once in it, so it cannot tell a difference between the arms from "
        "one between two openings: make the experiment again",
        source, quote(found));
  if (found != schema) throw input_error("{}: schema {}: expected {}", source, quote(found), schema);
  Experiment e;
  e.design = read_design(top.object("design"));
  e.setting = read_setting(top.object("setting"));
  const std::string& control = e.design.negative_control;
  const auto& roles = e.setting.roles;
  if (!control.empty() && std::find(roles.begin(), roles.end(), control) == roles.end())
    throw input_error("{}: design: negative_control: {}: expected one of the setting's roles", source,
                      quote(control));
  int number = 0;
  for (const auto& run : top.array("observations"))
    e.observations.push_back(read_run({run, fmt::format("{}: observation {}", source, ++number)}, e));
  return e;
}

void write_observations(const Experiment& experiment, const std::string& path) {
  const auto text = to_json(experiment).dump(1, ' ', false, Json::error_handler_t::replace);
  write_file_atomically(path, text + "\n");
}

Experiment read_observations(const std::string& path) {
  const InputFile file = InputFile::open(path);
  std::string text(file.size(), '\0');
  file.pread_exact(text.data(), text.size(), 0);
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) throw input_error("{}: not JSON: expected the observations of weir ab", path);
  return from_json(json, path);
}

}  // namespace weir::lab::ab
