// Pieces of JSON that several subcommands print (docs/json.md).
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "engine/engine.h"

namespace weir::cli {

/// 16 hexadecimal digits.
std::string hex(uint64_t value);
/// llama.cpp's timings object.
nlohmann::ordered_json timings_json(const Timings& timings);
/// {hits, misses, hit_rate, reads, bytes_read}
nlohmann::ordered_json experts_json(const ExpertCounters& counters);
/// {budget_bytes, peak_bytes, peak_rss_bytes, peak_page_cache_bytes, page_cache_bytes}
nlohmann::ordered_json memory_json(const Engine& engine);
/// Adds what the bits depend on: `arithmetic`, `arithmetic_version`.
void add_arithmetic(nlohmann::ordered_json& json, const Engine& engine);
/// Adds what was planned for: `context`, `expert_slots`.
void add_plan(nlohmann::ordered_json& json, const Engine& engine);
/// Prints one line on stdout. Throws Error (failure) where stdout is gone.
void print_json(const nlohmann::ordered_json& json);

}  // namespace weir::cli
