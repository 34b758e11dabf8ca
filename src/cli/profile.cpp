// weir profile: where the time of decode goes, what would attack it, and (--what-if) what each role is worth.
#include <fmt/core.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/temporary.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/result_json.h"
#include "engine/open_device.h"
#include "lab/profile/report.h"
#include "lab/profile/what_if.h"

namespace weir::cli {

namespace {

struct Flags {
  EngineFlags engine;
  std::string prompts;
  std::optional<int> n;
  std::optional<uint64_t> seed;
  bool markdown = false, json = false, what_if = false;
  int runs = 4, delay_us = 0;
  std::vector<std::string> roles;
};

bool parse(Flags& f, const Arguments& arguments) {
  CommandLine line(
      "profile",
      "Runs the frozen prompts with the timing ledger on and prints where decode's time goes, its "
      "largest block and the levers that attack it.");
  line.example("-m model.gguf --memory 3GiB");
  line.example("-m model.gguf --memory 3GiB --what-if");
  f.engine.add(line, EngineFlags::With::engine);
  line.option("--prompts", &f.prompts, "a prompt file or a folder of *.txt instead of the frozen prompts");
  line.option("-n,--predict", &f.n, 8, 1 << 20, "new tokens a prompt; default 128, with --what-if 64");
  line.option("--seed", &f.seed, "seed of the draws (default 1)");
  line.group(Group::output);
  line.flag("--markdown", &f.markdown, "the report as Markdown");
  line.flag("--json", &f.json, "one line of JSON on stdout");
  line.group(Group::first);
  line.flag("--what-if", &f.what_if,
            "delay each role in turn, on the first prompt, and print how much longer rounds get");
  line.option("--runs", &f.runs, 2, 1000, "with --what-if: generations of each role");
  line.option("--delay-us", &f.delay_us, 0, 10'000'000,
              "with --what-if: microseconds of the delay; 0: a fifth of the median round");
  line.option("--role", &f.roles, "with --what-if: delay only this role; may be repeated");
  if (!line.parse(arguments)) return false;
  if (!f.what_if) line.refuse_without("--what-if", {"--role", "--runs", "--delay-us"});
  return true;
}

std::vector<Role> parse_roles(const std::vector<std::string>& names) {
  std::vector<Role> roles;
  for (const auto& name : names) {
    int r = 0;
    while (r < role_count - 1 && name != role_name(static_cast<Role>(r))) ++r;
    if (r == role_count - 1) throw input_error("--role {}: expected the name of a role of the ledger", name);
    roles.push_back(static_cast<Role>(r));
  }
  return roles;
}

std::string routes_path() {
  return (std::filesystem::temp_directory_path() / fmt::format("weir-profile-{}.routes", getpid())).string();
}

void write_out(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
    throw failure("stdout: writing failed");
}

/// For the hit curve. On a GPU every expert is resident, and a trace would keep rounds from being recorded.
bool records_routes(const Flags& f) { return !f.what_if && is_cpu(f.engine.device); }

lab::Layout layout_of(const Flags& f) { return f.markdown ? lab::Layout::markdown : lab::Layout::text; }

int print_profile(const Flags& f, Engine& engine, const std::vector<lab::FittedPrompt>& prompts,
                  lab::ProfileRequest request) {
  std::optional<lab::Profile> profile;
  {
    Progress progress("profiling", static_cast<uint64_t>(request.new_tokens) * prompts.size(), "tokens");
    uint64_t done = 0;
    request.on_token = [&] { progress.update(++done); };
    profile = lab::measure_profile(engine, prompts, request);
  }
  if (!profile) return interrupted_exit_code;
  if (!f.json) {
    write_out(lab::profile_text(*profile, layout_of(f)));
    return 0;
  }
  auto json = lab::profile_json(*profile);
  json["memory"] = memory_json(engine);
  print_json(json);
  return 0;
}

int print_what_if(const Flags& f, Engine& engine, const lab::FittedPrompt& prompt,
                  const lab::ProfileRequest& profile) {
  lab::WhatIfRequest request{profile, f.runs, static_cast<uint64_t>(f.delay_us) * 1000, parse_roles(f.roles)};
  std::optional<lab::WhatIf> result;
  {
    Progress progress(
        "delaying",
        static_cast<uint64_t>(profile.new_tokens) * static_cast<uint64_t>(lab::what_if_generations(request)),
        "tokens at most");
    uint64_t done = 0;
    request.profile.on_token = [&] { progress.update(++done); };
    result = lab::measure_what_if(engine, prompt, request);
  }
  if (!result) return interrupted_exit_code;
  if (!result->never_ran.empty()) log_warning("--role: " + lab::never_ran_text(*result));
  if (f.json)
    print_json(lab::what_if_json(*result));
  else
    write_out(lab::what_if_text(*result, layout_of(f)));
  return 0;
}

}  // namespace

int profile(const Arguments& arguments) {
  Flags f;
  if (!parse(f, arguments)) return 0;
  if (f.json && f.markdown) throw input_error("both --json and --markdown were given: expected one of them");
  parse_roles(f.roles);  // a wrong name is refused before anything is loaded
  const auto texts = f.prompts.empty() ? lab::frozen_prompts() : lab::read_prompts(f.prompts);
  lab::ProfileRequest request;
  request.new_tokens = f.n.value_or(f.what_if ? 64 : 128);
  request.seed = f.seed.value_or(1);
  request.cancel = &interrupted();
  const Temporary routes(routes_path());
  const EngineOptions options =
      lab::profile_engine_options(f.engine.options(), request, records_routes(f) ? routes.path() : "");
  // Before loading: a prompt that does not fit is refused at once.
  std::vector<lab::FittedPrompt> prompts;
  {
    EngineOptions planned = options;
    planned.text = texts.back().text;  // the longest
    const Engine unloaded(planned);
    for (const auto& text : texts) prompts.push_back(lab::fit_prompt(text, unloaded, request.new_tokens));
  }
  if (f.what_if) prompts.resize(1);
  for (const auto& prompt : prompts)
    if (prompt.cut())
      warn("{} has {} tokens: cut to the first {}, as the context is {} and -n {}", prompt.name,
           prompt.text_tokens, prompt.tokens.size(), prompt.tokens.size() + request.new_tokens,
           request.new_tokens);
  const auto engine = open_engine(options, Trace::own);
  catch_interrupts();
  return f.what_if ? print_what_if(f, *engine, prompts.front(), request)
                   : print_profile(f, *engine, prompts, request);
}

}  // namespace weir::cli
