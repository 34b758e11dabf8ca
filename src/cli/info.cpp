// weir info: what a model file holds and what weir cannot do with it. Reads only the header.
#include <fmt/core.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/result_json.h"
#include "engine/open_device.h"
#include "experts/store.h"
#include "gguf/describe.h"
#include "gguf/keys.h"
#include "model/family.h"
#include "text/tokenizer.h"
#include "text/tokenizer_keys.h"

namespace weir::cli {

namespace {

struct TypeCount {
  uint64_t tensors = 0, bytes = 0;
};

struct Description {
  std::map<std::string, TypeCount> types;
  uint64_t expert_bytes = 0, other_bytes = 0;
  std::vector<std::string> unsupported, warnings;
};

bool is_expert(const std::string& name) { return name.find("_exps.") != std::string::npos; }

void add(std::vector<std::string>& to, const std::vector<std::string>& lines) {
  to.insert(to.end(), lines.begin(), lines.end());
}

/// Runs one loading step and keeps its complaint.
template <typename F>
void try_step(Description& d, F&& step) {
  try {
    step();
  } catch (const Error& e) {
    d.unsupported.push_back(e.what());
  }
}

void count_tensors(const gguf::Model& model, Description& d) {
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
}

/// Everything that run would refuse the file for, as far as each step gets.
Description describe(const gguf::Model& model, const std::string& device) {
  Description d;
  count_tensors(model, d);
  const Family::Verdict verdict = Family::examine(model);
  add(d.unsupported, verdict.objections);
  add(d.warnings, verdict.warnings);
  try_step(d, [&] {
    const auto tokenizer = Tokenizer::load(model);
    if (verdict.objections.empty()) Family::create(model)->require_rows(model, tokenizer->size());
  });
  if (verdict.objections.empty())
    try_step(d, [&] { ExpertStore(model, Family::create(model)->expert_tensors()); });
  if (verdict.objections.empty())
    try_step(d, [&] {
      if (const auto why = device_refusal(device, *Family::create(model)); !why.empty())
        d.unsupported.push_back(why);
    });
  add(d.warnings, unknown_tokenizer_keys(model));
  // The file is named once, above.
  const std::string file = model.path() + ": ";
  for (auto& line : d.unsupported)
    if (line.compare(0, file.size(), file) == 0) line.erase(0, file.size());
  return d;
}

/// A key's value in words, whatever its type; "none" where there is none.
std::string in_words(const gguf::Model& model, const std::string& key) {
  const auto entry = model.metadata().find(key);
  if (entry == model.metadata().end()) return "none";
  const auto* text = std::get_if<std::string>(&entry->second.data);
  return text ? printable(*text) : gguf::describe(entry->second);
}

/// The keys "<prefix>.*" in the order of their names; `see` takes the rest of the name and the value.
template <typename F>
void for_each_key(const gguf::Model& model, const std::string& architecture, F&& see) {
  const std::string prefix = architecture + ".";
  const auto& metadata = model.metadata();
  for (auto entry = metadata.lower_bound(prefix); entry != metadata.end(); ++entry) {
    if (entry->first.compare(0, prefix.size(), prefix) != 0) return;
    see(entry->first.substr(prefix.size()), entry->second);
  }
}

void print_text(const gguf::Model& model, const Description& d) {
  const std::string architecture = in_words(model, "general.architecture");
  fmt::print("file          {} ({}, {} part{})\n", model.path(), human_bytes(model.total_bytes()),
             model.files().size(), model.files().size() == 1 ? "" : "s");
  fmt::print("architecture  {}\n", architecture);
  if (model.has("general.name")) fmt::print("name          {}\n", in_words(model, "general.name"));
  for_each_key(model, architecture, [](const std::string& name, const gguf::Value& value) {
    fmt::print("  {:<36} {}\n", printable(name), gguf::describe(value));
  });
  fmt::print("tokenizer     {} / {}\n", in_words(model, "tokenizer.ggml.model"),
             in_words(model, "tokenizer.ggml.pre"));
  fmt::print("tensors       {}\n", model.tensors().size());
  for (const auto& [type, count] : d.types)
    fmt::print("  {:<8} {:>6}  {:>10}\n", type, count.tensors, human_bytes(count.bytes));
  fmt::print("experts       {}\nthe rest      {}\n", human_bytes(d.expert_bytes), human_bytes(d.other_bytes));
  if (d.unsupported.empty()) fmt::print("supported: yes\n");
  for (const auto& what : d.unsupported) fmt::print("supported: no: {}\n", printable(what));
  for (const auto& warning : d.warnings) log_warning(warning);
}

/// Numbers, texts and short arrays as they are; a long array as its type and length.
nlohmann::ordered_json to_json(const gguf::Value& value) {
  constexpr size_t listed = 256;
  return std::visit(
      [](const auto& data) -> nlohmann::ordered_json {
        if constexpr (std::is_same_v<std::decay_t<decltype(data)>, gguf::Array>) {
          if (data.size() > listed)
            return {{"array_of", gguf::value_type_name(data.element)}, {"elements", data.size()}};
          if (data.has_strings()) return data.strings().to_vector();
          if (data.has_reals()) return data.reals().to_vector();
          return data.integers().to_vector();
        } else {
          return data;
        }
      },
      value.data);
}

nlohmann::ordered_json to_json(const gguf::Model& model, const Description& d) {
  using Json = nlohmann::ordered_json;
  const std::string architecture = in_words(model, "general.architecture");
  nlohmann::ordered_json types = nlohmann::ordered_json::object(), keys = nlohmann::ordered_json::object();
  for (const auto& [type, count] : d.types)
    types[type] = {{"tensors", count.tensors}, {"bytes", count.bytes}};
  for_each_key(model, architecture,
               [&](const std::string& name, const gguf::Value& value) { keys[name] = to_json(value); });
  return {{"model", model.path()},
          {"parts", model.files().size()},
          {"file_bytes", model.total_bytes()},
          {"architecture", architecture},
          {"model_name", model.has("general.name") ? Json(in_words(model, "general.name")) : Json(nullptr)},
          {"keys", keys},
          {"tensors", model.tensors().size()},
          {"types", types},
          {"expert_bytes", d.expert_bytes},
          {"other_bytes", d.other_bytes},
          {"fingerprint", hex(model.fingerprint())},
          {"supported", d.unsupported.empty()},
          {"unsupported", d.unsupported},
          {"warnings", d.warnings}};
}

}  // namespace

int info(const Arguments& arguments) {
  std::string path, positional, device = "cpu";
  bool json = false;
  CommandLine line("info", "Describes a model file. Reads only its header.");
  line.example("model.gguf");
  line.example("model.gguf --device cuda:0 --json");
  line.option("-m,--model", &path, "model file");
  line.positional("MODEL", &positional, "model file, instead of -m");
  line.option("--device", &device, "for which support is told: cpu, or cuda:N (no GPU is needed)");
  line.group(Group::output);
  line.flag("--json", &json, "one line of JSON on stdout");
  if (!line.parse(arguments)) return 0;
  is_cpu(device);  // a wrong name is refused first
  if (path.empty()) path = positional;
  if (path.empty()) throw input_error("no model: give a GGUF file with -m");
  const auto model = gguf::Model::open(path);
  const Description d = describe(model, device);
  if (json)
    print_json(to_json(model, d));
  else
    print_text(model, d);
  return 0;
}

}  // namespace weir::cli
