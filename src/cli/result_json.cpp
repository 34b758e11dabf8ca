#include "cli/result_json.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/arithmetic.h"
#include "base/error.h"
#include "engine/open_device.h"

namespace weir::cli {

std::string hex(uint64_t value) { return fmt::format("{:016x}", value); }

nlohmann::ordered_json timings_json(const Timings& t) {
  const auto per_token = [](double ms, int n) { return n > 0 ? ms / n : 0.0; };
  const auto per_second = [](double ms, int n) { return ms > 0 ? 1e3 * n / ms : 0.0; };
  return {{"prompt_n", t.prompt_n},
          {"prompt_ms", t.prompt_ms},
          {"prompt_per_token_ms", per_token(t.prompt_ms, t.prompt_n)},
          {"prompt_per_second", per_second(t.prompt_ms, t.prompt_n)},
          {"predicted_n", t.predicted_n},
          {"predicted_ms", t.predicted_ms},
          {"predicted_steps", t.steps},
          {"predicted_per_token_ms", per_token(t.predicted_ms, t.steps)},
          {"predicted_per_second", per_second(t.predicted_ms, t.steps)}};
}

nlohmann::ordered_json experts_json(const ExpertCounters& c) {
  const uint64_t uses = c.hits + c.misses;
  return {{"hits", c.hits},
          {"misses", c.misses},
          {"hit_rate", uses > 0 ? static_cast<double>(c.hits) / static_cast<double>(uses) : 0.0},
          {"reads", c.reads},
          {"bytes_read", c.bytes_read}};
}

nlohmann::ordered_json memory_json(const Engine& engine) {
  const MemoryUse use = engine.memory_use();
  nlohmann::ordered_json json = {{"budget_bytes", engine.plan().request.budget_bytes},
                                 {"peak_bytes", use.peak()},
                                 {"peak_rss_bytes", use.peak_rss}};
  const auto known = [](const std::optional<uint64_t>& bytes) -> nlohmann::ordered_json {
    if (!bytes) return nullptr;
    return *bytes;
  };
  json["peak_page_cache_bytes"] = known(use.peak_page_cache);
  json["page_cache_bytes"] = known(use.page_cache);
  if (const auto& device = engine.plan().device)
    json["device"] = {{"device", device->device},
                      {"budget_bytes", device->budget_bytes},
                      {"plan_bytes", device->total_bytes}};
  return json;
}

void add_arithmetic(nlohmann::ordered_json& json, const Engine& engine) {
  json["arithmetic"] = arithmetic_name(engine.arithmetic());
  json["arithmetic_version"] = arithmetic_version;
}

void add_plan(nlohmann::ordered_json& json, const Engine& engine) {
  json["context"] = engine.context();
  json["expert_slots"] = engine.plan().slots;
}

void print_json(const nlohmann::ordered_json& json) {
  const std::string line = json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  if (std::fwrite(line.data(), 1, line.size(), stdout) != line.size() || std::fflush(stdout) != 0)
    throw failure("stdout: writing failed");
}

}  // namespace weir::cli
