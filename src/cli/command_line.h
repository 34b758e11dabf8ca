// Options of a subcommand. Hides the parsing library, so that one unit includes it. Usage errors are Error
// (input).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace weir::cli {

/// Sections of --help, in the order in which they are printed; those with the same title are one section.
enum class Group { model, first, common, sampling, engine, ledger, output, tests };

class CommandLine {
 public:
  CommandLine(const std::string& name, const std::string& description);
  ~CommandLine();

  /// The group of the options that are added from here on; `first` before the first call.
  void group(Group group);
  /// A command of --help's examples, after "weir NAME ".
  void example(const std::string& arguments);
  /// An option that this command lacks on purpose: `sentence` refuses it.
  void hint(const std::string& name, const std::string& sentence);

  void flag(const std::string& names, bool* target, const std::string& help);
  void option(const std::string& names, std::string* target, const std::string& help);
  void option(const std::string& names, std::optional<std::string>* target, const std::string& help);
  void option(const std::string& names, std::vector<std::string>* target, const std::string& help);
  /// Values outside [low, high] are usage errors that name the option and the range.
  void option(const std::string& names, int* target, int low, int high, const std::string& help);
  void option(const std::string& names, std::optional<int>* target, int low, int high,
              const std::string& help);
  void option(const std::string& names, float* target, float low, float high, const std::string& help);
  void option(const std::string& names, std::optional<uint64_t>* target, const std::string& help);
  /// The same, but -1 stands for none.
  void option_or_minus_one(const std::string& names, std::optional<uint64_t>* target,
                           const std::string& help);
  /// A single optional argument without a name.
  void positional(const std::string& name, std::string* target, const std::string& help);

  /// False where --help was asked for and printed (to stdout). Throws Error (input), one line.
  /// A word with dashes is an option by its whole name, or the value of one: letters are never split off.
  bool parse(const std::vector<std::string>& arguments);

  /// After parse(): the words given, without the options named (by any of their names) and their values.
  std::vector<std::string> words_besides(const std::vector<std::string>& names) const;

  // After parse(). Both throw Error (input) that names the first option that would be silently ignored;
  // options are named as they were added, by any of their names.
  /// `mode` was given: refuses whatever else was given and is not among `with`.
  void refuse_besides(const std::string& mode, const std::vector<std::string>& with) const;
  /// `mode` was not given: refuses each of `those`.
  void refuse_without(const std::string& mode, const std::vector<std::string>& those) const;
  /// `mode` was given: refuses each of `those`.
  void refuse_with(const std::string& mode, const std::vector<std::string>& those) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace weir::cli
