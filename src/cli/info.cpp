// weir info: what a model file holds and what weir cannot do with it. Reads only the header.
#include <fmt/core.h>

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/result_json.h"
#include "model/family.h"
#include "text/tokenizer.h"

namespace weir::cli {

namespace {

struct TypeCount {
  uint64_t tensors = 0, bytes = 0;
};

struct Description {
  std::map<std::string, TypeCount> types;
  uint64_t expert_bytes = 0, other_bytes = 0;
  std::vector<std::string> unsupported;
};

bool is_expert(const std::string& name) { return name.find("_exps.") != std::string::npos; }

/// Runs one loading step and keeps its complaint.
template <typename F>
void try_step(Description& d, F&& step) {
  try {
    step();
  } catch (const Error& e) {
    d.unsupported.push_back(e.what());
  }
}

Description describe(const gguf::Model& model) {
  Description d;
  for (const auto& t : model.tensors()) {
    auto& count = d.types[t.info->name];
    ++count.tensors;
    count.bytes += t.bytes;
    (is_expert(t.name) ? d.expert_bytes : d.other_bytes) += t.bytes;
  }
  for (const auto& [name, count] : d.types) {
    bool computable = false;
    for (const auto& t : model.tensors()) computable |= t.info->name == name && t.info->computable;
    if (!computable) d.unsupported.push_back(fmt::format("{} tensors of type {}", count.tensors, name));
  }
  try_step(d, [&] { Family::create(model); });
  try_step(d, [&] { Tokenizer::load(model); });
  return d;
}

std::optional<int64_t> key(const gguf::Model& model, const std::string& architecture, const char* name) {
  return model.integer(architecture + "." + name);
}

constexpr const char* shown_keys[] = {"block_count",
                                      "context_length",
                                      "embedding_length",
                                      "attention.head_count",
                                      "attention.head_count_kv",
                                      "attention.key_length",
                                      "feed_forward_length",
                                      "expert_count",
                                      "expert_used_count",
                                      "expert_feed_forward_length"};

void print_text(const gguf::Model& model, const std::string& architecture, const Description& d) {
  fmt::print("file          {} ({}, {} part{})\n", model.path(), human_bytes(model.total_bytes()),
             model.files().size(), model.files().size() == 1 ? "" : "s");
  fmt::print("architecture  {}\n", printable(architecture));
  if (const auto name = model.string("general.name")) fmt::print("name          {}\n", printable(*name));
  for (const char* k : shown_keys)
    if (const auto value = key(model, architecture, k)) fmt::print("  {:<28} {}\n", k, *value);
  fmt::print("tokenizer     {} / {}\n", model.string("tokenizer.ggml.model").value_or("none"),
             model.string("tokenizer.ggml.pre").value_or("none"));
  fmt::print("tensors       {}\n", model.tensors().size());
  for (const auto& [type, count] : d.types)
    fmt::print("  {:<8} {:>6}  {:>10}\n", type, count.tensors, human_bytes(count.bytes));
  fmt::print("experts       {}\nthe rest      {}\n", human_bytes(d.expert_bytes), human_bytes(d.other_bytes));
  if (d.unsupported.empty()) {
    fmt::print("supported     yes\n");
  } else {
    fmt::print("unsupported\n");
    for (const auto& what : d.unsupported) fmt::print("  {}\n", printable(what));
  }
}

nlohmann::ordered_json to_json(const gguf::Model& model, const std::string& architecture,
                               const Description& d) {
  nlohmann::ordered_json types = nlohmann::ordered_json::object(), keys = nlohmann::ordered_json::object();
  for (const auto& [type, count] : d.types)
    types[type] = {{"tensors", count.tensors}, {"bytes", count.bytes}};
  for (const char* k : shown_keys)
    if (const auto value = key(model, architecture, k)) keys[k] = *value;
  return {{"file", model.path()},
          {"parts", model.files().size()},
          {"file_bytes", model.total_bytes()},
          {"architecture", architecture},
          {"name", model.string("general.name").value_or("")},
          {"keys", keys},
          {"tensors", model.tensors().size()},
          {"types", types},
          {"expert_bytes", d.expert_bytes},
          {"other_bytes", d.other_bytes},
          {"fingerprint", hex(model.fingerprint())},
          {"unsupported", d.unsupported}};
}

}  // namespace

int info(const Arguments& arguments) {
  std::string path, positional;
  bool json = false;
  CommandLine line("info", "Describes a model file. Reads only its header.");
  line.option("-m,--model", &path, "model file");
  line.positional("MODEL", &positional, "model file, instead of -m");
  line.flag("--json", &json, "one line of JSON on stdout");
  if (!line.parse(arguments)) return 0;
  if (path.empty()) path = positional;
  if (path.empty()) throw input_error("no model: give a GGUF file with -m");
  const auto model = gguf::Model::open(path);
  const std::string architecture = model.string("general.architecture").value_or("none");
  const Description d = describe(model);
  if (json)
    print_json(to_json(model, architecture, d));
  else
    print_text(model, architecture, d);
  return 0;
}

}  // namespace weir::cli
