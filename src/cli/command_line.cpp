#include "cli/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <charconv>
#include <sstream>
#include <string>
#include <type_traits>

#include "base/error.h"
#include "base/file.h"
#include "cli/hints.h"

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

/// Whole numbers of 64 bits, or what `also` is.
CLI::Validator whole_number(const std::string& also) {
  return CLI::Validator(
      [also](std::string& text) {
        uint64_t value = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
        if (error == std::errc() && end == text.data() + text.size() && !text.empty()) return std::string();
        if (!also.empty() && text == also) return std::string();
        return fmt::format("\"{}\" is not a whole number from 0 to 2^64 - 1{}", text,
                           also.empty() ? "" : fmt::format(", or {}", also));
      },
      "N", "whole number");
}

const char* title(Group group) {
  switch (group) {
    case Group::model:
    case Group::first:
    case Group::common:
      return "options";
    case Group::sampling:
      return "sampling";
    case Group::engine:
      return "memory, device and experts";
    case Group::ledger:
      return "where the time and the experts go";
    case Group::output:
      return "output";
    case Group::tests:
      return "for tests of weir itself";
  }
  return "";
}

/// "  -n, --predict N      tokens to ...", wrapped.
std::string help_entry(const std::string& names, const std::string& text) {
  constexpr size_t indent = 30, width = 100;
  std::string out = fmt::format("  {:<{}}", names, indent - 2);
  size_t column = out.size();
  if (names.size() + 4 > indent) out += "\n" + std::string(indent, ' '), column = indent;
  std::istringstream words(text);
  bool first = true;
  for (std::string word; words >> word; first = false) {
    if (!first && column + 1 + word.size() > width) {
      out += "\n" + std::string(indent, ' ');
      column = indent;
    } else if (!first) {
      out += ' ', ++column;
    }
    out += word;
    column += word.size();
  }
  return out + "\n";
}

}  // namespace

struct CommandLine::Impl {
  struct Entry {
    CLI::Option* option;
    Group group;
    const char* value;  ///< what stands after the name: "N", "TEXT", or "" for a flag
  };
  CLI::App app;
  std::string name;
  std::vector<Entry> entries;
  Group group = Group::first;
  std::vector<std::string> examples;
  std::vector<std::pair<std::string, std::string>> hints;
  CLI::Option* positional = nullptr;

  CLI::Option* add(CLI::Option* option, const char* value) {
    entries.push_back({option, group, value});
    return option;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const CLI::Option* option : app.get_options()) {
      for (const auto& one : option->get_lnames()) all.push_back("--" + one);
      for (const auto& one : option->get_snames()) all.push_back("-" + one);
    }
    return all;
  }
  /// One option with its value, or one word that stands alone.
  struct Piece {
    const CLI::Option* option;  ///< null: a positional word
    std::vector<std::string> words;
  };
  /// Throws Error (input) for a word that looks like an option and is none.
  std::vector<Piece> split(const std::vector<std::string>& arguments) const;
  /// What is wrong with such a word.
  std::string complaint(const std::string& word) const;
  std::string help() const;
  std::vector<Piece> given;  ///< of parse()
};

CommandLine::CommandLine(const std::string& name, const std::string& description)
    : impl_(std::make_unique<Impl>()) {
  impl_->app.description(description);
  impl_->app.name("weir " + name);
  impl_->app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  impl_->name = name;
}

CommandLine::~CommandLine() = default;

void CommandLine::group(Group group) { impl_->group = group; }
void CommandLine::example(const std::string& arguments) { impl_->examples.push_back(arguments); }
void CommandLine::hint(const std::string& name, const std::string& sentence) {
  impl_->hints.emplace_back(name, sentence);
}

void CommandLine::flag(const std::string& names, bool* target, const std::string& help) {
  impl_->add(impl_->app.add_flag(names, *target, help), "");
}
void CommandLine::option(const std::string& names, std::string* target, const std::string& help) {
  impl_->add(impl_->app.add_option(names, *target, help), "TEXT")->capture_default_str();
}
void CommandLine::option(const std::string& names, std::optional<std::string>* target,
                         const std::string& help) {
  impl_->add(impl_->app.add_option(names, *target, help), "TEXT");
}
void CommandLine::option(const std::string& names, std::vector<std::string>* target,
                         const std::string& help) {
  impl_->add(impl_->app.add_option(names, *target, help), "TEXT")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}
void CommandLine::option(const std::string& names, int* target, int low, int high, const std::string& help) {
  impl_->add(impl_->app.add_option(names, *target, help), "N")
      ->check(between(names, low, high))
      ->capture_default_str();
}
void CommandLine::option(const std::string& names, std::optional<int>* target, int low, int high,
                         const std::string& help) {
  impl_->add(impl_->app.add_option(names, *target, help), "N")->check(between(names, low, high));
}
void CommandLine::option(const std::string& names, float* target, float low, float high,
                         const std::string& help) {
  impl_->add(impl_->app.add_option(names, *target, help), "X")
      ->check(between(names, low, high))
      ->capture_default_str();
}
void CommandLine::option(const std::string& names, std::optional<uint64_t>* target, const std::string& help) {
  impl_->add(impl_->app.add_option(names, *target, help), "N")->check(whole_number(""));
}
void CommandLine::option_or_minus_one(const std::string& names, std::optional<uint64_t>* target,
                                      const std::string& help) {
  const auto set = [target](const std::string& text) {
    if (text == "-1")
      target->reset();
    else
      *target = std::stoull(text);
  };
  impl_->add(impl_->app.add_option_function<std::string>(names, set, help), "N")->check(whole_number("-1"));
}
void CommandLine::positional(const std::string& name, std::string* target, const std::string& help) {
  impl_->positional = impl_->app.add_option(name, *target, help);
}

std::string CommandLine::Impl::help() const {
  const std::string place = positional ? positional->get_name() : "";
  std::string out = fmt::format("{}\n\nusage: weir {} [OPTIONS]{}\n", app.get_description(), name,
                                place.empty() ? "" : fmt::format(" [{}]", place));
  if (!examples.empty()) out += "\nexamples:\n";
  for (const auto& example : examples) out += fmt::format("  weir {} {}\n", name, example);
  const char* last = "";
  for (int g = 0; g <= static_cast<int>(Group::tests); ++g) {
    for (const Entry& entry : entries) {
      if (static_cast<int>(entry.group) != g) continue;
      if (std::string(last) != title(entry.group)) out += fmt::format("\n{}:\n", last = title(entry.group));
      std::string text = entry.option->get_description();
      const std::string value = entry.option->get_default_str();
      if (!value.empty() && text.find("default") == std::string::npos)
        text += fmt::format(" (default {})", value);
      std::vector<std::string> spelled;
      for (const auto& one : entry.option->get_snames()) spelled.push_back("-" + one);
      for (const auto& one : entry.option->get_lnames()) spelled.push_back("--" + one);
      out += help_entry(
          fmt::format("{}{}{}", fmt::join(spelled, ", "), *entry.value == 0 ? "" : " ", entry.value), text);
    }
  }
  if (!place.empty()) out += "\n" + help_entry(place, positional->get_description());
  return out;
}

std::string CommandLine::Impl::complaint(const std::string& word) const {
  const std::string typed = word.substr(0, word.find('='));
  for (const auto& [own, sentence] : hints)
    if (own == typed) return sentence;
  if (const std::string hint = option_hint(typed); !hint.empty()) return hint;
  const auto listed = [&](const std::string& what) {
    return fmt::format("{}: {} (weir {} --help lists the options)", name, what, name);
  };
  // "-n5" and "-n=5": a value grown to a letter. "-ng" may be anything, and is never read as -n g.
  const CLI::Option* letter = word[1] == '-' ? nullptr : app.get_option_no_throw(word.substr(0, 2));
  if (letter && letter->get_items_expected_max() > 0) {
    const std::string value = word.substr(word[2] == '=' ? 3 : 2);
    if (!std::all_of(value.begin(), value.end(),
                     [](char c) { return std::isalpha(static_cast<unsigned char>(c)); }))
      return listed(fmt::format("{} is not an option: a value is a word of its own, as in {} {}", quote(word),
                                word.substr(0, 2), value));
  }
  const std::string meant = nearest(typed, names());
  return listed(fmt::format("{} is not an option{}", quote(typed),
                            meant.empty() ? "" : fmt::format(": did you mean {}?", meant)));
}

std::vector<CommandLine::Impl::Piece> CommandLine::Impl::split(
    const std::vector<std::string>& arguments) const {
  std::vector<Piece> pieces;
  bool names_end = false;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    if (!names_end && word == "--") {
      names_end = true;
      continue;
    }
    pieces.push_back({nullptr, {word}});
    if (names_end || word.size() < 2 || word[0] != '-') continue;
    const bool is_long = word[1] == '-';
    const size_t equals = is_long ? word.find('=') : std::string::npos;
    const CLI::Option* option =
        is_long || word.size() == 2 ? app.get_option_no_throw(word.substr(0, equals)) : nullptr;
    if (!option) throw input_error("{}", complaint(word));
    pieces.back().option = option;
    const bool has_value = option->get_items_expected_min() > 0 && equals == std::string::npos;
    if (has_value && i + 1 < arguments.size())
      pieces.back().words.push_back(arguments[++i]);  // whatever it looks like
  }
  return pieces;
}

bool CommandLine::parse(const std::vector<std::string>& arguments) {
  impl_->given = impl_->split(arguments);
  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());  // as the library takes them
  try {
    impl_->app.parse(reversed);
    return true;
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", impl_->help());
    return false;
  } catch (const CLI::ParseError& e) {
    std::string what = e.what();
    std::replace(what.begin(), what.end(), '\n', ' ');
    throw input_error("{}: {} (weir {} --help lists the options)", impl_->name, what, impl_->name);
  }
}

std::vector<std::string> CommandLine::words_besides(const std::vector<std::string>& names) const {
  std::vector<std::string> words;
  for (const Impl::Piece& piece : impl_->given) {
    const auto is_it = [&](const std::string& name) { return piece.option->check_name(name); };
    if (piece.option && std::any_of(names.begin(), names.end(), is_it)) continue;
    words.insert(words.end(), piece.words.begin(), piece.words.end());
    // A file named like an option stood behind "--", which is not kept.
    if (!piece.option && words.back().starts_with("-") && words.back() != "-") words.back().insert(0, "./");
  }
  return words;
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

void CommandLine::refuse_with(const std::string& mode, const std::vector<std::string>& those) const {
  if (impl_->app.get_option(mode)->count() == 0) return;
  for (const auto& name : those)
    if (impl_->app.get_option(name)->count() > 0)
      throw input_error("{} has no effect with {}: expected one of them", name, mode);
}

}  // namespace weir::cli
