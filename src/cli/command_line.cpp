#include "cli/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <string>
#include <type_traits>

#include "base/error.h"

namespace weir::cli {

namespace {

/// Numbers from low to high, NaN not among them; the complaint has the value and the names as listed.
template <typename Number>
CLI::Validator between(const std::string& names, Number low, Number high) {
  return CLI::Validator(
      [=](std::string& text) {
        Number value{};
        if (CLI::detail::lexical_cast(text, value) && value >= low && value <= high) return std::string();
        return fmt::format("\"{}\" is not a {} from {} to {} (option {})", text,
                           std::is_integral_v<Number> ? "whole number" : "number", low, high, names);
      },
      fmt::format("{} to {}", low, high), "between");
}

}  // namespace

struct CommandLine::Impl {
  CLI::App app;
  std::string name;
};

CommandLine::CommandLine(const std::string& name, const std::string& description)
    : impl_(std::make_unique<Impl>()) {
  impl_->app.description(description);
  impl_->app.name("weir " + name);
  impl_->app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  impl_->name = name;
}

CommandLine::~CommandLine() = default;

void CommandLine::flag(const std::string& names, bool* target, const std::string& help) {
  impl_->app.add_flag(names, *target, help);
}
void CommandLine::option(const std::string& names, std::string* target, const std::string& help) {
  impl_->app.add_option(names, *target, help)->capture_default_str();
}
void CommandLine::option(const std::string& names, std::optional<std::string>* target,
                         const std::string& help) {
  impl_->app.add_option(names, *target, help);
}
void CommandLine::option(const std::string& names, std::vector<std::string>* target,
                         const std::string& help) {
  impl_->app.add_option(names, *target, help)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}
void CommandLine::option(const std::string& names, int* target, int low, int high, const std::string& help) {
  impl_->app.add_option(names, *target, help)->check(between(names, low, high))->capture_default_str();
}
void CommandLine::option(const std::string& names, std::optional<int>* target, int low, int high,
                         const std::string& help) {
  impl_->app.add_option(names, *target, help)->check(between(names, low, high));
}
void CommandLine::option(const std::string& names, float* target, float low, float high,
                         const std::string& help) {
  impl_->app.add_option(names, *target, help)->check(between(names, low, high))->capture_default_str();
}
void CommandLine::option(const std::string& names, std::optional<uint64_t>* target, const std::string& help) {
  impl_->app.add_option(names, *target, help)
      ->check(CLI::Validator(
          [](std::string& text) {
            uint64_t value = 0;
            const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
            if (error == std::errc() && end == text.data() + text.size() && !text.empty())
              return std::string();
            return fmt::format("\"{}\" is not a whole number from 0 to 2^64 - 1", text);
          },
          "N", "whole number"));
}
void CommandLine::positional(const std::string& name, std::string* target, const std::string& help) {
  impl_->app.add_option(name, *target, help);
}

bool CommandLine::parse(const std::vector<std::string>& arguments) {
  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());  // as the library takes them
  try {
    impl_->app.parse(reversed);
    return true;
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", impl_->app.help());
    return false;
  } catch (const CLI::ParseError& e) {
    std::string what = e.what();
    std::replace(what.begin(), what.end(), '\n', ' ');
    throw input_error("{}: {} (weir {} --help lists the options)", impl_->name, what, impl_->name);
  }
}

void CommandLine::refuse_besides(const std::string& mode, const std::vector<std::string>& with) const {
  for (const CLI::Option* option : impl_->app.get_options()) {
    const auto is_it = [&](const std::string& name) { return option->check_name(name); };
    if (option->count() == 0 || is_it(mode) || std::any_of(with.begin(), with.end(), is_it)) continue;
    throw input_error("{} has no effect with {}: expected no other options than {}",
                      option->get_name(false, true), mode, fmt::join(with, ", "));
  }
}

void CommandLine::refuse_without(const std::string& mode, const std::vector<std::string>& those) const {
  for (const auto& name : those)
    if (impl_->app.get_option(name)->count() > 0)
      throw input_error("{} has no effect without {}: expected that too, or neither", name, mode);
}

}  // namespace weir::cli
